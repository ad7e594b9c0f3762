"""What the scripts llama_*.py share: llama.cpp through llama_driver, Strata through its commands, and
how their logits are compared."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys

import numpy as np

import gguf_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("STRATA_BUILD", "build/release")
STRATA = BUILD / "strata"
DRIVER = BUILD / "llama_driver"
LIBRARIES = ROOT / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
GOLDEN = ROOT / "tests/golden"
SHARED_GOLDEN = pathlib.Path(os.environ.get("STRATA_SHARED_DIR", ROOT.parent / "shared")) / "golden"
DEMO = ROOT / "models/demo/strata-demo-46m.gguf"


class Refusal(Exception):
    """llama.cpp does not load a model; the text is the reason it gives."""


# --- llama.cpp --------------------------------------------------------------------------------


def build_driver():
    sources = [ROOT / "tests/peers" / name for name in ("llama_driver.cpp", "llama_api.h")]
    if DRIVER.exists() and DRIVER.stat().st_mtime > max(s.stat().st_mtime for s in sources):
        return
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-Wall", "-Wextra",
                    "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", sources[0], "-o", DRIVER,
                    "-ldl"], check=True)


def drive(*arguments):
    done = subprocess.run([DRIVER, LIBRARIES, *map(str, arguments)], capture_output=True, text=True,
                          errors="replace")
    if done.returncode == 3:
        reasons = re.findall(r"error loading model: (?:error loading model \w+: )?(.*)", done.stderr)
        raise Refusal(reasons[-1] if reasons else done.stderr[-500:])
    if done.returncode != 0:
        raise SystemExit(f"llama_driver {arguments}: {done.returncode}\n{done.stderr[-2000:]}")
    return done


def load(path):
    return json.loads(drive("load", path).stdout)


class Peer:
    """Runs things in a folder for temporary files."""

    def __init__(self, folder):
        build_driver()
        self.folder = pathlib.Path(folder)

    def llama_logits(self, model, ids, batch=512, cache="f32", threads=1, tensors=()):
        """Rows of logits, and the traced tensors: name -> list of float32 rows by token. Threads
        wait for each other by spinning, which takes minutes on a busy machine: one for small models."""
        ids_path, out, trace = (self.folder / name for name in ("ids", "logits", "trace"))
        np.asarray(ids, np.int32).tofile(ids_path)
        options = [f"batch={batch}", f"kv={cache}", f"threads={threads}"]
        if tensors:
            options += [f"trace={trace}", "tensors=" + ",".join(tensors)]
        drive("logits", model, ids_path, out, *options)
        rows = np.fromfile(out, np.float32).reshape(len(ids), -1)
        return rows, (read_trace(trace, len(ids), batch) if tensors else {})

    def strata_logits(self, model, ids, *options):
        ids_path, out = self.folder / "ids.json", self.folder / "strata"
        ids_path.write_text(json.dumps([int(i) for i in ids]))
        subprocess.run([STRATA, "logits", "-m", model, "--ids", ids_path, "-o", out, *options],
                       check=True)
        return np.fromfile(out, np.float32).reshape(len(ids), -1)

    def llama_tokens(self, model, texts, special):
        """Ids of each text (bytes); None where llama.cpp throws."""
        texts_path, out = self.folder / "texts", self.folder / "tokens"
        texts_path.write_bytes(b"".join(struct.pack("<I", len(t)) + t for t in texts))
        drive("tokenize", model, texts_path, out, f"special={special:d}")
        numbers, at, found = np.fromfile(out, np.int32).tolist(), 0, []
        while at < len(numbers):
            count = numbers[at]
            found.append(None if count < 0 else numbers[at + 1:at + 1 + count])
            at += 1 + max(count, 0)
        return found

    def strata_tokens(self, model, texts, specials):
        path = self.folder / "texts.hex"
        path.write_text("".join(text.hex() + "\n" for text in texts))
        done = subprocess.run([STRATA, "tokenize", "-m", model, "--lines", "--hex", "-f", path,
                               "--specials", specials], check=True, capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def convert(self, checkpoint, name, *options):
        out = self.folder / name
        subprocess.run([STRATA, "convert", checkpoint, out, *options], check=True,
                       capture_output=True)
        return out

    def synth(self, name, *options):
        """A model of random weights in the production width."""
        out = self.folder / name
        subprocess.run([STRATA, "synth", out, *options], check=True, capture_output=True)
        return out

    def ggml(self):
        return gguf_file.Ggml(LIBRARIES / "libggml-base.so")

    def widened(self, model):
        """The same weights as F32, decoded by ggml: llama.cpp then computes without rounding its
        activations, as it does for all other types."""
        out = self.folder / (model.stem + ".wide.gguf")
        file = gguf_file.read(model)
        file.widen(self.ggml())
        file.write(out)
        return out


def read_trace(path, count, batch):
    data, at, found = path.read_bytes(), 0, {}
    seen = {}
    while at < len(data):
        name_size, size, elements = struct.unpack_from("<QQQ", data, at)
        at += 24
        name = data[at:at + name_size].decode()
        values = np.frombuffer(data, np.uint8, size, at + name_size)
        at += name_size + size
        if size != 4 * elements or "(" in name:
            continue  # a view
        first = seen.get(name, 0)
        rows = min(batch, count - first)
        seen[name] = first + rows
        found.setdefault(name, []).extend(values.view(np.float32).reshape(rows, -1))
    return found


# --- where a rounding error may decide ----------------------------------------------------------

ROUTER, SCORES, GATE = "ffn_moe_probs", "indexer_score_tokens", "ple_gate-"
DECISIONS = (ROUTER, SCORES, GATE)
CLOSE = 5e-5  # relative; float32 sums of these models differ by about 1e-6
# The n-gram gate is sigmoid(sign(z) sqrt(|z|)): around z = 0 a rounding error becomes its root.
STEEP = 3e-3


def is_close(sorted_values, last):
    """Whether the last chosen and the best left out could change places. Equal values cannot: which
    of them is chosen is a rule."""
    if last + 1 >= len(sorted_values):
        return False
    a, b = sorted_values[last], sorted_values[last + 1]
    return a != b and a - b < CLOSE * abs(a)


def is_close_call(name, values, row, used, budget, ratio):
    if name.startswith(GATE):
        return np.abs(values - 0.5).min() < STEEP
    if name.startswith(ROUTER):
        return is_close(np.sort(values)[::-1], used - 1)
    if row + 1 < budget + ratio:
        return False
    blocks, tail = divmod(row + 1, ratio)
    scores = np.sort(values[:blocks * ratio:ratio])[::-1]
    whole, part = divmod(budget + ratio - 1 - tail, ratio)
    return is_close(scores, whole - 1) or (part > 0 and is_close(scores, whole))


def first_close_call(trace, count, **shape):
    """The first row in which a layer's choice of experts or cells, or its n-gram gate, hangs on
    rounding, else `count`. From that row on two correct programs may differ visibly."""
    first = count
    for name, rows in trace.items():
        close = (row for row, values in enumerate(rows[:first])
                 if is_close_call(name, values, row, **shape))
        first = next(close, first)
    return first


# --- checks -------------------------------------------------------------------------------------


class Checks:
    def __init__(self):
        self.failed = 0

    def that(self, good, text):
        self.failed += not good
        print(("ok      " if good else "FAILED  ") + text, flush=True)

    def end(self):
        sys.exit(1 if self.failed else 0)


def divergence(p_logits, q_logits):
    """KL(p || q) of each row in nats, and whether both have the same likeliest token."""
    def log_softmax(x):
        x = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(axis=1), p.argmax(axis=1) == q.argmax(axis=1)


def largest(a, b):
    return float(np.abs(a - b).max()) if len(a) else 0.0


# --- checkpoints --------------------------------------------------------------------------------


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    kinds = {"I32": np.int32, "F32": np.float32}
    return {name: np.frombuffer(data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]],
                                kinds[v["dtype"]]).reshape(v["shape"])
            for name, v in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


PATTERN = (r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
           r"|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_tokenizer():
    """A tokenizer.json with a token for each byte and three special ones."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    vocab = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    added = [{"id": 256 + i, "content": content, "special": True}
             for i, content in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return json.dumps({
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}})


def copy_checkpoint(source, folder, **settings):
    """A checkpoint like `source` with other settings, and a byte tokenizer."""
    folder.mkdir()
    for path in source.glob("*.safetensors"):
        if path.name != "golden.safetensors":
            (folder / path.name).symlink_to(path)
    config = json.loads((source / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(byte_tokenizer())
    return folder

#!/usr/bin/env python3
"""Compares the logits of `strata logits` with llama.cpp's.

usage: llama_logits.py [--full-width]

Without the option: the golden checkpoint tiny-a and the demo model. With it: random files in the
production width, several mixes of types, and a prompt beyond the dense bound.

llama.cpp rounds the activations that meet weights of any type but F32; Strata those that meet block
types, unless it is asked for --reference. So a file with other types than F32 is compared in two ways.
Strictly: both without rounding, llama.cpp from the same weights as F32, which ggml's own library
decoded. And by KL divergence from that exact result, what each program's rounding costs.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np

import gguf_file
import llama_peer as peer
from llama_peer import DECISIONS, divergence, largest

TOLERANCE = 2e-3


def strictly(checks, name, runs, bound, least_beyond=0):
    """runs: (ours, theirs, rows that count). Says how far they are apart within and beyond the dense
    bound."""
    within = max(largest(a[:min(bound, n)], b[:min(bound, n)]) for a, b, n in runs)
    beyond = max(largest(a[bound:n], b[bound:n]) for a, b, n in runs)
    rows = sum(min(bound, n) for _, _, n in runs)
    rows_beyond = sum(max(0, n - bound) for _, _, n in runs)
    text = f"{name}: largest difference {within:.1e} in {rows} rows"
    if rows_beyond or least_beyond:
        text += f", beyond the dense bound {beyond:.1e} in {rows_beyond}"
    checks.that(max(within, beyond) <= TOLERANCE and rows_beyond >= least_beyond and rows > 0, text)


def loosely(checks, name, runs, most_mean, least_same):
    """runs: (Strata's logits, llama.cpp's, exact ones)."""
    text, good = [], True
    for who, index in (("Strata", 0), ("llama.cpp", 1)):
        kl, same = (np.concatenate(x) for x in zip(*(divergence(r[2], r[index]) for r in runs)))
        text.append(f"{who} KL mean {kl.mean():.1e}, median {np.median(kl):.1e}, most {kl.max():.1e}, same "
                    f"likeliest token {same.mean():.3f}")
        good = good and kl.mean() <= most_mean and same.mean() >= least_same
    checks.that(good, f"{name}, cost of rounded activations in {len(kl)} rows: " + "; ".join(text))


# --- tiny-a: budget 16, ratio 4 -------------------------------------------------------------------

TINY = dict(used=4, budget=16, ratio=4)
TINY_BOUND = 19
TINY_TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "Q2_0"]


def tiny_sequences(count, length):
    """Random ids with end-of-text and repetitions inside."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        ids = rng.integers(0, 512, length)
        ids[rng.integers(0, length, 3)] = 2
        at = length // 2
        ids[at:at + 12] = ids[at - 12:at]
        yield ids


def golden_sequences(checks, run, model):
    """Against each other and against HF: up to the dense bound all rules select the same."""
    golden = peer.read_safetensors(peer.GOLDEN / "tiny-a/golden.safetensors")
    ours, reference, hf, ruled = [], [], [], []
    for i in range(5):
        ids = golden[f"ids.{i}"]
        theirs, trace = run.llama_logits(model, ids, tensors=DECISIONS)
        n = peer.first_close_call(trace, len(ids), **TINY)
        within = min(TINY_BOUND, n)
        ours.append((run.strata_logits(model, ids), theirs, within))
        reference.append((run.strata_logits(model, ids, "--reference"), theirs, within))
        hf.append((golden[f"logits.{i}"], theirs, within))
        ruled.append((run.strata_logits(model, ids, "--cell-width"), theirs, n))
    strictly(checks, "tiny-a, llama.cpp and Strata", ours, TINY_BOUND)
    strictly(checks, "tiny-a, llama.cpp and Strata's reference", reference, TINY_BOUND)
    strictly(checks, "tiny-a, llama.cpp and HF", hf, TINY_BOUND)
    strictly(checks, "tiny-a, golden sequences, --cell-width", ruled, TINY_BOUND, least_beyond=60)
    rule = max(largest(a[TINY_BOUND:], b[TINY_BOUND:]) for a, b, _ in ours)
    checks.that(rule > 0.1, f"tiny-a: HF's rule would differ by up to {rule:.2f} beyond the bound")


def random_sequences(checks, run, model):
    fast, reference = [], []
    for i, ids in enumerate(tiny_sequences(10, 200)):
        batch = (512, 50, 1)[i % 3]
        theirs, trace = run.llama_logits(model, ids, batch=batch, tensors=DECISIONS)
        n = peer.first_close_call(trace, len(ids), **TINY)
        fast.append((run.strata_logits(model, ids, "--cell-width"), theirs, n))
        if i < 4:
            reference.append((run.strata_logits(model, ids, "--cell-width", "--reference"), theirs, n))
    strictly(checks, "tiny-a, random ids, --cell-width", fast, TINY_BOUND, least_beyond=600)
    strictly(checks, "tiny-a, random ids, --cell-width --reference", reference, TINY_BOUND,
             least_beyond=100)


def tiny_types(checks, run, checkpoint):
    sequences = list(tiny_sequences(5, 64))
    for kind in TINY_TYPES:
        model = run.convert(checkpoint, f"tiny-{kind}.gguf", "--type", kind)
        wide = run.widened(model)
        strict, loose = [], []
        for ids in sequences:
            exact, trace = run.llama_logits(wide, ids, tensors=DECISIONS)
            n = peer.first_close_call(trace, len(ids), **TINY)
            strict.append((run.strata_logits(model, ids, "--cell-width", "--reference"), exact, n))
            loose.append((run.strata_logits(model, ids, "--cell-width"),
                          run.llama_logits(model, ids)[0], exact))
        strictly(checks, f"tiny-a as {kind}", strict, TINY_BOUND, least_beyond=60)
        loosely(checks, f"tiny-a as {kind}", loose, 0.03, 0.7)


# --- the demo model -------------------------------------------------------------------------------


def demo_for_llama(run, values):
    """The demo model as this llama.cpp can load it: without the draft block, and with n-gram
    embeddings of the model's width, which are the first halves of its table's rows."""
    ggml, file = run.ggml(), gguf_file.read(peer.DEMO)
    layers = values["block_count"] - values["nextn_predict_layers"]
    for name in [name for name in file.tensors if name.startswith(f"blk.{layers}.")]:
        del file.tensors[name]
    file.set("qwen4exp.block_count", "u32", layers)
    file.set("qwen4exp.nextn_predict_layers", "u32", 0)
    file.set("qwen4exp.attention.compress_ratios", "i32", values["attention.compress_ratios"][:layers])
    row = values["embedding_length_per_layer_input"] // 2
    file.set("qwen4exp.embedding_length_per_layer_input", "u32", row)
    for name in ("per_layer_token_embd.weight", "blk.1.ple_key.weight", "blk.1.ple_value.weight"):
        tensor = file.tensors[name]
        pieces = ggml.decode(tensor).reshape(-1, 2, row)
        file.tensors[name] = gguf_file.Tensor([tensor.dims[0] // 2, *tensor.dims[1:]], gguf_file.F32,
                                              np.ascontiguousarray(pieces[:, 0]))
    out = run.folder / "demo.gguf"
    file.write(out)
    return out


def demo_model(checks, run, prompts=6):
    values = json.loads(subprocess.run([peer.STRATA, "inspect", "--json", peer.DEMO], check=True,
                                       capture_output=True, text=True).stdout)["metadata"]
    values = {key.removeprefix("qwen4exp."): entry["value"] for key, entry in values.items()}
    shape = dict(used=values["expert_used_count"], budget=values["attention.indexer.top_k"],
                 ratio=max(values["attention.compress_ratios"]))
    bound = shape["budget"] + shape["ratio"] - 1
    model = demo_for_llama(run, values)
    wide = run.widened(model)
    strict, loose, shortest = [], [], []
    for text in demo_texts(prompts):
        ids = run.strata_tokens(peer.DEMO, [text.encode()], "all")[0]
        exact, trace = run.llama_logits(wide, ids, tensors=DECISIONS)
        n = peer.first_close_call(trace, len(ids), **shape)
        strict.append((run.strata_logits(wide, ids, "--cell-width"), exact, n))
        loose.append((run.strata_logits(model, ids, "--cell-width"), run.llama_logits(model, ids)[0], exact))
        shortest = ids[:40]
    strictly(checks, "demo model as F32", strict, bound, least_beyond=50)
    exact, trace = run.llama_logits(wide, shortest, tensors=DECISIONS)
    n = peer.first_close_call(trace, len(shortest), **shape)
    strictly(checks, "demo model", [(run.strata_logits(model, shortest, "--reference"), exact, n)], bound)
    loosely(checks, "demo model", loose, 2e-3, 0.95)


def demo_texts(count):
    """Prompts with their answers, the longest of each category."""
    longest = {}
    for line in (peer.GOLDEN / "demo-eval.jsonl").read_text().splitlines():
        item = json.loads(line)
        text = item["prompt"] + item["output"]
        if len(text) > len(longest.get(item["category"], "")):
            longest[item["category"]] = text
    return sorted(longest.values(), key=len, reverse=True)[:count]


# --- the production width -------------------------------------------------------------------------

FULL = dict(budget=2048, ratio=4)
SMALL = ["--experts", "16", "--vocabulary", "2048"]
# Mixes of `strata synth`, some with formats that no mix has.
MIXES = {"f32": [], "f16": [], "bf16": [], "q4_k": [], "q2_0": [],
         "iq2_xs": ["--set", "attention=Q3_K", "--set", "shared=IQ2_S"],
         "iq3_s": ["--set", "attention=IQ3_XXS", "--set", "shared=IQ2_XXS"]}
FULL_BOUND = 2051
REFERENCE_ROWS = 4  # a row takes seconds


def full_width(checks, run):
    rng = np.random.default_rng(3)
    for mix, options in MIXES.items():
        model = run.synth(f"{mix}.gguf", "--type", mix, *SMALL, *options)
        wide = model if mix == "f32" else run.widened(model)
        ids = rng.integers(0, 2045, 64)
        exact, trace = run.llama_logits(wide, ids, threads=2, tensors=DECISIONS)
        n = peer.first_close_call(trace, len(ids), used=10, **FULL)
        ours = run.strata_logits(model, ids)
        if mix in ("f32", "f16", "bf16"):
            strictly(checks, f"full width, {mix}", [(ours, exact, n)], FULL_BOUND)
        few = run.strata_logits(model, ids[:REFERENCE_ROWS], "--reference")
        strictly(checks, f"full width, {mix}, --reference",
                 [(few, exact[:REFERENCE_ROWS], min(n, REFERENCE_ROWS))], FULL_BOUND)
        if mix != "f32":
            theirs = run.llama_logits(model, ids, threads=2)[0]
            loosely(checks, f"full width, {mix}", [(ours, theirs, exact)], 1e-3, 0.8)
            model.unlink()
        wide.unlink()


def beyond_the_bound(checks, run):
    """All experts are used, so only the choice of cells can hang on rounding; with this seed no
    n-gram gate does."""
    model = run.synth("long.gguf", "--type", "f32", "--experts", "4", "--vocabulary", "1024",
                      "--seed", "2")
    ids = np.random.default_rng(4).integers(0, 1021, 2200)
    start = time.monotonic()
    theirs, trace = run.llama_logits(model, ids, threads=2, tensors=DECISIONS)
    print(f"        llama.cpp read {len(ids)} tokens in {time.monotonic() - start:.0f} s", flush=True)
    ours = run.strata_logits(model, ids, "--cell-width")
    n = peer.first_close_call(trace, len(ids), used=4, **FULL)
    strictly(checks, "full width, a long prompt, --cell-width", [(ours, theirs, n)], FULL_BOUND,
             least_beyond=20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full-width", action="store_true")
    arguments = parser.parse_args()
    checks = peer.Checks()
    with tempfile.TemporaryDirectory() as folder:
        run = peer.Peer(folder)
        if arguments.full_width:
            full_width(checks, run)
            beyond_the_bound(checks, run)
        else:
            checkpoint = peer.copy_checkpoint(peer.GOLDEN / "tiny-a", pathlib.Path(folder) / "tiny-a")
            model = run.convert(checkpoint, "tiny.gguf")
            golden_sequences(checks, run, model)
            random_sequences(checks, run, model)
            tiny_types(checks, run, checkpoint)
            demo_model(checks, run)
    checks.end()


if __name__ == "__main__":
    main()

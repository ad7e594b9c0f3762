#!/usr/bin/env python3
"""Kullback-Leibler divergence of a model's predictions from a reference model's, on real prompts.

  compare_logits.py STRATA REFERENCE.gguf MODEL.gguf [MODEL.gguf ...] [--prompts FILE] [--limit N]

Prompts are lines of JSON with `prompt` and `output` (tests/golden/demo-eval.jsonl). For every model
it prints the mean KL over answer positions and over prompt positions in nats, and how often both
models' likeliest token is the same over answer positions. Needs NumPy.
"""
import argparse, json, os, subprocess, tempfile
import numpy as np


def log_softmax(logits):
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def tokenize(strata, model, text, folder):
    path = os.path.join(folder, "text")
    with open(path, "w", newline="") as file:
        file.write(text)
    return json.loads(subprocess.run([strata, "tokenize", "-m", model, "-f", path], check=True,
                                     capture_output=True, text=True).stdout)


def log_probabilities(strata, model, ids, folder, options=()):
    ids_path, out = os.path.join(folder, "ids.json"), os.path.join(folder, "logits")
    with open(ids_path, "w") as file:
        json.dump(ids, file)
    subprocess.run([strata, "logits", "-m", model, "--ids", ids_path, "-o", out, *options],
                   check=True)
    return log_softmax(np.fromfile(out, np.float32).reshape(len(ids), -1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("strata")
    parser.add_argument("reference")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--prompts", default=os.path.join(os.path.dirname(__file__),
                                                          "../tests/golden/demo-eval.jsonl"))
    parser.add_argument("--limit", type=int, default=7, help="prompts of each category")
    parser.add_argument("--slow-reference", action="store_true",
                        help="the reference model by the float32 reference forward")
    parser.add_argument("--longest", type=int, default=900, help="leave longer prompts out (tokens)")
    arguments = parser.parse_args()
    counts, answer, prompt, same = {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as folder, open(arguments.prompts) as lines:
        for item in map(json.loads, lines):
            category = item["category"]
            if counts.get(category, 0) >= arguments.limit:
                continue
            ids = tokenize(arguments.strata, arguments.reference, item["prompt"], folder)
            if len(ids) > arguments.longest:
                continue
            counts[category] = counts.get(category, 0) + 1
            first = len(ids) - 1  # predicts the answer's first token
            ids += tokenize(arguments.strata, arguments.reference, item["output"], folder)
            p = log_probabilities(arguments.strata, arguments.reference, ids, folder,
                                  ["--reference"] if arguments.slow_reference else [])
            for model in arguments.models:
                q = log_probabilities(arguments.strata, model, ids, folder)
                kl = (np.exp(p) * (p - q)).sum(axis=1)
                answer.setdefault(model, []).extend(kl[first:])
                prompt.setdefault(model, []).extend(kl[:first])
                same.setdefault(model, []).extend((p.argmax(1) == q.argmax(1))[first:])
    print("| model | MB | KL answers | KL prompts | same likeliest token |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for model in arguments.models:
        print(f"| {os.path.basename(model)} | {os.path.getsize(model) / 1e6:.2f} "
              f"| {np.mean(answer[model]):.5f} | {np.mean(prompt[model]):.5f} | {np.mean(same[model]):.4f} |")


if __name__ == "__main__":
    main()

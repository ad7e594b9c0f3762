#!/usr/bin/env python3
"""Checks that folders are layers: a file of src/X includes only from X and the layers before it.

usage: check_layers.py [ROOT]     prints every line that breaks the rule; exit 1 if there is one
"""

import pathlib
import re
import sys

import tree

# The order of docs/architecture.md. A layer knows itself and those before it.
LAYERS = ["base", "telemetry", "terminal", "gguf", "quant", "tokenizer", "ple", "compute", "model",
          "constrain", "engine", "chat", "server", "cli"]
RANK = {name: rank for rank, name in enumerate(LAYERS)}
# What a folder must not know although it stands below: chat works without an engine, and the
# engine's rooms are entered by its front door.
FORBIDDEN = {"chat": {"engine", "model", "compute"}, "server": {"model", "compute"}}
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def complaint(layer, bracket, name):
    """What is wrong with an include in a file of `layer`, or None."""
    target = name.split("/")[0]
    if target not in RANK or "/" not in name:
        if bracket == '"':
            return f'"{name}" is not written from src/ (as "{layer}/...")'
        return None
    if RANK[target] > RANK[layer]:
        return f"{layer} comes before {target} and must not include {name}"
    if target in FORBIDDEN.get(layer, ()):
        return f"{layer} must not know {target}: {name}"
    return None


def check(root):
    problems = []
    for path in tree.files(root):
        if path.parts[0] != "src" or path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        layer = path.parts[1]
        if layer not in RANK:
            problems.append(f"{path}:1: src/{layer} is no layer of scripts/check_layers.py")
            continue
        text = (root / path).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            wrong = match and complaint(layer, *match.groups())
            if wrong:
                problems.append(f"{path}:{number}: {wrong}")
    return problems


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    problems = check(root.resolve())
    print("\n".join(problems) if problems else "layers: every include points the right way")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks what a compiler does not: sizes of files, paths of one machine, notes left behind.

usage: check_tree.py [ROOT]     prints every place that breaks a rule; exit 1 if there is one
"""

import pathlib
import re
import sys

import tree

MAX_LINES = 900  # of a file written by hand: a longer one has two subjects
MAX_BYTES = 8_000_000  # of any file but the demo model's
BIG_FILES = pathlib.PurePath("models/demo")
CODE = {".h", ".cpp", ".cu", ".cuh", ".py", ".mjs", ".js", ".ts", ".tsx", ".css", ".sh", ".cmake"}
TEXT = CODE | {".md", ".txt", ".yml", ".toml", ""}
TEXT_NAMES = {"CMakePresets.json", "package.json"}

RULES = [
    (re.compile(r"(?<![\w.])/(?:work|root|farm)/|/tmp/(?:s|bash\w*)/"), "a path of one machine"),
    (re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b"), "a note left behind: do it, or tell README.md"),
]


def is_text(path):
    return path.name in TEXT_NAMES or path.suffix in TEXT


def check_text(path, text):
    lines = text.splitlines()
    if path.suffix in CODE and "generated" not in path.stem and len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines, more than {MAX_LINES}; split it by subject"
    if path.suffix in CODE and text and not text.endswith("\n"):
        yield f"{path}:{len(lines)}: no line break at the end"
    for number, line in enumerate(lines, 1):
        for pattern, sentence in RULES:
            if pattern.search(line):
                yield f"{path}:{number}: {sentence}: {line.strip()[:100]}"


def check(root):
    problems = []
    for path in tree.files(root):
        size = (root / path).stat().st_size
        if size > MAX_BYTES and not path.is_relative_to(BIG_FILES):
            problems.append(f"{path}: {size} bytes, more than {MAX_BYTES}; only {BIG_FILES} may")
        elif is_text(path):
            try:
                text = (root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                problems.append(f"{path}: not UTF-8")
                continue
            problems.extend(check_text(path, text))
    return problems


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    problems = check(root.resolve())
    print("\n".join(problems) if problems else "tree: sizes, paths and words are in order")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

"""The strings on which tokenizers are compared: the same for the same seed.

    tokenizer_strings.texts(count, file, seed)     `count` distinct strings for a tokenizer.json
    tokenizer_strings.byte_strings(count, seed)    bytes that are mostly not UTF-8

as a program: tokenizer_strings.py COUNT FILE.json     prints such strings as JSON

Only characters that Unicode 15.0 assigns are used, and a few that no version will assign: Strata's
tables are Debian's, which are of that version, and the class of a character assigned later depends on
the version each program was built with (it is a symbol in Strata).

For vocabularies that ask for NFC, characters that take part in it and are younger than Unicode 9.0
are left out, too: HF's tokenizers normalise by the tables of 9.0, to which these characters combine
with nothing. Strata's NFC is that of 15.0 (tests/tokenizer has the conformance test).
"""

import importlib.util
import itertools
import json
import pathlib
import random
import re
import sys
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNICODE = pathlib.Path("/usr/share/unicode")  # Debian's package unicode-data


def golden_strings():
    """The generators of tests/golden/demo-tokenizer/make_strings.py, which are not repeated here."""
    path = ROOT / "tests" / "golden" / "demo-tokenizer" / "make_strings.py"
    spec = importlib.util.spec_from_file_location("make_strings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.known = known
    return module


def ranges_of(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*(\S+)", line)
        if match:
            first, last = match.group(1), match.group(2) or match.group(1)
            yield int(first, 16), int(last, 16), match.group(3)


def assigned_characters():
    first = (UNICODE / "DerivedAge.txt").read_text(encoding="utf-8").splitlines()[0]
    if first != "# DerivedAge-15.0.0.txt":
        raise SystemExit(f"tokenizer_strings: needs Unicode 15.0.0 in {UNICODE}, found '{first}'")
    codes = set()
    for low, high, age in ranges_of(UNICODE / "DerivedAge.txt"):
        codes.update(range(low, high + 1))
    return codes - set(range(0xD800, 0xE000))


def young_in_nfc():
    """Characters younger than Unicode 9.0 that are in, or come from, a canonical decomposition, or
    that have a combining class."""
    young = {c for low, high, age in ranges_of(UNICODE / "DerivedAge.txt")
             for c in range(low, high + 1) if tuple(map(int, age.split("."))) > (9, 0)}
    found = set()
    for line in (UNICODE / "UnicodeData.txt").read_text(encoding="utf-8").splitlines():
        code, _, _, combining, _, decomposition = line.split(";")[:6]
        if combining != "0":
            found.add(int(code, 16))
        if decomposition and not decomposition.startswith("<"):
            found.update(int(c, 16) for c in [code, *decomposition.split()])
    return {chr(c) for c in found & young}


ASSIGNED = assigned_characters()
NONCHARACTERS = [0xFDD0, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF]


def known(code):
    return code in ASSIGNED


def scripts():
    found = {}
    for low, high, script in ranges_of(UNICODE / "Scripts.txt"):
        found.setdefault(script, []).extend(chr(c) for c in range(low, high + 1) if known(c))
    return found


SCRIPTS = scripts()


def emoji_sequences():
    for name in ("emoji-sequences.txt", "emoji-zwj-sequences.txt", "emoji-test.txt"):
        path = UNICODE / "emoji" / name
        for line in path.read_text(encoding="utf-8").splitlines():
            codes = line.split("#")[0].split(";")[0].strip()
            if codes and ".." not in codes:
                yield "".join(chr(int(code, 16)) for code in codes.split())


class Maker:
    def __init__(self, seed, literals):
        self.random = random.Random(seed)
        self.literals = literals
        self.golden = golden_strings()
        self.golden.RANDOM = self.random
        self.emoji = [e for e in dict.fromkeys(emoji_sequences()) if all(known(ord(c)) for c in e)]
        self.marks = SCRIPTS["Inherited"]
        self.spaces = self.golden.SPACES
        self.decomposable = [chr(c) for c in sorted(ASSIGNED)
                             if unicodedata.normalize("NFD", chr(c)) != chr(c)]
        self.words = " ".join(self.golden.PROSE + self.golden.CODE).split(" ")

    def some(self, characters, low, high):
        return "".join(self.random.choice(characters)
                       for _ in range(self.random.randint(low, high)))

    def every_script(self):
        for letters in SCRIPTS.values():
            yield self.some(letters, 1, 20)
            yield " ".join(self.some(letters, 1, 6) for _ in range(4))
            yield self.some(letters + self.marks[:60] + list(" .,1'sA"), 8, 30)

    def emoji_texts(self):
        for e in self.random.sample(self.emoji, 150):
            yield self.random.choice(["{0}", " {0}{0}", "a{0}b", "{0}\n", "1{0} ", "{0}'s"]).format(e)

    def normal_forms(self):
        """What NFC composes, reorders, or must leave alone."""
        for _ in range(150):
            text = self.some(self.decomposable, 1, 5) + self.some(self.marks, 0, 3)
            yield unicodedata.normalize(self.random.choice(["NFD", "NFC"]), text)
            yield self.some(list("aeiouAEnKs \u1100\u1161\u11a8\uac00\u0f71\u0f72\u0f74") + self.marks, 2, 14)

    def cases(self):
        """Upper, lower, title and caseless letters in any order, with contractions."""
        parts = list("abZQé\u01c5\u02b0ªßıſ文アا\u0301\u093f'’1²\n/ _-") + ["'S", "'ll", "'LL", "'re", "'d",
                                                                      "I", "Mc", "XML", "http"]
        for _ in range(350):
            yield self.some(parts, 2, 16)

    def white_space(self):
        parts = self.spaces + [" ", " ", " ", "\t", "\n", "\n", "\r\n"] * 3 + list("a1!/")
        for _ in range(200):
            yield self.some(parts, 2, 24)

    def code(self):
        for _ in range(200):
            words = [self.random.choice(self.words) for _ in range(self.random.randint(1, 12))]
            yield self.random.choice([" ", "  ", "\n", "\n    ", "\t", "", "_", "/", "();\n"]).join(words)

    def bidirectional(self):
        mixed = (SCRIPTS["Hebrew"] + SCRIPTS["Arabic"] + self.golden.BIDI * 12 +
                 list(" abc123.,()'") * 5)
        for _ in range(150):
            yield self.some(mixed, 2, 24)

    def numbers(self):
        digits = [chr(c) for c in sorted(ASSIGNED) if unicodedata.category(chr(c))[0] == "N"]
        for _ in range(150):
            yield self.some(digits + list("0123456789") * 40 + list(".,:/- a'"), 1, 20)

    def specials(self):
        """Glued, nested, split, changed."""
        chosen = self.random.sample(self.literals, min(len(self.literals), 20))
        yield from self.golden.specials(chosen)
        for _ in range(150):
            a, b = self.random.choice(chosen), self.random.choice(chosen)
            cut = self.random.randrange(1, len(a))
            yield a + b
            yield a[:cut] + b + a[cut:]
            yield a[:cut] + self.some(self.marks + [" ", "\n", "\u200b"], 1, 1) + a[cut:]
            yield self.some(self.marks, 1, 2) + a + self.some(self.marks, 1, 2)

    def anything(self):
        everything = sorted(ASSIGNED)
        for _ in range(300):
            yield "".join(chr(c) for c in self.random.choices(everything, k=self.random.randint(1, 16)))
            yield chr(self.random.choice(NONCHARACTERS)) + self.some("ab 1!", 1, 4)

    def make(self):
        golden = self.golden
        fixed = (golden.scripts, golden.prose, golden.spaces, golden.contractions, golden.numbers,
                 golden.emoji_and_marks, golden.random_unicode, golden.long_runs)
        yield from itertools.chain([""], *(generator() for generator in fixed))
        while True:
            for generator in (self.every_script, self.emoji_texts, self.normal_forms, self.cases,
                              self.white_space, self.code, self.bidirectional, self.numbers,
                              self.specials, self.anything):
                yield from generator()


def texts(count, path, seed=1):
    document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    allowed = {chr(c) for c in ASSIGNED.union(NONCHARACTERS)}
    if document.get("normalizer"):
        allowed -= young_in_nfc()
    found = {}
    for text in Maker(seed, [token["content"] for token in document["added_tokens"]]).make():
        if allowed.issuperset(text):
            found.setdefault(text)
        if len(found) == count:
            return list(found)
    raise AssertionError("the generators end")


def byte_strings(count, seed=1):
    maker = Maker(seed, ["<s>"])
    parts = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\x80",
             b"\xf4\x90\x80\x80", b"\xe2\x82\xac", b" ", b"\n", b"\r\n", b"a", b"The", b"'s", b"12",
             b"!", b"/", b"\xcc\x81", b"e", b"\xf0\x9f\x98\x80"]
    found = {}
    while len(found) < count:
        if maker.random.random() < 0.3:
            found.setdefault(maker.random.randbytes(maker.random.randint(1, 16)))
        else:
            found.setdefault(b"".join(maker.random.choices(parts, k=maker.random.randint(1, 14))))
    return list(found)


if __name__ == "__main__":
    json.dump(texts(int(sys.argv[1]), sys.argv[2]), sys.stdout)

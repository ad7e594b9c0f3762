#!/usr/bin/env python3
"""Writes strings.json beside it: texts with the ids that HF's `tokenizers` gives for them.

usage: python3 make_strings.py          (needs: pip install tokenizers)

{"tokenizers": version,
 "strings": [[text, all, user_defined, none], ...],
 "utf8": [[bytes in hex, text with U+FFFD], ...]}

`all` are the ids with every added token matched, `user_defined` those with the special ones
(control tokens) taken as text, `none` those of a tokenizer without added tokens; null stands for
"as the column before". Oracle of the second part is Python's decoder with errors="replace".

Characters that Unicode 14 does not know are avoided, apart from ones that no version has assigned:
what class they have depends on the version of Unicode that the tokenizers package was built with.
"""

import itertools
import json
import pathlib
import random
import unicodedata

import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
RANDOM = random.Random(20260101)

SCRIPTS = {
    "latin": (0x41, 0x24F), "ipa": (0x250, 0x2AF), "greek": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x52F), "armenian": (0x531, 0x58A), "hebrew": (0x591, 0x5F4),
    "arabic": (0x600, 0x6FF), "syriac": (0x700, 0x74F), "thaana": (0x780, 0x7B1),
    "nko": (0x7C0, 0x7FA), "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FE),
    "gurmukhi": (0xA01, 0xA76), "gujarati": (0xA81, 0xAFF), "oriya": (0xB01, 0xB77),
    "tamil": (0xB82, 0xBFA), "telugu": (0xC00, 0xC7F), "kannada": (0xC80, 0xCF2),
    "malayalam": (0xD00, 0xD7F), "sinhala": (0xD81, 0xDF4), "thai": (0xE01, 0xE5B),
    "lao": (0xE81, 0xEDF), "tibetan": (0xF00, 0xFDA), "myanmar": (0x1000, 0x109F),
    "georgian": (0x10A0, 0x10FF), "hangul jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x139F),
    "cherokee": (0x13A0, 0x13FD), "canadian": (0x1400, 0x167F), "ogham": (0x1680, 0x169C),
    "runic": (0x16A0, 0x16F8), "khmer": (0x1780, 0x17F9), "mongolian": (0x1800, 0x18AA),
    "balinese": (0x1B00, 0x1B7E), "greek extended": (0x1F00, 0x1FFE),
    "punctuation": (0x2000, 0x206F), "superscripts": (0x2070, 0x209C),
    "currency": (0x20A0, 0x20C0), "letterlike": (0x2100, 0x218B), "arrows": (0x2190, 0x21FF),
    "mathematical": (0x2200, 0x22FF), "technical": (0x2300, 0x23FF),
    "enclosed": (0x2460, 0x24FF), "box drawing": (0x2500, 0x259F), "symbols": (0x2600, 0x27BF),
    "braille": (0x2800, 0x28FF), "glagolitic": (0x2C00, 0x2C5F), "coptic": (0x2C80, 0x2CFF),
    "cjk punctuation": (0x3000, 0x303F), "hiragana": (0x3041, 0x309F),
    "katakana": (0x30A0, 0x30FF), "bopomofo": (0x3105, 0x312F), "cjk": (0x4E00, 0x9FFC),
    "yi": (0xA000, 0xA4C6), "vai": (0xA500, 0xA62B), "hangul": (0xAC00, 0xD7A3),
    "private": (0xE000, 0xE0FF), "arabic forms": (0xFE70, 0xFEFC),
    "half and full width": (0xFF01, 0xFFEE), "linear b": (0x10000, 0x100FA),
    "gothic": (0x10330, 0x1034A), "brahmi": (0x11000, 0x11075), "cuneiform": (0x12000, 0x12399),
    "hieroglyphs": (0x13000, 0x1342E), "musical": (0x1D100, 0x1D1DD),
    "mathematical letters": (0x1D400, 0x1D7FF), "adlam": (0x1E900, 0x1E95F),
    "mahjong": (0x1F000, 0x1F02B), "emoji": (0x1F300, 0x1F64F), "emoji 2": (0x1F680, 0x1F6C5),
    "emoji 3": (0x1F900, 0x1F9FF), "cjk b": (0x20000, 0x2A6DD), "tags": (0xE0020, 0xE007F),
    "variation": (0xE0100, 0xE01EF),
}
UNASSIGNED = [0x378, 0x530, 0xFFFF, 0x1FFFE, 0xE0080, 0x10FFFF]
SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
                           0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]
# Neighbours of the spaces that are none.
NEAR_SPACES = [chr(c) for c in (0, 8, 14, 0x1C, 0x1F, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E,
                                0x2060, 0xFEFF)]
PROSE = """The quick brown fox doesn't jump over 1,234 lazy dogs; they'd rather sleep.
Once upon a time, there was a little girl who lived near the woods. She'll be 7 next Tuesday!
It's what it's: we're here, I'm sure, you've seen it, he'd say. O'Neil's can't-do attitude.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Voix ambiguë d'un cœur.
Съешь же ещё этих мягких французских булок, да выпей чаю. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.
いろはにほへと ちりぬるを。我能吞下玻璃而不伤身体。다람쥐 헌 쳇바퀴에 타고파.
نص حكيم له سر قاطع وذو شأن عظيم. דג סקרן שט בים מאוכזב ולפתע מצא לו חברה.
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। เป็นมนุษย์สุดประเสริฐเลิศคุณค่า
""".splitlines()
CODE = r"""
#include <vector>
int main(int argc, char** argv) { return argc > 1 ? 0x1F : -1; }  // done
def f(x: int = 3) -> str:\n    return f"{x!r:>10}"
	if (a[i] <= b[j] && !c) { a[i] ^= 1 << 7; }
for i in range(10):\n\tprint(i)\n\n\nclass A:\n    pass
SELECT * FROM t WHERE a <> 'it''s' AND b LIKE '%x%';
{"role": "user", "content": "h\u00e9llo\n", "n": [1, 2.5e-3, null]}
<div class="a">&nbsp;text</div><!-- comment -->
$ curl -sS https://example.org/a?b=c&d=%20 | jq '.[] | .id'
std::map<std::string, std::vector<int>>::const_iterator it;
## Title\r\n\r\n- item 1\r\n- item 2\r\n\r\n```python\r\nx = 1\r\n```\r\n
""".strip("\n").splitlines()
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "1️⃣", "🧑🏿‍🚀", "☠️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🤷‍♀️"]
MARKS = ["\u0301", "\u0308", "\u20dd", "\u0903", "\u0e31", "\u064b", "\u05b0", "\ufe0f", "\u3099"]
BIDI = ["\u200e", "\u200f", "\u202a", "\u202e", "\u202c", "\u2066", "\u2069"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]


def known(code):
    return unicodedata.category(chr(code)) not in ("Cn", "Cs")


def assigned(first, last):
    return [chr(c) for c in range(first, last + 1) if known(c)]


def some(characters, low, high):
    return "".join(RANDOM.choice(characters) for _ in range(RANDOM.randint(low, high)))


def scripts():
    for first, last in SCRIPTS.values():
        letters = assigned(first, last)
        for _ in range(5):
            yield some(letters, 1, 12)
        yield " ".join(some(letters, 1, 5) for _ in range(4))
        yield some(letters, 1, 4) + "," + some(letters, 1, 4) + " 12" + some(letters, 1, 3) + "\n"
        yield some(letters + MARKS + [" ", "a", "1", "."], 6, 20)


def prose():
    for line in PROSE + CODE:
        yield line
        yield line.upper()
        yield line.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")
        yield unicodedata.normalize("NFD", line)
        for _ in range(4):
            begin = RANDOM.randrange(len(line))
            yield line[begin : begin + RANDOM.randint(1, 40)]
    yield "\n".join(PROSE)
    yield "\r\n".join(CODE)


def spaces():
    for space in SPACES + NEAR_SPACES:
        for text in ("{0}", "{0}{0}", "a{0}b", "a{0}{0}b", " {0}b", "{0} b", "!{0}!", "1{0}2",
                     "a{0}", "{0}\n", "\n{0}a", "{0}'s", "\r\n{0}\r\n{0}x"):
            yield text.format(space)
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 127, 300):
        for space in (" ", "\t", "\n", "\r\n", "\u3000", "\u00a0"):
            yield space * count
            yield "x" + space * count + "y"
        yield "(" + " " * count + ")"
        yield "\n" * count + " " * count + "1"
    for length in (1, 2, 3):
        for run in itertools.product(" \t\r\n", repeat=length):
            yield "a" + "".join(run) + "b"
            yield "".join(run)
    for _ in range(250):
        yield some(SPACES + [" ", " ", "\n", "\r\n", "a", "!", "1", "\u00e9"], 3, 24)


def contractions():
    for c in CONTRACTIONS:
        forms = {"".join(x) for x in itertools.product(*((a, a.upper()) for a in c))}
        for form in sorted(forms):
            for text in ("{0}", "it{0}", "it{0}x", " {0}", "'{0}", "{0}{0}", "1{0} ", "\u2019" + "{0}",
                         "\n{0}", "é{0}é", "!{0}"):
                yield text.format(form)
    # Letters that fold to those of contractions, and ones that nearly are contractions.
    yield from ("'\u017f", "a'\u017fb", "'l", "'L ", "'r", "'rE", "'v", "'vE ", "'lLl", "'\u0130",
                "'e", "'", "''", "'''s", "'\n", "'\u0301s", "s'", "'s\u0301")


def numbers():
    for text in ("0", "42", "1234567890", "3.14159", "1e-9", "0xDEADBEEF", "v1.2.3", "١٢٣", "१२३",
                 "Ⅷ", "½", "x²", "①②", "1st 2nd", " 7", "  7", "７８", "𝟘𝟙", "10,000.00", "-5", "+5",
                 "5%", "a1b2", "1\u0301", "٣a", "〇一", "\U00010107", "2026-01-01T00:00:00Z"):
        for around in ("{0}", " {0}", "{0} ", "a{0}", "{0}a", "\n{0}\n", "({0})"):
            yield around.format(text)


def emoji_and_marks():
    for e in EMOJI:
        for text in ("{0}", "a{0}", " {0}", "{0}{0}", "{0} {0}\n", "{0}a", "1{0}1", "\t{0}\r\n"):
            yield text.format(e)
    for mark in MARKS:
        for text in ("{0}", "e{0}", " {0}", "{0}{0}e", "!{0}", "1{0}1", "\n{0}", "a {0}b", "{0}'s",
                     "\r{0}{0}", "." + "{0}" * 20):
            yield text.format(mark)
    for b in BIDI:
        for text in ("{0}", "a{0}b", "{0}אב{0} x", " {0}", "{0}1", "{0}\n", "!{0}"):
            yield text.format(b)
    for code in UNASSIGNED:
        for text in ("{0}", "a{0}b", " {0}", "1{0}", "{0}\n"):
            yield text.format(chr(code))
    for code in range(0x180):
        yield chr(code) + "a"
        yield "a" + chr(code) + " "
        yield " " + chr(code) + "1"


def specials(literals):
    for a in literals:
        for text in ("{0}", "{0}{0}", "a{0}b", " {0} ", "\n{0}\n", "  {0}", "it'{0}s", "x {0}'s",
                     "<{0}>", "{0}\u0301", "1{0}2", "<<{0}"):
            yield text.format(a)
        cut = RANDOM.randrange(1, len(a))
        yield a[:cut]
        yield a[cut:]
        yield a[:cut] + " " + a[cut:]
        yield a[:cut] + a + a[cut:]
        yield a.upper()
        yield a[:-1] + "x" + a[-1]
    parts = literals + ["user", "\n", "Hello, world!", " ", "<", "<|", "|>", "</", "think", "  ", "é",
                        "\r\n", "im_start", "12", "'s"]
    for _ in range(350):
        yield some(parts, 2, 10)
    yield ("<|im_start|>system\nYou are kind.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n"
           "<|im_start|>assistant\n<think>\nShort.\n</think>\n\nHello.<|im_end|>\n")


def random_unicode():
    everything = [c for c in range(0x30000) if known(c)]
    for _ in range(300):
        yield "".join(chr(RANDOM.choice(everything)) for _ in range(RANDOM.randint(1, 12)))
    ascii_all = [chr(c) for c in range(0x80)]
    for _ in range(300):
        yield some(ascii_all, 1, 40)
    mixed = list(" \n\r\t''..stredlvm19aé!<|>") + MARKS + ["\u3000", "文", "😀", "\u200d"]
    for _ in range(500):
        yield some(mixed, 2, 30)


def long_runs():
    for text in ("a", "ab", "the ", "!", "=-", " ", "\n", "é", "\u0301", "文", "😀", "haha", "aA",
                 "\r\n"):
        for length in (63, 64, 65, 66, 130, 700):
            yield (text * length)[:length]
    for characters in ("ab", "thean ", "etaoinshrdlu", "=!-"):
        yield some(characters, 600, 600)


def utf8_cases():
    yield from (bytes.fromhex(h) for h in (
        "", "61", "c3a9", "e282ac", "f09f9880",
        # Tables 3-8 to 3-11 of Unicode 15, chapter 3.
        "c080e080bff0818241", "eda080edbfbfedaf41", "f4919293ff4180bf42", "e180e2f09192f1bf41",
        "80", "bf", "c2", "e1", "e180", "f1", "f180", "f18080", "c0", "c1", "f5", "ff", "fe",
        "e0", "e09f80", "e0a0", "ed9fbf", "ed", "eda0", "f0", "f08f", "f090", "f48fbfbf", "f490",
        "c3c3a9", "e2e282ac", "f09f98f09f9880", "6180c2", "efbfbd", "efbbbf61",
    ))
    leads = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF,
             0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    for _ in range(300):
        yield bytes(RANDOM.choice(leads) for _ in range(RANDOM.randint(2, 12)))


def main():
    source = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))
    literals = [t["content"] for t in source["added_tokens"]]
    matched = tokenizers.Tokenizer.from_str(json.dumps(source))
    user_defined = tokenizers.Tokenizer.from_str(json.dumps(source))
    user_defined.encode_special_tokens = True
    plain = tokenizers.Tokenizer.from_str(json.dumps(source | {"added_tokens": []}))

    texts = dict.fromkeys(itertools.chain(
        [""], scripts(), prose(), spaces(), contractions(), numbers(), emoji_and_marks(),
        specials(literals), random_unicode(), long_runs()))
    lines = []
    for text in texts:
        all_ids, user_ids, no_ids = (
            t.encode(text, add_special_tokens=False).ids for t in (matched, user_defined, plain))
        row = [text, all_ids, None if user_ids == all_ids else user_ids,
               None if no_ids == user_ids else no_ids]
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    utf8 = [json.dumps([b.hex(), b.decode("utf-8", "replace")], ensure_ascii=False,
                       separators=(",", ":")) for b in dict.fromkeys(utf8_cases())]
    out = HERE / "strings.json"
    out.write_text(
        '{"tokenizers":"%s",\n"strings":[\n%s\n],\n"utf8":[\n%s\n]}\n'
        % (tokenizers.__version__, ",\n".join(lines), ",\n".join(utf8)), encoding="utf-8")
    print(f"{len(lines)} strings, {len(utf8)} byte strings, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()

"""Masks of constraints beside PyPI's llguidance or xgrammar, along documents that are valid under the
schemas of tests/constrain/json_schema_cases.json, with the demo model's vocabulary.

    masks.py llguidance|xgrammar [--schemas N] [--examples N]

At each place both say which tokens may follow. Every difference is explained by a document: what one
of them allows is written on to an end by that one, and PyPI's jsonschema judges the document. The run
fails if Strata allows a token that the other does not and the document is not valid, or if it does
not allow one whose document is valid, for a reason that is not in REASONS.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import subprocess

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("STRATA_BUILD", "build/release") / "constrain_masks"
CASES = ROOT / "tests" / "constrain" / "json_schema_cases.json"
TOKENIZER = ROOT / "tests" / "golden" / "demo-tokenizer" / "tokenizer.json"
WHITE_SPACE = r"( |\n[ \t]{0,32})?"  # what json_schema.h says
DOCUMENTS = 2  # of a schema
EACH_PLACE = 2  # tokens that are explained, each way
"""Why Strata does not allow a document that is valid; each is a decision of json_schema.h."""
REASONS = ("property order", "a name twice", "white space", "a number's notation", "an escape",
           "a format's corner")


def vocabulary():
    """The bytes of each token, b"" for added ones; the id of the end."""
    tokenizer = json.loads(TOKENIZER.read_text())
    alphabet = {}
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    for byte in range(256):
        alphabet[chr(byte) if byte in plain else chr(256 + sum(b not in plain for b in range(byte)))] = byte
    texts = {number: bytes(alphabet[c] for c in piece) for piece, number in tokenizer["model"]["vocab"].items()}
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    size = max([*texts, *added.values()]) + 1
    tokens = [texts.get(number, b"") for number in range(size)]
    for number in added.values():
        tokens[number] = b""
    return tokens, added["<|im_end|>"]


class Strata:
    def __init__(self, tokens, end):
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.write({"vocabulary": [text.hex() for text in tokens], "end": end})

    def write(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()

    def ask(self, **question):
        self.write(question)
        return json.loads(self.process.stdout.readline())


def pieces(text, by_length, dice):
    """The text in tokens, by chance long ones or short ones."""
    ids = []
    while text:
        fits = [by_length[text[:n]] for n in range(1, 17) if text[:n] in by_length and len(text) >= n]
        ids.append(fits[-1] if dice.random() < 0.7 else dice.choice(fits))
        text = text[len(TOKENS[ids[-1]]):]
    return ids


def bits(words):
    return [int(words[i:i + 16], 16) for i in range(0, len(words), 16)]


def members(mask, number_of_tokens):
    return {64 * w + b for w, word in enumerate(mask) for b in range(64)
            if word >> b & 1 and 64 * w + b < number_of_tokens}


def wrapped(schema):
    return json.dumps(schema if isinstance(schema, dict) else {"allOf": [schema]})


class Guidance:
    """llguidance. It is also what LLTokenizer wants of a tokenizer; tokens without text must not look
    alike."""

    def __init__(self, tokens, end):
        import llguidance

        self.library = llguidance
        self.eos_token_id, self.bos_token_id = end, None
        self.tokens = [text or b"\xff<%d>" % number for number, text in enumerate(tokens)]
        self.special_token_ids = [number for number, text in enumerate(tokens) if not text]
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self))

    def __call__(self, text):
        return pieces_of(text if isinstance(text, bytes) else text.encode())

    def begin(self, schema):
        """What follows a text under the schema, or why it is refused."""
        grammar = self.library.LLMatcher.grammar_from_json_schema(
            wrapped(schema), defaults={"whitespace_pattern": WHITE_SPACE})
        matcher = self.library.LLMatcher(self.tokenizer, grammar, log_level=0)
        return self.Text(matcher), matcher.get_error()

    class Text:
        def __init__(self, matcher):
            self.matcher = matcher

        def mask(self):
            raw = self.matcher.compute_bitmask()
            return [i for i, text in enumerate(TOKENS) if text and raw[i // 8] >> i % 8 & 1]

        def take(self, token):
            return self.matcher.consume_token(token)

        def ends(self):
            return self.matcher.is_accepting()

        def copy(self):
            return Guidance.Text(self.matcher.deep_copy())


class XGrammar:
    """xgrammar, as it reads schemas that are not meant to be strict."""

    def __init__(self, tokens, end):
        import xgrammar_alone  # noqa: F401
        import numpy
        import xgrammar

        self.library, self.numpy = xgrammar, numpy
        info = xgrammar.TokenizerInfo([text or b"<|%d|>" % number for number, text in enumerate(tokens)],
                                      stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info)

    def begin(self, schema):
        try:
            grammar = self.compiler.compile_json_schema(wrapped(schema), strict_mode=False,
                                                        max_whitespace_cnt=1)
        except RuntimeError as error:
            return None, str(error).strip()
        return self.Text(self.library.GrammarMatcher(grammar), self.numpy), ""

    class Text:
        def __init__(self, matcher, numpy):
            self.matcher, self.numpy = matcher, numpy

        def mask(self):
            words = self.numpy.full((1, (len(TOKENS) + 31) // 32), -1, dtype=self.numpy.int32)
            if not self.matcher.is_terminated():
                self.matcher.fill_next_token_bitmask(words)
            bits = self.numpy.unpackbits(words.view(self.numpy.uint8), bitorder="little")
            return [i for i, text in enumerate(TOKENS) if text and bits[i]]

        def take(self, token):
            return self.matcher.accept_token(token)

        def ends(self):
            return self.matcher.is_completed()

        def copy(self):
            return XGrammar.Text(self.matcher.fork(), self.numpy)


def written_on(start, ids, token):
    """The text that begins so, up to an end; None if none was found."""
    peer = start.copy()
    if not peer.take(token):
        return None
    text = b"".join(TOKENS[i] for i in [*ids, token])
    dice = random.Random(1)
    for _ in range(400):
        if peer.ends():
            return text
        allowed = peer.mask()
        if not allowed:
            return None
        closing = [BY_TEXT[t] for t in (b'"', b"}", b"]", b"0") if BY_TEXT[t] in allowed]
        chosen = closing[0] if closing and dice.randrange(4) else dice.choice(allowed)
        if not peer.take(chosen):
            return None
        text += TOKENS[chosen]
    return None


def judge(schema, text):
    """"valid", "invalid", "no JSON" or why there is no verdict."""
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        return "no JSON"
    if '"nullable"' in json.dumps(schema):
        return "not judged, jsonschema does not know nullable"
    if '"0000-' in json.dumps(value):
        return "not judged, Python has no year 0"
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    checker = validator.FORMAT_CHECKER
    try:
        return "valid" if validator(schema, format_checker=checker).is_valid(value) else "invalid"
    except re.error:
        return "not judged, Python cannot read the pattern"


def reason(strata, schema, text):
    """Why Strata does not allow a valid document: what must be written otherwise so that it does."""
    ids = pieces_of(text)
    whole = strata.ask(schema=schema, ids=ids)
    if whole.get("taken") == len(ids) and whole["ends"][-1]:
        return "allowed in other tokens"
    names = collections.Counter()

    def members_of(pairs):
        for name, _ in pairs:
            names[name, id(pairs)] += 1
        return dict(pairs)

    value = json.loads(text.decode(), object_pairs_hook=members_of)
    if any(count > 1 for count in names.values()):
        return "a name twice"

    if "Infinity" in json.dumps(value):
        return "a number's notation"

    def ordered(v, s):
        if isinstance(v, dict):
            known = list(s.get("properties", {})) if isinstance(s, dict) else []
            keys = sorted(v, key=lambda k: known.index(k) if k in known else len(known))
            sub = s.get("properties", {}) if isinstance(s, dict) else {}
            return {k: ordered(v[k], sub.get(k, {})) for k in keys}
        return [ordered(x, {}) for x in v] if isinstance(v, list) else v

    def taken(v):
        plain = pieces_of(json.dumps(v, separators=(",", ":"), ensure_ascii=False).encode())
        answer = strata.ask(schema=schema, ids=plain)
        return answer.get("taken") == len(plain) and answer["ends"][-1]

    if taken(value):
        if "\\" in text.decode():
            return "an escape"
        return "a number's notation" if re.search(rb"\d[.eE]|-0", text) else "white space"
    if taken(ordered(value, schema)):
        return "property order"
    if '"format"' in json.dumps(schema):  # seconds of 60, addresses in brackets, hosts without dots
        return "a format's corner"
    return "unexplained"


def strictness(theirs, token):
    """What the other does not allow although it is valid."""
    text = TOKENS[token]
    if len(theirs) == 1:
        return "it forces one spelling"
    if b"\x7f" in text:
        return "the byte 7F in strings"
    if b"\\" in text:
        return "an escape"
    if text.strip() != text:
        return "white space"
    if re.fullmatch(rb"[-+0-9.eE,\]}]+", text):
        return "a number's notation"
    return "something else"


def pieces_of(text):
    return [BY_TEXT[bytes([byte])] for byte in text]


def compare(strata, peer, name, case, found, examples, dice):
    schema = case["schema"]
    _, refusal = peer.begin(schema)
    ours = strata.ask(schema=schema, ids=[])
    if "error" in ours or refusal:
        who = ("both refuse" if "error" in ours and refusal else
               "Strata refuses the schema" if "error" in ours else f"{name} refuses the schema")
        found[who] += 1
        examples[who].append((schema, (ours.get("error") or refusal).splitlines()[0][:160]))
        return
    found["schemas compared"] += 1
    for document in case["valid"][:DOCUMENTS]:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        ids = pieces(text, BY_TEXT, dice)
        answer = strata.ask(schema=schema, ids=ids)
        other, _ = peer.begin(schema)
        for place, words in enumerate(answer["masks"]):
            mine, theirs = members(bits(words), len(TOKENS)), set(other.mask())
            found["masks"] += 1
            mine.discard(END)
            found["masks equal"] += mine == theirs
            for token in dice.sample(sorted(mine - theirs), min(EACH_PLACE, len(mine - theirs))):
                end = strata.ask(schema=schema, ids=ids[:place] + [token], finish=True)
                written = bytes.fromhex(end["text"])
                verdict = judge(schema, written) if end["whole"] else "no end found"
                if verdict == "valid":
                    verdict = f"valid, {name} minds: " + strictness(theirs, token)
                label = f"only Strata allows it; its document: {verdict}"
                found[label] += 1
                examples[label].append((schema, repr(TOKENS[token]) + " in " + written.decode(errors="replace")[:160]))
            for token in dice.sample(sorted(theirs - mine), min(EACH_PLACE, len(theirs - mine))):
                written = written_on(other, ids[:place], token)
                verdict = judge(schema, written) if written else "no end found"
                if verdict == "valid":
                    verdict = "valid, but for " + reason(strata, schema, written)
                label = f"only {name} allows it; its document: {verdict}"
                found[label] += 1
                examples[label].append((schema, repr(TOKENS[token]) + " in " + (written or b"").decode(errors="replace")[:160]))
            if place == len(ids) or not other.take(ids[place]):
                break
        else:
            continue
        if place < len(ids):
            found[f"{name} refuses the rest of a valid document"] += 1
            examples[f"{name} refuses the rest of a valid document"].append(
                (schema, f"{TOKENS[ids[place]]!r} behind {text[:160]!r}"))


def random_schema(dice, depth):
    """A schema as tools have them, and a document that is valid."""
    kind = dice.randrange(8 if depth else 6)
    if kind == 0:
        most = dice.choice([None, 5, 40])
        text = "".join(dice.choice("abc äé-_.") for _ in range(dice.randrange(5)))
        return {"type": "string"} | ({"maxLength": most} if most else {}), text
    if kind == 1:
        low = dice.randrange(-20, 20)
        return {"type": "integer", "minimum": low, "maximum": low + 30}, low + dice.randrange(30)
    if kind == 2:
        return {"type": "number"}, dice.choice([0, 1.5, -3, 1200])
    if kind == 3:
        words = dice.sample(["red", "green", "blue", "none", "all", 1, 2, None, True], 4)
        return {"enum": words}, dice.choice(words)
    if kind == 4:
        return {"type": ["boolean", "null"]}, dice.choice([True, False, None])
    if kind == 5:
        return {"type": "string", "pattern": "^[a-z]{2,4}-[0-9]+$"}, "ab-" + str(dice.randrange(1000))
    if kind == 6:
        schema, document = random_schema(dice, depth - 1)
        return {"type": "array", "items": schema, "maxItems": 4}, [document] * dice.randrange(4)
    properties, document = {}, {}
    for name in dice.sample(["id", "name", "path", "count", "kind", "note", "size"], 1 + dice.randrange(4)):
        properties[name], value = random_schema(dice, depth - 1)
        if dice.random() < 0.8:
            document[name] = value
    return {"type": "object", "properties": properties, "required": list(document),
            "additionalProperties": False}, document


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("peer", choices=["llguidance", "xgrammar"])
    arguments.add_argument("--schemas", type=int, default=1000)
    arguments.add_argument("--examples", type=int, default=0)
    given = arguments.parse_args()
    peer = {"llguidance": Guidance, "xgrammar": XGrammar}[given.peer](TOKENS, END)
    strata, dice = Strata(TOKENS, END), random.Random(1)
    found, examples = collections.Counter(), collections.defaultdict(list)
    cases = json.loads(CASES.read_text())
    for _ in range(120):
        schema, document = random_schema(dice, 3)
        cases.append({"schema": schema, "valid": [document]})
    cases = cases[:given.schemas]
    for case in cases:
        compare(strata, peer, given.peer, case, found, examples, dice)
    for label, count in sorted(found.items()):
        print(f"{count:7}  {label}")
        for schema, text in examples[label][:given.examples]:
            print(f"           {json.dumps(schema)[:200]}\n             {text}")
    wrong = [label for label in found if label == "only Strata allows it; its document: invalid"
             or label.startswith("only Strata") and label.endswith(("no JSON", "unexplained"))
             or "valid, but for " in label and not label.endswith(REASONS + ("allowed in other tokens",))]
    if wrong:
        raise SystemExit(f"masks: differences that must not be: {wrong}")
    if given.schemas > 400 and found["schemas compared"] < 300:
        raise SystemExit("masks: fewer than 300 schemas were compared")


TOKENS, END = vocabulary()
BY_TEXT = {text: number for number, text in enumerate(TOKENS) if text}

if __name__ == "__main__":
    main()

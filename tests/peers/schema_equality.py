#!/usr/bin/env python3
"""Gives the schemas and documents of tests/constrain/json_schema_cases.json to PyPI's jsonschema:
each verdict must be the list's (schema_equality.mjs compares the list with ajv and with Strata).

usage: schema_equality.py            the list, then numbers that no double holds: what Strata takes is
                                     valid for jsonschema, which reads numbers as Python does, and
                                     for exact decimals
       schema_equality.py --suite    JSON Schema's own test suite, which jsonschema's source package
                                     carries, by Strata: downloads that package with pip
"""

import decimal
import glob
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile

import jsonschema

VERSION = importlib.metadata.version("jsonschema")
ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / os.environ.get("STRATA_BUILD", "build/release")
DRAFTS = {
    "7": ("http://json-schema.org/draft-07/schema#", jsonschema.Draft7Validator),
    "2020-12": ("https://json-schema.org/draft/2020-12/schema", jsonschema.Draft202012Validator),
}

# Where Strata judges otherwise than the suite, and why: file, then a pattern for the test's names.
EXCEPTIONS = [
    (r"allOf|const|dependentRequired|dependencies|unevaluatedProperties", "",
     "valid documents whose properties do not come in the schema's order"),
    (r"^format$", "only an annotation", "formats are enforced"),
    (r"vocabulary", "", "vocabularies of other meta-schemas are not looked at"),
    (r"email", "", "no quoted local parts, no addresses in brackets"),
    (r"idn-hostname", "", "not all of IDNA's rules: which characters may meet, lengths in Punycode"),
    (r"ecmascript-regex|^regex$", "", "the format regex: brackets that do not match, escapes"),
]
INVALID_ACCEPTED = re.compile(r"idn-hostname|ecmascript-regex|^regex$")  # and only there


def verdicts(rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run([BUILD / "constrain_verdicts"], input=lines.encode(),
                          stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def compare_list():
    cases = json.loads((ROOT / "tests/constrain/json_schema_cases.json").read_text())
    differences = judged = 0
    for case in cases:
        if case.get("peers") or not case["valid"] + case["invalid"]:
            continue
        schema = case["schema"]
        named = schema.get("$schema") if isinstance(schema, dict) else None
        for draft in case.get("drafts", ["7", "2020-12"]):
            uri, validator = DRAFTS[draft]
            if named not in (None, uri):
                continue
            judge = validator(schema)
            for expected in ("valid", "invalid"):
                for document in case[expected]:
                    judged += 1
                    if judge.is_valid(document) != (expected == "valid"):
                        differences += 1
                        print("DIFFERENT:", draft, json.dumps(schema), json.dumps(document))
    print(f"{judged} verdicts of jsonschema {VERSION}, {differences} differences")
    return differences


def suite(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                    "jsonschema", "--dest", folder, f"jsonschema=={VERSION}"],
                   check=True)
    with tarfile.open(glob.glob(f"{folder}/*.tar.gz")[0]) as package:
        package.extractall(folder, filter="data")
    tests = glob.glob(f"{folder}/*/json/tests")[0]
    for draft, (uri, _) in DRAFTS.items():
        for path in sorted(pathlib.Path(tests, f"draft{draft}").glob("**/*.json")):
            optional = "optional" in path.parts
            if optional and "format" not in path.parts:
                continue
            for group in json.loads(path.read_text()):
                schema = group["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": uri, **schema}
                yield path.stem, group["description"], schema, group["tests"]


def compare_suite():
    with tempfile.TemporaryDirectory() as folder:
        groups = list(suite(folder))
    answers = verdicts([{"schema": schema, "texts": [json.dumps(test["data"]) for test in tests]}
                        for _, _, schema, tests in groups])
    refused = judged = excepted = differences = 0
    for (stem, group, schema, tests), answer in zip(groups, answers):
        if "error" in answer:
            refused += 1
            continue
        for test, accepted in zip(tests, answer["verdicts"]):
            judged += 1
            if accepted == test["valid"]:
                continue
            name = f"{group}: {test['description']}"
            known = any(re.search(file, stem) and re.search(what, name)
                        for file, what, _ in EXCEPTIONS)
            if known and (not accepted or INVALID_ACCEPTED.search(stem)):
                excepted += 1
                continue
            differences += 1
            print("DIFFERENT:", stem, name, json.dumps(schema), json.dumps(test["data"]))
    print(f"suite: {len(groups)} schemas, {refused} refused by name, {judged} verdicts, "
          f"{excepted} differ for a reason listed, {differences} without one")
    return differences


def exact_validator():
    """Numbers with a point or an exponent are decimals, not doubles."""
    def is_number(_, value):
        return isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool)

    def is_integer(checker, value):
        return is_number(checker, value) and value == int(value)

    base = jsonschema.Draft202012Validator
    types = base.TYPE_CHECKER.redefine_many({"number": is_number, "integer": is_integer})
    return jsonschema.validators.extend(base, type_checker=types)


# Written so that doubles hold them, round them to even, and leave them out.
NUMBERS = ["0", "1", "-1", "2.0", "0.1", "0.1000000000000000000001", "1e2", "100", "1e22", "1e23",
           "100000000000000000000000", "99999999999999991611392", "1e50", "1" + "0" * 50,
           "100000000000000007629769841091887003294964970946560", "9007199254740992",
           "9007199254740993", "9007199254740993.0", "9007199254740994", "9223372036854775808",
           "-9223372036854775809", "18446744073709551615", "18446744073709551616",
           "18446744073709551617", "18446744073709551616.5", "-1e20", "123456789012345678901234567890",
           "0.30000000000000004", "0.99999999999999999999", "1.00000000000000000001", "5e-324",
           "1e-400", "1.7976931348623157e308", "2" + "0" * 308]


def plain(text):
    """The number without an exponent."""
    return format(decimal.Decimal(text), "f")


def neighbours(text):
    number = plain(text)
    yield number
    if "." not in number:
        yield from (str(int(number) + step) for step in (-1, 1, 2))
        yield number + ".0"
        yield number + ".00000000000000000001"
    near = float(text)
    if abs(near) < 1e300:
        for other in (near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf)):
            if abs(other) > 1e-20 or other == 0:
                yield plain(repr(other))


def number_schemas(source):
    bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
    for number in NUMBERS:
        yield [number], f'{{"const": {number}}}'
        yield [number], f'{{"not": {{"const": {number}}}, "type": "number"}}'
        for bound, kind in itertools.product(bounds, ['"number"', '"integer"']):
            yield [number], f'{{"{bound}": {number}, "type": {kind}}}'
            yield [number], f'{{"not": {{"{bound}": {number}}}, "type": {kind}}}'
    for _ in range(300):
        a, b, c = source.sample(NUMBERS, 3)
        yield [a, b, c], f'{{"enum": [{a}, {b}, {c}]}}'
        yield [a, b, c], f'{{"type": "number", "not": {{"enum": [{a}, {b}, {c}]}}}}'
        low, high = source.choice(bounds[::2]), source.choice(bounds[1::2])
        yield [a, b], f'{{"type": "number", "{low}": {a}, "{high}": {b}}}'
        yield [a, b], f'{{"type": "integer", "{low}": {a}, "{high}": {b}}}'
        yield [a, b, c], f'{{"allOf": [{{"enum": [{a}, {b}]}}, {{"enum": [{b}, {c}]}}]}}'


def compare_numbers():
    exact = exact_validator()
    rows = []
    for numbers, schema in number_schemas(random.Random(1)):
        texts = sorted({text for number in numbers for text in neighbours(number)})
        rows.append((schema, texts))
    lines = "".join(f'{{"schema": {schema}, "texts": {json.dumps(texts)}}}\n'
                    for schema, texts in rows)
    done = subprocess.run([BUILD / "constrain_verdicts"], input=lines.encode(),
                          stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    judged = accepted = refused = differences = 0
    for (schema, texts), answer in zip(rows, answers, strict=True):
        judge = jsonschema.Draft202012Validator(json.loads(schema))
        exact_judge = exact(json.loads(schema, parse_float=decimal.Decimal))
        refused += "error" in answer
        for text, took in zip(texts, answer.get("verdicts", [False] * len(texts)), strict=True):
            judged += 1
            accepted += took
            valid = judge.is_valid(json.loads(text))
            valid &= exact_judge.is_valid(json.loads(text, parse_float=decimal.Decimal))
            # What a printer writes must not be left out.
            printed = json.dumps(json.loads(text)) == text
            if took != valid and (took or printed):
                differences += 1
                print("DIFFERENT:", schema, text, "taken" if took else "left out")
    print(f"numbers: {len(rows)} schemas, {refused} that no number satisfies; of {judged} documents "
          f"{accepted} taken, {differences} differences")
    return differences + (accepted < judged // 10)


def main():
    suite_asked = sys.argv[1:] == ["--suite"]
    differences = compare_suite() if suite_asked else compare_list() + compare_numbers()
    sys.exit(1 if differences else 0)


main()

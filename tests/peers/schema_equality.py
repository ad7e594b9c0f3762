#!/usr/bin/env python3
"""Gives the schemas and documents of tests/constrain/json_schema_cases.json to PyPI's jsonschema:
each verdict must be the list's (schema_equality.mjs compares the list with ajv and with Strata).

usage: schema_equality.py            the list
       schema_equality.py --suite    JSON Schema's own test suite, which jsonschema's source package
                                     carries, by Strata: downloads that package with pip
"""

import glob
import importlib.metadata
import json
import os
import pathlib
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


def main():
    differences = compare_suite() if sys.argv[1:] == ["--suite"] else compare_list()
    sys.exit(1 if differences else 0)


main()

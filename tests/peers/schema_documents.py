#!/usr/bin/env python3
"""Valid documents that another program invents: every one must be accepted, token by token, however it is
cut into tokens. PyPI's hypothesis-jsonschema makes them of the schemas of
tests/constrain/json_schema_cases.json and of random ones, jsonschema says whether they are valid, and they
are written in the ways docs/constrain.md promises: properties in the schema's order, white space as
printers make it, plain decimals.

usage: schema_documents.py [--documents N] [--examples N]
"""

import argparse
import collections
import copy
import decimal
import json
import pathlib
import random
import re
import warnings

import hypothesis
import hypothesis_jsonschema
import jsonschema

import masks

DRAFT7 = "draft-07"
IN_PLACE = ("allOf", "anyOf", "oneOf")
CONDITIONS = ("if", "then", "else")


def resolve(reference, root):
    """The schema a reference within the document means; None if that is not plain to see."""
    if reference == "#":
        return root
    if reference.startswith("#/"):
        schema = root
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~").replace("%25", "%").replace("%22", '"')
            try:
                schema = schema[int(step)] if isinstance(schema, list) else schema[step]
            except (KeyError, IndexError, ValueError):
                return None
        return schema

    def search(schema):
        if isinstance(schema, dict):
            if reference[1:] in (schema.get("$anchor"), schema.get("$dynamicAnchor")) or \
                    reference in (schema.get("$id"),):
                return schema
            schema = list(schema.values())
        for inner in schema if isinstance(schema, list) else ():
            found = search(inner)
            if found is not None:
                return found
        return None

    return search(root)


def applied(schema, root, depth=0):
    """The schemas that hold for the same place, in the order of the text; each keyword by itself."""
    if not isinstance(schema, dict) or depth > 12:
        return
    if "$ref" in schema and DRAFT7 in str(root.get("$schema") if isinstance(root, dict) else ""):
        schema = {"$ref": schema["$ref"]}
    for key, value in schema.items():
        if key in IN_PLACE:
            for one in value:
                yield from applied(one, root, depth + 1)
        elif key in CONDITIONS:
            yield from applied(value, root, depth + 1)
        elif key in ("dependentSchemas", "dependencies"):
            for one in value.values():
                yield from applied(one, root, depth + 1)
        elif key in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = resolve(value, root)
            if target is not None and target is not schema:
                yield from applied(target, root, depth + 1)
        else:
            yield key, value, schema


def ordered(document, schemas, root):
    """The document with its properties in the schema's order."""
    keywords = [each for schema in schemas for each in applied(schema, root)]
    if isinstance(document, (dict, list)):
        for key, value, _ in keywords:
            for one in value if key == "enum" else [value] if key == "const" else ():
                if one == document and json.dumps(one, sort_keys=True) == json.dumps(document, sort_keys=True):
                    return one
    if isinstance(document, list):
        items = []
        for place, item in enumerate(document):
            inner = []
            for key, value, owner in keywords:
                prefix = owner.get("prefixItems", owner["items"] if isinstance(owner.get("items"), list) else [])
                if key in ("prefixItems", "items") and isinstance(value, list):
                    inner += value[place:place + 1]
                elif key in ("items", "additionalItems", "unevaluatedItems") and place >= len(prefix):
                    inner.append(value)
                elif key == "contains":
                    inner.append(value)
            items.append(ordered(item, inner, root))
        return items
    if not isinstance(document, dict):
        return document
    names = {}
    for key, value, _ in keywords:
        if key == "properties":
            names.update(dict.fromkeys(name for name in value if name not in names))
    for key, value, _ in keywords:
        if key == "required":
            names.update(dict.fromkeys(name for name in value if name not in names))
        if key == "dependentRequired":
            for name, needed in value.items():
                names.update(dict.fromkeys(n for n in [name, *needed] if n not in names))
    result = {}
    for name in [*(name for name in names if name in document),
                 *(name for name in document if name not in names)]:
        inner = []
        for key, value, owner in keywords:
            if key == "properties" and name in value:
                inner.append(value[name])
            elif key == "patternProperties":
                inner += [one for pattern, one in value.items() if search(pattern, name)]
            elif key in ("additionalProperties", "unevaluatedProperties") and \
                    name not in owner.get("properties", {}):
                inner.append(value)
        result[name] = ordered(document[name], inner, root)
    return result


def search(pattern, text):
    try:
        return re.search(pythons(pattern), text)
    except re.error:
        return None


LINE_ENDS = "\\n\\r\\u2028\\u2029"
SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": SPACES}


def pythons(pattern):
    """An ECMA-262 pattern as Python means the same."""
    out, inside, at = "", False, 0
    while at < len(pattern):
        c = pattern[at]
        escape = pattern[at:at + 2] if c == "\\" else ""
        if escape and escape[1].lower() in CLASSES and not (inside and escape[1].isupper()):
            characters = CLASSES[escape[1].lower()]
            out += characters if inside else f"[{'^' if escape[1].isupper() else ''}{characters}]"
        elif escape:
            out += "/" if escape == "\\/" else escape
        elif c == "$" and not inside:
            out += "\\Z"
        elif c == "." and not inside:
            out += f"[^{LINE_ENDS}]"
        else:
            inside = c == "[" or inside and c != "]"
            out += c
        at += len(escape) or 1
    return out


def for_python(schema):
    """The schema with patterns in Python's dialect."""
    if isinstance(schema, list):
        return [for_python(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: for_python(value) for key, value in schema.items()}
    if isinstance(made.get("pattern"), str):
        made["pattern"] = pythons(made["pattern"])
    if isinstance(made.get("patternProperties"), dict):
        made["patternProperties"] = {pythons(key): value for key, value in made["patternProperties"].items()}
    return made


def plain(value):
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return decimal_number(value) if isinstance(value, float) else value


def decimal_number(value):
    text = format(decimal.Decimal(repr(value)), "f")
    return Number(text if "." not in text or text.strip("-0.") else "0.0")


class Number:
    def __init__(self, text):
        self.text = text


def written(value, dice, style=None, level=0):
    """JSON text in one of the ways of printers."""
    ascii_only, comma, colon, indent = style
    if isinstance(value, Number):
        return value.text
    if not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=ascii_only)
    if isinstance(value, dict):
        parts = [json.dumps(name, ensure_ascii=ascii_only) + colon + written(inner, dice, style, level + 1)
                 for name, inner in value.items()]
    else:
        parts = [written(inner, dice, style, level + 1) for inner in value]
    open_, close = "{}" if isinstance(value, dict) else "[]"
    if not parts:
        return open_ + close
    if indent and level * indent < 30:
        line = "\n" + " " * indent * (level + 1)
        return open_ + line + ("," + line).join(parts) + "\n" + " " * indent * level + close
    return open_ + comma.join(parts) + close


STYLES = [(False, ",", ":", 0), (True, ", ", ": ", 0), (False, ", ", ": ", 2), (True, ",", ":", 0)]


def in_draft7(schema):
    """About the same in the words of draft 7, which hypothesis-jsonschema knows."""
    if isinstance(schema, list):
        return [in_draft7(inner) for inner in schema]
    if not isinstance(schema, dict):
        return copy.deepcopy(schema)
    made = {key: in_draft7(value) for key, value in schema.items() if key != "$schema"}
    if isinstance(made.get("prefixItems"), list):
        if "items" in made:
            made["additionalItems"] = made["items"]
        made["items"] = made.pop("prefixItems")
    for key in ("dependentRequired", "dependentSchemas"):
        if isinstance(made.get(key), dict):
            made["dependencies"] = made.get("dependencies", {}) | made.pop(key)
    return made


def invented(schema, count):
    """Documents of hypothesis-jsonschema that jsonschema finds valid; None if it cannot."""
    found = {}
    schema = for_python(schema)
    try:
        strategy = hypothesis_jsonschema.from_schema(in_draft7(schema))

        @hypothesis.settings(max_examples=count, database=None, derandomize=True, deadline=None,
                             phases=[hypothesis.Phase.generate],
                             suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(strategy)
        def collect(document):
            found[json.dumps(document)] = document

        collect()
    except Exception:  # it raises what it likes of keywords it does not know
        if not found:
            return None
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    judge = validator(schema, format_checker=validator.FORMAT_CHECKER)
    valid = []
    for document in found.values():
        try:
            if judge.is_valid(document):
                valid.append(document)
        except Exception:  # patterns that Python cannot read, references elsewhere
            return None
    return valid


def without_formats(schema):
    if isinstance(schema, list):
        return [without_formats(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_formats(value) for key, value in schema.items()
            if not (key == "format" and isinstance(value, str))}


def left_out(text):
    """Why a valid document is none of ours."""
    if re.search(r"\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]", text, re.I):
        return "lone surrogate"
    return "more digits than a double" if re.search(r"\d{310}", text) else None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--documents", type=int, default=40)
    arguments.add_argument("--examples", type=int, default=5)
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    dice = random.Random(1)
    strata = masks.Strata(masks.TOKENS, masks.END)
    schemas = [case["schema"] for case in json.loads(masks.CASES.read_text())]
    schemas += [masks.random_schema(dice, 3)[0] for _ in range(150)]
    count = collections.Counter()
    examples = []
    for schema in schemas:
        if "error" in strata.ask(schema=schema, ids=[], check=True):
            count["schemas Strata refuses"] += 1
            continue
        documents = invented(schema, given.documents)
        if not documents:
            count["schemas hypothesis-jsonschema makes no valid document of"] += 1
            continue
        count["schemas"] += 1
        for document in documents:
            why = left_out(json.dumps(document))
            if why:
                count[f"documents left out: {why}"] += 1
                continue
            count["documents"] += 1
            value = plain(ordered(document, [schema], schema))
            for style in STYLES[:1] + dice.sample(STYLES[1:], 1):
                text = written(value, dice, style).encode()
                for ids in (masks.pieces_of(text), masks.pieces(text, masks.BY_TEXT, dice),
                            masks.pieces(text, masks.BY_TEXT, dice)):
                    count["tokenisations"] += 1
                    answer = strata.ask(schema=schema, ids=ids, check=True)
                    if "error" in answer:
                        raise SystemExit(f"{schema}: {answer}")
                    if answer["taken"] == len(ids) and answer["whole"]:
                        continue
                    free = without_formats(schema)
                    if free != schema:  # jsonschema does not check all formats, nor all of each
                        answer = strata.ask(schema=free, ids=ids, check=True)
                        if answer.get("taken") == len(ids) and answer["whole"]:
                            count["tokenisations left out: a format's corner"] += 1
                            continue
                    count["refused"] += 1
                    at = b"".join(masks.TOKENS[i] for i in ids[:answer["taken"]])
                    examples.append((schema, at, text))
                    break
    first = {json.dumps(schema): (schema, at, text) for schema, at, text in reversed(examples)}
    for schema, at, text in list(first.values())[:given.examples]:
        print(f"REFUSED: {json.dumps(schema)[:600]}\n   {text[:300]!r}\n   behind {at[-100:]!r}")
    for label, number in sorted(count.items()):
        print(f"{number:7}  {label}")
    if count["refused"]:
        raise SystemExit("a valid document was refused")
    if given.documents >= 40 and count["schemas"] < 300:
        raise SystemExit("documents of fewer than 300 schemas")


main()

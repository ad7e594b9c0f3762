"""Chat templates rendered by Strata and by Jinja2 as Hugging Face configures it, byte for byte.

usage: jinja_equality.py            compares; exit 1 if anything differs
       jinja_equality.py --dump     templates, contexts and both results as JSON, for
                                    jinja_equality.mjs

Templates: ours (jinja_templates/*.jinja and tests/golden/jinja), which have the constructs of every
family, and the real ones that packages of requirements.txt carry. Conversations: ours. A template
that refuses a conversation must do so in both, with the same words if they are its own.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden/jinja"))
from chat_templates import TEMPLATES as GOLDEN_TEMPLATES  # noqa: E402
from huggingface import environment  # noqa: E402
from jinja_conversations import CONVERSATIONS  # noqa: E402

import jinja2  # noqa: E402

# Packages with *.jinja files. What those with the same text are called does not matter.
CARRIERS = {"trl": "chat_templates", "axolotl": "utils/chat_templates/templates"}
# At least so many of each must be there, or the comparison has lost its subject.
LEAST_OWN, LEAST_REAL, LEAST_CONVERSATIONS = 40, 60, 20

# Where a difference is right: (template, conversation) -> reason.
KNOWN = {}


def own_templates():
    templates = {f"golden/{name}": text for name, text in GOLDEN_TEMPLATES.items()}
    for path in sorted((ROOT / "tests/peers/jinja_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    return templates


def real_templates():
    templates, seen = {}, set()
    site = next((ROOT / ".venv/lib").glob("python3*/site-packages"))
    for package, folder in CARRIERS.items():
        for path in sorted((site / package / folder).glob("*.jinja")):
            text = path.read_text(encoding="utf-8")
            if text not in seen:
                seen.add(text)
                templates[f"{package}/{path.stem}"] = text
    return templates


def render_jinja2(compiled, context):
    try:
        return {"text": compiled.render(**context)}
    except jinja2.exceptions.TemplateError as error:
        own_words = type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error), "own words": own_words}
    except Exception as error:  # Python's own: TypeError, ZeroDivisionError, ...
        return {"error": f"{type(error).__name__}: {error}", "own words": False}


def all_of_jinja2(templates, contexts):
    env = environment()
    results = {}
    for name, source in templates.items():
        compiled = env.from_string(source)
        results[name] = [render_jinja2(compiled, context) for context in contexts]
    return results


def all_of_strata(templates, contexts):
    build = pathlib.Path(os.environ.get("STRATA_BUILD", "build/release"))
    request = json.dumps({"contexts": contexts, "templates": list(templates.values())})
    run = subprocess.run([ROOT / build / "chat_render"], input=request.encode(), check=True,
                         stdout=subprocess.PIPE)
    results = {}
    for name, line in zip(templates, run.stdout.decode().split("\n")[:-1], strict=True):
        result = json.loads(line)
        results[name] = result if isinstance(result, list) else [result] * len(contexts)
    return results


def same(ours, theirs):
    if "text" in theirs:
        return ours.get("text") == theirs["text"]
    if "error" not in ours:
        return False
    return not theirs["own words"] or ours["error"] == theirs["error"]


def first_difference(ours, theirs):
    a, b = ours.get("text"), theirs.get("text")
    if a is None or b is None:
        return f"    Strata: {str(ours)[:300]}\n    Jinja2: {str(theirs)[:300]}"
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    cut = slice(max(0, at - 40), at + 60)
    return f"    at {at}\n    Strata: {a[cut]!r}\n    Jinja2: {b[cut]!r}"


def main():
    own, real = own_templates(), real_templates()
    contexts = list(CONVERSATIONS.values())
    assert len(own) >= LEAST_OWN, len(own)
    assert len(real) >= LEAST_REAL, len(real)
    assert len(contexts) >= LEAST_CONVERSATIONS, len(contexts)
    templates = own | real
    theirs = all_of_jinja2(templates, contexts)
    ours = all_of_strata(templates, contexts)
    if sys.argv[1:] == ["--dump"]:
        json.dump({"templates": templates, "conversations": CONVERSATIONS, "jinja2": theirs,
                   "strata": ours}, sys.stdout)
        return
    problems, rendered = [], 0
    for name in templates:
        texts = 0
        for label, a, b in zip(CONVERSATIONS, ours[name], theirs[name], strict=True):
            texts += "text" in b
            if same(a, b) == ((name, label) in KNOWN):
                problems.append(f"  {name} / {label}\n{first_difference(a, b)}")
        rendered += texts
        if texts < len(contexts) // 6:
            problems.append(f"  {name}: only {texts} conversations are not refused")
    print(f"jinja: {len(own)} templates of ours and {len(real)} real ones with {len(contexts)} "
          f"conversations; {rendered} texts and {len(templates) * len(contexts) - rendered} "
          f"refusals; {len(problems)} problems")
    print("\n".join(problems[:40]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

// Compares the ids of `strata tokenize` with those of HF's tokenizers in JavaScript
// (npm @huggingface/tokenizers), on a part of the strings of tokenizer_equality.py.
//
// usage: node tokenizer_equality.mjs [STRINGS]
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { Tokenizer } from "@huggingface/tokenizers";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.resolve(HERE, "../..");
const STRATA = path.resolve(ROOT, process.env.STRATA_BUILD ?? "build/release", "strata");
const PYTHON = process.env.STRATA_PYTHON ?? path.join(ROOT, ".venv/bin/python");
const COUNT = process.argv[2] ?? "3000";

// Where JavaScript's regular expressions differ from those of the Rust program: \s holds U+FEFF and not
// U+0085 (nor does it in a negated class), and "any case" of an s is no U+017F.
const ANOTHER_MEANING = /[\uFEFF\u0085\u017F]/u;

function run(program, args, input) {
  const done = spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 28, input });
  if (done.status !== 0) throw new Error(`${program}: ${done.error ?? done.stderr}`);
  return done.stdout;
}

const get = `import sys; sys.path.insert(0, ${JSON.stringify(HERE)})
import tokenizer_vocabularies; print(tokenizer_vocabularies.get(sys.argv[1]))`;

let differences = 0;
for (const name of ["demo", "qwen3"]) {
  const file = run(PYTHON, ["-c", get, name]).trim();
  const all = JSON.parse(run(PYTHON, [path.join(HERE, "tokenizer_strings.py"), COUNT, file]));
  const texts = all.filter((text) => !ANOTHER_MEANING.test(text));
  const lines = texts.map((text) => `${Buffer.from(text).toString("hex")}\n`).join("");
  const ours = run(STRATA, ["tokenize", "--tokenizer", file, "--lines", "--hex", "-f", "-"], lines)
    .trimEnd()
    .split("\n");
  const peer = new Tokenizer(JSON.parse(readFileSync(file, "utf8")), {});
  let wrong = 0;
  texts.forEach((text, i) => {
    const theirs = `[${peer.encode(text, { add_special_tokens: false }).ids.join(", ")}]`;
    if (theirs === ours[i]) return;
    if (++wrong <= 5) {
      console.log(`  ${name}: ${JSON.stringify(text)}\n    strata ${ours[i]}\n    peer   ${theirs}`);
    }
  });
  console.log(`${name}: ${texts.length} of ${all.length} strings, ${wrong} differences`);
  if (texts.length < 0.9 * all.length || ours.length !== texts.length) differences++;
  differences += wrong;
}
process.exit(differences === 0 ? 0 : 1);

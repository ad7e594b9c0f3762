// Gives the schemas and documents of tests/constrain/json_schema_cases.json to npm's ajv and to
// Strata: each verdict must be the list's. Then documents that Strata's grammars generated for those
// schemas, and for realistic ones made here (schemas_random.mjs): all must be valid for ajv.
//
// usage: node schema_equality.mjs [DOCUMENTS]     how many documents a schema; 52 if not given
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";

import { randomSchemas } from "./schemas_random.mjs";

const addFormats = formats.default ?? formats;

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const BUILD = path.resolve(ROOT, process.env.STRATA_BUILD ?? "build/release");
const DOCUMENTS = Number(process.argv[2] ?? 52);
const MOST_TOKENS = 4000;

// Where ajv judges otherwise, and why: a pattern for the schema's text, for the document's, and for
// which draft.
const EXCEPTIONS = [
  [/"prefixItems".*"contains"/, /^\[\]$/, "2020-12", "takes the empty array for one that contains"],
  [/draft-07.*"\$ref":"[^"]*","minLength"/, /./, "7", "looks at what stands beside $ref in draft 7"],
  [/2020-12.*"dependencies"/, /./, "2020-12", "knows draft 7's dependencies in 2020-12 too"],
  [/"multipleOf":0\.01/, /./, "2020-12", "divides in binary: 0.07 is no multiple of 0.01 to it"],
  [/./, /\d[\d.]{15}/, "2020-12", "knows no more of a number than a double holds"],
];
const excepted = (schema, document, draft) =>
  EXCEPTIONS.some(([s, d, which]) => which === draft && s.test(schema) && d.test(document));

// A model that chooses at random finds what such schemas demand only by chance: a text inside a
// string, an item among others.
const BY_CHANCE = /"contains"|"pattern":"(?!\^)/;

function helper(name, lines) {
  const input = `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`;
  const done = spawnSync(path.join(BUILD, name), { input, maxBuffer: 1 << 30 });
  if (done.status !== 0) throw new Error(`${name}: ${done.error ?? done.stderr}`);
  return String(done.stdout).trimEnd().split("\n").map((line) => JSON.parse(line));
}

function validators(schema, drafts) {
  const named = typeof schema === "object" && schema !== null ? schema.$schema : undefined;
  const wanted = named ? [named.includes("draft-07") ? "7" : "2020-12"] : drafts;
  return wanted.map((draft) => {
    const ajv = new (draft === "7" ? Ajv : Ajv2020)({ strict: false, logger: false });
    addFormats(ajv);
    return { draft, validate: ajv.compile(schema) };
  });
}

let differences = 0;
function differ(...words) {
  differences += 1;
  if (differences <= 40) console.log("DIFFERENT:", ...words);
}

function compareVerdicts(cases) {
  const texts = cases.map((it) => [...it.valid, ...it.invalid].map((value) => JSON.stringify(value)));
  const ours = helper(
    "constrain_verdicts",
    cases.map((it, i) => ({ schema: it.schema, texts: texts[i] })),
  );
  let instances = 0;
  let refused = 0;
  cases.forEach((it, i) => {
    const text = JSON.stringify(it.schema);
    if (it.refused) {
      refused += 1;
      if (!ours[i].error?.includes(it.refused)) differ(text, "is not refused:", ours[i]);
    }
    if (it.peers === "none" || texts[i].length === 0) return;
    const judges = validators(it.schema, it.drafts ?? ["7", "2020-12"]);
    texts[i].forEach((document, k) => {
      const valid = k < it.valid.length;
      instances += 1;
      if (ours[i].verdicts && ours[i].verdicts[k] !== valid) differ(text, document, "Strata");
      for (const { draft, validate } of judges)
        if (validate(JSON.parse(document)) !== valid && !excepted(text, document, draft))
          differ(text, document, "ajv, draft", draft);
    });
  });
  console.log(`verdicts: ${cases.length} schemas (${refused} refused by name), ${instances} documents`);
}

function compareGenerated(name, schemas) {
  const answers = helper(
    "constrain_generate",
    schemas.map((schema, i) => ({ schema, count: DOCUMENTS, seed: i + 1, tokens: MOST_TOKENS })),
  );
  let documents = 0;
  let ended = 0;
  let accepted = 0;
  answers.forEach((answer, i) => {
    if (answer.error) return;
    accepted += 1;
    const text = JSON.stringify(schemas[i]);
    const judges = validators(schemas[i], ["2020-12"]);
    let whole = 0;
    for (const it of answer.documents) {
      documents += 1;
      if (it.ended) whole += 1;
      if (!it.ended && !it.finished) continue; // cut, and not ended in twice the tokens either
      let value;
      try {
        value = JSON.parse(it.text);
      } catch (error) {
        differ(text, it.text, "is no JSON:", error.message);
        continue;
      }
      for (const { draft, validate } of judges)
        if (!validate(value) && !excepted(text, it.text, draft))
          differ(text, it.text, "is invalid for draft", draft);
    }
    ended += whole;
    if (whole < 0.8 * answer.documents.length && !BY_CHANCE.test(text)) {
      differ(text, `only ${whole} of ${answer.documents.length} end within ${MOST_TOKENS} tokens`);
    }
  });
  console.log(
    `generated, ${name}: ${accepted} of ${schemas.length} schemas accepted, ${documents} documents, ` +
      `${ended} ended by themselves within ${MOST_TOKENS} tokens`,
  );
  return accepted;
}

const cases = JSON.parse(
  readFileSync(path.join(ROOT, "tests/constrain/json_schema_cases.json"), "utf8"),
);
compareVerdicts(cases);
compareGenerated(
  "the list's",
  cases.filter((it) => it.peers !== "none" && !it.refused).map((it) => it.schema),
);
const random = compareGenerated("made", randomSchemas(100, 7));
if (random < 98) differ(`only ${random} of 100 made schemas are accepted`);
console.log(differences === 0 ? "no difference" : `${differences} differences`);
process.exit(differences === 0 ? 0 : 1);

// How long realistic schemas take to become automata (grammar and compilation, without any mask):
// 500 of schemas_random.mjs, one process, one thread.
//
// usage: node schema_compile_time.mjs [SCHEMAS]
import { spawnSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { randomSchemas } from "./schemas_random.mjs";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const HELPER = path.resolve(ROOT, process.env.STRATA_BUILD ?? "build/release", "constrain_verdicts");

const schemas = randomSchemas(Number(process.argv[2] ?? 500), 11);
const input = `${schemas.map((schema) => JSON.stringify({ schema, texts: [] })).join("\n")}\n`;
const done = spawnSync(HELPER, { input, maxBuffer: 1 << 28 });
if (done.status !== 0) throw new Error(String(done.error ?? done.stderr));
const answers = String(done.stdout).trimEnd().split("\n").map((line) => JSON.parse(line));
const times = answers.map((it) => it.milliseconds).sort((a, b) => a - b);
const at = (share) => times[Math.min(times.length - 1, Math.floor(share * times.length))].toFixed(1);
const sizes = schemas.map((schema) => JSON.stringify(schema).length).sort((a, b) => a - b);
console.log(
  `${schemas.length} schemas of ${sizes[0]} to ${sizes.at(-1)} bytes (median ${sizes[sizes.length >> 1]}), ` +
    `${answers.filter((it) => it.error).length} refused: ` +
    `median ${at(0.5)} ms, 90 % ${at(0.9)} ms, 99 % ${at(0.99)} ms, longest ${at(1)} ms`,
);
const worst = answers.map((it, i) => [it.milliseconds, i]).sort((a, b) => b[0] - a[0]);
for (const [time, i] of worst.slice(0, 3))
  console.log(`  ${time.toFixed(1)} ms: ${JSON.stringify(schemas[i]).slice(0, 150)}`);

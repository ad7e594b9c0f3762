// Compares what texts have a `format` with npm's ajv-formats (mode "full"): texts that are valid to
// begin with, and what becomes of them when some characters change. Where the two differ by
// intention, it must be in the direction that INTENDED names.
//
// usage: node format_equality.mjs [TEXTS]
import { spawnSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { fullFormats } from "ajv-formats/dist/formats.js";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const HELPER = path.resolve(
  ROOT,
  process.env.STRATA_BUILD ?? "build/release",
  "constrain_regular",
);
const TEXTS = Number(process.argv[2] ?? 20000);

const SEEDS = {
  date: ["2024-02-29", "1999-12-31", "2023-04-30"],
  time: ["12:30:45Z", "23:59:60Z", "15:59:60-08:00", "01:02:03.004+05:30"],
  "date-time": ["1985-04-12T23:20:50.52Z", "1990-12-31T15:59:60-08:00"],
  duration: ["P4DT12H30M5S", "P1Y2M3D", "P3W", "PT36H"],
  email: ["joe.bloggs@example.com", "a+b@x.y"],
  hostname: ["www.example.com", "localhost", "a-b.c1"],
  ipv4: ["127.0.0.1", "255.249.10.9"],
  ipv6: ["::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1"],
  uri: ["https://u:p@example.com:80/a/b?c=d&e#f", "mailto:joe@x.y", "ftp://[2001:db8::7]/x"],
  "uri-reference": ["a/b?c#d", "//x/y", "http://x:1/%20"],
  "uri-template": ["http://x/{a}", "{+a,b*}{#c:10}"],
  uuid: ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
  "json-pointer": ["/a/b~0~1", ""],
  "relative-json-pointer": ["1/a/0", "10#"],
};
// Why ours refuses what theirs accepts ("narrower"), or the other way round ("wider").
const INTENDED = {
  time: { narrower: "offsets need a colon and minutes (RFC 3339); leap seconds by quarters of an hour" },
  "date-time": { narrower: "as for time, and T stands between the two" },
  duration: { narrower: "no unit is left out between two others (RFC 3339, appendix A)" },
  email: { narrower: "bounds of labels and of the part before the @" },
  hostname: { narrower: "no dot at the end; the bound is kept in units of 32 characters" },
  uri: { narrower: "colons in ports and hosts, and authorities that are none (RFC 3986)" },
  "uri-reference": { narrower: "as for uri; no colon in a first segment without a scheme" },
  uuid: { narrower: "without urn:uuid:" },
};

let state = 7;
function below(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
}
const BYTES = "0123456789abcdefzATZPYMDWHS+-.:/@?#[]{}%~_ ,*é\"<é";
function changed(text, format) {
  const characters = [...text];
  for (let n = below(4); n > 0; n -= 1) {
    const at = below(characters.length + 1);
    const kind = below(3);
    const own = [...SEEDS[format].join("")];
    const one = below(2) === 0 ? own[below(own.length)] : BYTES[below(BYTES.length)];
    if (kind === 0) characters.splice(at, 1, one);
    else if (kind === 1) characters.splice(at, 1);
    else characters.splice(at, 0, one);
  }
  return characters.join("");
}

function verdict(format, text) {
  const it = fullFormats[format];
  if (it instanceof RegExp) {
    it.lastIndex = 0;
    return it.test(text);
  }
  return typeof it === "function" ? it(text) : it.validate(text);
}

const formats = Object.keys(SEEDS);
const queries = formats.map((format) => {
  const texts = new Set(SEEDS[format]);
  for (let i = 0; i < TEXTS; i += 1)
    texts.add(changed(SEEDS[format][below(SEEDS[format].length)], format));
  return { format, texts: [...texts] };
});
const done = spawnSync(HELPER, {
  input: queries.map((query) => `${JSON.stringify(query)}\n`).join(""),
  encoding: "utf8",
  maxBuffer: 1 << 28,
});
if (done.status !== 0) throw new Error(`${HELPER}: ${done.error ?? done.stderr}`);
const answers = done.stdout.split("\n");
let failed = false;
queries.forEach(({ format, texts }, i) => {
  const found = { narrower: [], wider: [] };
  let valid = 0;
  texts.forEach((text, k) => {
    const theirs = verdict(format, text);
    valid += theirs ? 1 : 0;
    if (theirs !== (answers[i][k] === "1")) found[theirs ? "narrower" : "wider"].push(text);
  });
  console.log(
    `${format}: ${texts.length} texts, ${valid} valid, ${found.narrower.length} of them refused ` +
      `here, ${found.wider.length} others accepted`,
  );
  for (const direction of ["narrower", "wider"]) {
    if (found[direction].length === 0 || INTENDED[format]?.[direction]) continue;
    failed = true;
    console.error(`  ${direction}: ${found[direction].slice(0, 8).map((t) => JSON.stringify(t)).join(" ")}`);
  }
});
process.exit(failed ? 1 : 0);

// Compares what Hugging Face's GGUF reader (npm @huggingface/gguf) finds in files that Strata wrote
// with what `strata inspect --json` says of them: every key with its type and value, every tensor
// with its type, shape and place.
//
// usage: node gguf_equality.mjs
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";

import { GGMLQuantizationType, GGUFValueType, gguf } from "@huggingface/gguf";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const STRATA = path.resolve(ROOT, process.env.STRATA_BUILD ?? "build/release", "strata");
const GOLDEN = path.join(ROOT, "tests/golden");
const SHARED = process.env.STRATA_SHARED_DIR ?? path.join(ROOT, "../shared");
const SHOWN = 8; // values of an array that `strata inspect` prints

const KINDS = {
  [GGUFValueType.UINT8]: "u8",
  [GGUFValueType.INT8]: "i8",
  [GGUFValueType.UINT16]: "u16",
  [GGUFValueType.INT16]: "i16",
  [GGUFValueType.UINT32]: "u32",
  [GGUFValueType.INT32]: "i32",
  [GGUFValueType.FLOAT32]: "f32",
  [GGUFValueType.BOOL]: "bool",
  [GGUFValueType.STRING]: "string",
  [GGUFValueType.UINT64]: "u64",
  [GGUFValueType.INT64]: "i64",
  [GGUFValueType.FLOAT64]: "f64",
};
// Types that this reader has no name for.
const UNNAMED = { 42: "Q2_0" };

function strata(...args) {
  const done = spawnSync(STRATA, args, { encoding: "utf8", maxBuffer: 1 << 28 });
  if (done.status !== 0) throw new Error(`strata ${args.join(" ")}: ${done.error ?? done.stderr}`);
  return done.stdout;
}

// Integers of 16 digits and more as text, which a JavaScript number cannot hold.
function inspect(file) {
  const exact = strata("inspect", "--json", file).replace(/(?<=[[,:])\d{16,}(?=[\],}])/g, '"$&"');
  return JSON.parse(exact);
}

const plain = (value) =>
  typeof value !== "bigint" ? value : value < 10n ** 15n ? Number(value) : String(value);

function metadataOf(typed) {
  const found = {};
  for (const [key, { value, type, subType }] of Object.entries(typed)) {
    if (["version", "tensor_count", "kv_count"].includes(key)) continue;
    found[key] =
      type === GGUFValueType.ARRAY
        ? {
            type: `${KINDS[subType]}[]`,
            length: value.length,
            value: value.slice(0, SHOWN).map(plain),
          }
        : { type: KINDS[type], value: plain(value) };
  }
  return found;
}

async function compare(name, file, least) {
  const ours = inspect(file);
  const theirs = await gguf(file, { allowLocalFile: true, typedMetadata: true });
  const problems = [];
  const expect = (what, a, b) => {
    if (isDeepStrictEqual(a, b)) return;
    problems.push(`${what}: strata ${JSON.stringify(a)}, Hugging Face ${JSON.stringify(b)}`);
  };

  expect("version", ours.version, theirs.metadata.version);
  const metadata = metadataOf(theirs.typedMetadata);
  expect("keys", Object.keys(ours.metadata), Object.keys(metadata));
  for (const [key, value] of Object.entries(ours.metadata)) expect(key, value, metadata[key]);

  expect("tensors", ours.tensors.length, theirs.tensorInfos.length);
  expect("tensor count", ours.tensors.length, Number(theirs.metadata.tensor_count));
  theirs.tensorInfos.forEach((info, i) => {
    const { bytes, part, ...tensor } = ours.tensors[i] ?? {};
    expect(`tensor ${i}`, tensor, {
      name: info.name,
      type: GGMLQuantizationType[info.dtype] ?? UNNAMED[info.dtype],
      shape: info.shape.map(Number),
      offset: Number(theirs.tensorDataOffset + info.offset),
    });
  });
  if (ours.tensors.length < least) problems.push(`only ${ours.tensors.length} tensors`);
  for (const problem of problems.slice(0, 10)) console.log(`  ${name}: ${problem}`);
  console.log(
    `${problems.length === 0 ? "ok     " : "FAILED "} ${name}: ${Object.keys(metadata).length} keys, ` +
      `${theirs.tensorInfos.length} tensors, ${problems.length} differences`,
  );
  return problems.length;
}

const folder = mkdtempSync(path.join(os.tmpdir(), "strata-gguf-"));
let differences = 0;
try {
  differences += await compare("demo model", path.join(ROOT, "models/demo/strata-demo-46m.gguf"), 200);
  for (const name of ["tiny-noindex", "variants/v1", "variants/v2", "variants/v3", "variants/v4"]) {
    const file = path.join(folder, `${name.replace("/", "-")}.gguf`);
    const own = path.join(GOLDEN, name);
    const source = existsSync(own) ? own : path.join(SHARED, "golden", name);
    if (!existsSync(source)) {
      console.log(`not compared: no ${source} (set STRATA_SHARED_DIR)`);
      continue;
    }
    strata("convert", source, file);
    differences += await compare(name, file, 50);
  }
  const checkpoint = path.join(folder, "tiny-a");
  cpSync(path.join(GOLDEN, "tiny-a"), checkpoint, { recursive: true });
  cpSync(path.join(GOLDEN, "tiny-a-mtp/mtp.safetensors"), path.join(checkpoint, "mtp.safetensors"));
  for (const type of ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "IQ4_NL", "Q2_0"]) {
    const file = path.join(folder, `${type}.gguf`);
    strata("convert", checkpoint, file, "--type", type);
    differences += await compare(`tiny-a with a draft block as ${type}`, file, 200);
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(differences === 0 ? 0 : 1);

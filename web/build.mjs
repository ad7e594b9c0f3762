// Bundles the app into dist/ and writes what the program embeds.
//
//   node build.mjs [--quiet] [FILE]     FILE: C++ source with the compressed files
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = path.dirname(fileURLToPath(import.meta.url));
const types = { '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml', '.html': 'text/html; charset=utf-8', '.txt': 'text/plain; charset=utf-8' };

const nameOf = (stem, data, type) => `${stem}-${createHash('sha256').update(data).digest('hex').slice(0, 8).toUpperCase()}${type}`;

// The notices of the packages that are bundled: all that are installed but the tools.
function licences() {
  const modules = path.join(here, 'node_modules');
  const tools = new Set(['esbuild', 'typescript']);
  const names = readdirSync(modules).filter((name) => !name.startsWith('.') && !name.startsWith('@') && !tools.has(name));
  const texts = names.sort().map((name) => {
    const folder = path.join(modules, name);
    const { version, license } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
    const text = file && existsSync(path.join(folder, file)) ? readFileSync(path.join(folder, file), 'utf8') : '';
    return `${name} ${version} (${license})\n\n${text.trim()}\n`;
  });
  return Buffer.from(`The web app of Strata contains these packages.\n\n${texts.join(`\n${'-'.repeat(79)}\n\n`)}`);
}

// Every file of the app: its path on the server to its content. Names carry a hash of the content
// except the page's own.
async function bundle() {
  const notices = licences();
  const noticesName = nameOf('licences', notices, '.txt');
  const options = {
    absWorkingDir: here,
    bundle: true,
    minify: true,
    write: false,
    legalComments: 'none',
    target: ['chrome111', 'firefox113', 'safari16.4'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    outdir: 'dist',
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    metafile: true,
    define: { STRATA_LICENCES: JSON.stringify(`/web/${noticesName}`) },
    logLevel: 'warning',
  };
  const parts = [
    await build({ ...options, entryPoints: ['src/main.tsx'], format: 'esm', splitting: true }),
    await build({ ...options, entryPoints: ['src/first.ts'], format: 'iife' }),
  ];
  const files = new Map([[`/web/${noticesName}`, notices]]);
  const names = {};
  let preload = []; // what main.js imports, so that the browser asks for it at once
  for (const { outputFiles, metafile } of parts) {
    for (const file of outputFiles) files.set(`/web/${path.basename(file.path)}`, Buffer.from(file.contents));
    for (const [output, { entryPoint, cssBundle }] of Object.entries(metafile.outputs)) {
      if (entryPoint === 'src/main.tsx') {
        names['main.js'] = path.basename(output);
        preload = metafile.outputs[output].imports.filter(({ kind }) => kind === 'import-statement').map((one) => path.basename(one.path));
        names['main.css'] = path.basename(cssBundle);
      }
      if (entryPoint === 'src/first.ts') names['first.js'] = path.basename(output);
    }
  }
  const icon = readFileSync(path.join(here, 'icon.svg'));
  names['icon.svg'] = nameOf('icon', icon, '.svg');
  files.set(`/web/${names['icon.svg']}`, icon);
  const page = readFileSync(path.join(here, 'index.html'), 'utf8').replace(/\{\{([^}]+)\}\}/g, (_, name) => {
    if (!names[name]) throw new Error(`index.html names ${name}, which was not built`);
    return names[name];
  });
  const links = preload.map((name) => `<link rel="modulepreload" href="/web/${name}" />`).join('');
  files.set('/', Buffer.from(page.replace('</head>', `${links}</head>`).replace(/>\s+</g, '><')));
  return files;
}

// String literals rather than numbers: compilers read them fast.
function literal(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 64) {
    let line = '';
    for (const byte of data.subarray(at, at + 64)) line += `\\${byte.toString(8).padStart(3, '0')}`;
    lines.push(`"${line}"`);
  }
  return lines.join('\n    ');
}

function sourceOf(files) {
  const entries = [...files].map(([address, data]) => {
    const packed = gzipSync(data, { level: 9 });
    const tag = createHash('sha256').update(data).digest('hex').slice(0, 20);
    const type = types[path.extname(address)] ?? types['.html'];
    return `    {"${address}", "${type}", "${tag}",\n    std::string_view(\n    ${literal(packed)},\n    ${packed.length})},`;
  });
  return `// Written by web/build.mjs.
#include "server/web_app.h"

namespace strata::server {

namespace {
constexpr WebFile kFiles[] = {
${entries.join('\n')}
};
}  // namespace

std::span<const WebFile> embedded_web_app() {
  return kFiles;
}

}  // namespace strata::server
`;
}

const files = await bundle();
const dist = path.join(here, 'dist');
rmSync(dist, { recursive: true, force: true });
mkdirSync(path.join(dist, 'web'), { recursive: true });
for (const [address, data] of files) writeFileSync(path.join(dist, address === '/' ? 'index.html' : address), data);
const words = process.argv.slice(2);
const target = words.find((word) => !word.startsWith('--'));
if (target) writeFileSync(target, sourceOf(files));
let sum = 0;
for (const [address, data] of files) {
  const packed = gzipSync(data, { level: 9 }).length;
  sum += packed;
  if (!words.includes('--quiet')) console.log(`${String(packed).padStart(8)} ${address}`);
}
console.log(`${String(sum).padStart(8)} in all, compressed`);

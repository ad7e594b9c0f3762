// Bundles the unit tests of test/ and runs them.
import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
await build({
  absWorkingDir: here,
  entryPoints: ['test/unit.test.ts'],
  bundle: true,
  platform: 'node',
  format: 'esm',
  external: ['node:*'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  outfile: 'dist/unit.test.mjs',
  logLevel: 'warning',
});
const { status } = spawnSync(process.execPath, ['--test', 'dist/unit.test.mjs'], { cwd: here, stdio: 'inherit' });
process.exit(status ?? 1);

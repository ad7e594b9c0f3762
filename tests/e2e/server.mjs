// Starts `strata serve` for a test and stops it again.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';

export const program = () => process.env.STRATA_PROGRAM ?? 'build/release/strata';

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

// What a server keeps by itself goes here, never into the folder of who runs the tests.
const folders = [];
process.on('exit', () => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));
export function dataFolder() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'strata-data-'));
  folders.push(folder);
  return folder;
}

// Waits until the model is loaded. `flags` go to `strata serve`; `data` is the user's data folder,
// a fresh one if it is not given.
export async function startServer(flags = [], { waitSeconds = 120, data = dataFolder() } = {}) {
  const port = await freePort();
  const child = spawn(program(), ['serve', '--port', String(port), ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, XDG_DATA_HOME: data },
  });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) {
    child[name].on('data', (data) => (output[name] = (output[name] + data).slice(-20000)));
  }
  let failure;
  const ended = new Promise((resolve) => {
    child.on('error', (error) => resolve((failure = `cannot start ${program()}: ${error.message}`)));
    child.on('exit', (code, signal) => resolve((failure = `it ended with ${code ?? signal}`)));
  });
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + waitSeconds * 1000;
  for (;;) {
    const health = await fetch(`${url}/health`).catch(() => undefined);
    if (health?.ok) break;
    if (failure || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`strata serve: ${failure ?? 'not ready in time'}\n${output.stderr}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const stop = async () => {
    child.kill('SIGTERM');
    const hard = setTimeout(() => child.kill('SIGKILL'), 15000);
    await ended;
    clearTimeout(hard);
    return child.exitCode;
  };
  return { url, port, child, output, stop };
}

// Runs a program to its end: {code, stdout, stderr}.
export function runProgram(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(program(), args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => (stdout += data));
    child.stderr.on('data', (data) => (stderr += data));
    child.on('error', reject);
    child.on('exit', (code) => resolve({ code, stdout, stderr }));
  });
}

// Named checks; prints what failed and, at the end, "N passed, N failed".
export class Checks {
  passed = 0;
  failed = 0;

  async run(name, body) {
    try {
      await body();
      this.passed += 1;
      console.log(`ok    ${name}`);
    } catch (error) {
      this.failed += 1;
      console.log(`FAIL  ${name}: ${error.stack ?? error}`);
    }
  }
  finish() {
    console.log(`${this.passed} passed, ${this.failed} failed`);
    return this.failed === 0 && this.passed > 0 ? 0 : 1;
  }
}

// The model is unloaded and loaded again, by wish and by itself, and its file is cut while it is in
// use: what requests, /health and the others say meanwhile, with the demo model.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/lifecycle.mjs
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, renameSync, rmSync, truncateSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Server } from './blackbox/client.mjs';
import { Checks, startServer } from './server.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const demo = path.join(here, '../../models/demo/strata-demo-46m.gguf');
const folder = mkdtempSync(path.join(os.tmpdir(), 'strata-lifecycle-'));
const model = path.join(folder, 'model.gguf');
copyFileSync(demo, model);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const question = {
  messages: [{ role: 'user', content: 'What is the capital of Netherlands?' }],
  temperature: 0, max_tokens: 64, chat_template_kwargs: { enable_thinking: false },
};
const checks = new Checks();
const health = async (server) => (await server.get('/health')).json;
const pidOf = async (server) => (await server.get('/v1/status')).json.engine.process.pid;
const alive = (pid) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};
async function until(what, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; ; await sleep(50)) {
    const found = await what();
    if (found) return found;
    assert.ok(Date.now() < end, `not within ${seconds} s: ${what}`);
  }
}

const child = await startServer(['-m', model, '--weights', 'map', '--log-level', 'off']);
const server = new Server(child.url);
let whole;

await checks.run('unloaded, there is no process; a request loads it and gets the same answer', async () => {
  whole = (await server.chat(question)).content;
  assert.match(whole, /Amsterdam/);
  const pid = await pidOf(server);
  const unloaded = await server.post('/unload', '');
  assert.equal(unloaded.status, 200, unloaded.text);
  assert.equal(unloaded.json.loaded, false);
  assert.equal(alive(pid), false);
  assert.deepEqual(await health(server), { ...unloaded.json, status: 'ok', loaded: false });
  assert.equal((await server.get('/v1/models')).json.data[0].status.value, 'unloaded');
  assert.deepEqual((await server.get('/slots')).json, []);
  assert.equal((await server.get('/props')).json.is_sleeping, true);
  assert.ok((await server.post('/v1/messages/count_tokens', { messages: question.messages })).json.input_tokens > 5);
  assert.equal((await server.chat(question)).content, whole);
  assert.equal((await health(server)).loaded, true);
  assert.equal((await server.post('/unload', '')).status, 200);
  assert.equal((await server.chat({ ...question, stream: true })).content, whole);
});

await checks.run('the long form names the model and answers the status', async () => {
  assert.equal((await server.post('/v1/unload', { model: 'another' })).status, 404);
  assert.equal((await server.post('/v1/unload', { modle: 'x' })).status, 400);
  const { model: name } = await health(server);
  const unloaded = await server.post('/v1/unload', { model: name });
  assert.equal(unloaded.json.loaded, false);
  assert.equal(unloaded.json.engine.process.state, 'unloaded');
  const loaded = await server.post('/v1/load', { model: name });
  assert.equal(loaded.json.loaded, true);
  assert.equal(loaded.json.engine.process.restarts, 0);
});

await checks.run('a busy model is not unloaded', async () => {
  const abort = new AbortController();
  const story = server.post('/v1/chat/completions', {
    // It may not end: what ends an answer is banned.
    messages: [{ role: 'user', content: 'Tell me a story.' }], stream: true, temperature: 1, seed: 1,
    max_tokens: 6000, logit_bias: { 8144: -100, 8146: -100 },
  }, { signal: abort.signal }).catch(() => undefined);
  await until(async () => (await server.get('/status')).json.busy);
  const refused = await server.post('/unload', '');
  abort.abort();
  await story;
  assert.equal(refused.status, 409);
  assert.equal(refused.json.error.type, 'model_busy');
});

await checks.run('a page of another site cannot unload it', async () => {
  const answer = await server.post('/unload', '{}', { headers: { origin: 'http://evil.example' } });
  assert.equal(answer.status, 403);
});

await checks.run('the counters of the n-gram table are in the metrics', async () => {
  await server.chat(question);
  const value = async () =>
    Number(/strata_ngram_rows_requested_total\{table="0"\} (\d+)/.exec((await server.get('/metrics')).text)?.[1]);
  const first = await until(value);
  assert.equal((await server.post('/unload', '')).status, 200);
  assert.ok((await value()) >= first, 'counters do not fall');
  await server.chat(question);
  await until(async () => (await value()) > first);
});

await checks.run('a file that is cut ends the engine; restored, it comes back by itself', async () => {
  const { size } = statSync(model);
  truncateSync(model, size / 3);
  const answer = await server.chat(question);
  assert.notEqual(answer.content, whole);
  assert.ok(answer.status >= 500, JSON.stringify(answer));
  const ill = await until(async () => {
    const now = await server.get('/health');
    return now.status === 503 && now.json;
  });
  assert.equal(ill.status, 'error');
  assert.match(ill.reason, /model\.gguf/);
  assert.equal((await server.chat(question)).status, 503);
  // Under another name and moved: what is mapped elsewhere stays whole.
  copyFileSync(demo, `${model}.new`);
  renameSync(`${model}.new`, model);
  await until(async () => (await server.get('/health')).status === 200);
  assert.equal((await server.chat(question)).content, whole);
});

await child.stop();

const second = await startServer(['-m', model, '--manual-load', '--idle-unload-s', '2', '--log-level', 'off']);
const manual = new Server(second.url);
await checks.run('idle, it is unloaded; with manual_load requests are refused until it is loaded', async () => {
  await until(async () => (await manual.get('/health')).json.loaded === false);
  await until(async () => (await manual.get('/health')).json.status === 'unloaded');
  assert.equal((await manual.get('/health')).status, 503);
  const refused = await manual.chat(question);
  assert.equal(refused.status, 503);
  assert.match(refused.json.error.message, /POST \/load/);
  const loaded = await manual.post('/load', '');
  assert.equal(loaded.status, 200);
  assert.equal(loaded.json.loaded, true);
  assert.equal((await manual.chat(question)).content, whole);
  rmSync(model);
  await until(async () => (await manual.get('/health')).json.status === 'unloaded');
  const missing = await manual.post('/load', '');
  assert.equal(missing.status, 503);
  assert.match(missing.json.error.message, /model\.gguf/);
  assert.equal((await health(manual)).status, 'error');
});

await second.stop();
rmSync(folder, { recursive: true });
process.exit(checks.finish());

// The model is unloaded and loaded again, by wish and by itself, and its file is cut while it is in
// use: what requests, /health and the others say meanwhile, with the demo model.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/lifecycle.mjs
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, renameSync, rmSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
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

// A slot is saved, everything is killed, and it is read back.
const slots = path.join(folder, 'slots');
const saving = () => startServer(['--slot-save-path', slots, '--log-level', 'off']);
const filler = Array.from({ length: 120 }, (_, i) => `word${i}`).join(' ');
const first = [{ role: 'user', content: `${filler} What is the capital of Netherlands?` }];
const ask = async (at, messages) => {
  const answer = await at.chat({ ...question, messages });
  assert.equal(answer.status, 200, answer.text);
  return { text: answer.content, prompt: answer.usage.prompt_tokens, cached: answer.usage.prompt_tokens_details.cached_tokens };
};
const more = (answer) => [...first, { role: 'assistant', content: answer }, { role: 'user', content: 'And of Norway?' }];
await checks.run('a slot is saved, survives kill -9 and is restored; erased, it is read again', async () => {
  const one = await saving();
  const before = new Server(one.url);
  const answer = await ask(before, first);
  const pid = await pidOf(before);
  const saved = await before.post('/slots/0?action=save', { filename: 'talk.bin' });
  assert.equal(saved.status, 200, saved.text);
  assert.ok(saved.json.n_saved >= answer.prompt, saved.text);
  assert.equal(saved.json.n_written, statSync(path.join(slots, 'talk.bin')).size);
  const never = await ask(before, more(answer.text));
  process.kill(one.child.pid, 'SIGKILL');
  await until(() => !alive(pid));

  const two = await saving();
  const after = new Server(two.url);
  for (const [name, status] of [['none.bin', 404], ['../talk.bin', 400]]) {
    assert.equal((await after.post('/slots/0?action=restore', { filename: name })).status, status);
  }
  copyFileSync(path.join(slots, 'talk.bin'), path.join(slots, 'cut.bin'));
  truncateSync(path.join(slots, 'cut.bin'), saved.json.n_written - 1);
  symlinkSync('talk.bin', path.join(slots, 'link.bin'));
  const cut = await after.post('/slots/0?action=restore', { filename: 'cut.bin' });
  assert.equal(cut.status, 400, cut.text);
  assert.match(cut.json.error.message, /damaged/);
  assert.equal((await after.post('/slots/0?action=restore', { filename: 'link.bin' })).status, 500);
  writeFileSync(path.join(slots, 'foreign.bin'), 'x'.repeat(5000));
  const foreign = await after.post('/slots/0?action=restore', { filename: 'foreign.bin' });
  assert.equal(foreign.status, 400, foreign.text);
  assert.match(foreign.json.error.message, /^'foreign.bin' is not used/);
  const restored = await after.post('/slots/1?action=restore', { filename: 'talk.bin' });
  assert.equal(restored.status, 200, restored.text);
  assert.equal(restored.json.n_restored, saved.json.n_saved);
  const warm = await ask(after, more(answer.text));
  assert.equal(warm.text, never.text);
  assert.ok(warm.cached >= answer.prompt - 8, `${warm.cached} of ${warm.prompt}`);
  const held = (await after.get('/slots')).json.findIndex((slot) => slot.n_held_tokens >= warm.prompt);
  const erased = await after.post(`/slots/${held}?action=erase`, '');
  assert.ok(erased.json.n_erased >= warm.prompt, erased.text);
  const cold = await ask(after, more(answer.text));
  assert.equal(cold.text, never.text);
  assert.equal(cold.cached, 0);
  assert.equal((await after.get('/slots')).json.length, 4);
  await two.stop();
});

rmSync(folder, { recursive: true });
process.exit(checks.finish());

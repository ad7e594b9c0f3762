// The engine is killed (SIGKILL) or stopped (SIGSTOP) in every phase of a request: while it waits,
// while its prompt is read, while it is decoded, at the end of the stream. Each time, eight answers in
// all dialects, streamed, whole and in the background, are under way: every one ends as its dialect
// says, with its whole text or with an error after a beginning of it, and all counts are right.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/faults.mjs [ROUNDS [SEED]]      (10)
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Server, events } from './blackbox/client.mjs';
import { Checks, startServer } from './server.mjs';

const rounds = Number(process.argv[2] ?? 10);
const phases = ['queue', 'prompt', 'decode', 'end'];
const signals = ['SIGKILL', 'SIGSTOP'];
const words = 40; // of every answer
const pace = 5; // milliseconds between two of them
const silence = 3; // seconds until a stopped engine is killed

// Deterministic, so that a failure can be made again.
let state = 12345 + Number(process.argv[3] ?? 0);
const random = (below) => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return Math.floor((state / 2147483648) * below);
};
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The answers: no word of one is in another.
const names = ['ash', 'birch', 'cedar', 'elder', 'hazel', 'larch', 'maple', 'willow'];
const textOf = (name) => Array.from({ length: words }, (_, i) => `${name}${i}`).join(' ');
const scripts = [
  { match: 'hold', text: 'held ', repeat: true, pace_ms: 1000 },
  ...names.flatMap((name) => [
    { match: `${name}-prompt`, text: `</think>${textOf(name)}`, pace_ms: 1, wait_ms: 150, reads: 10 },
    { match: `${name}-`, text: `</think>${textOf(name)}`, pace_ms: pace, wait_ms: 1 },
  ]),
  { text: '</think>fine' },
];
const folder = mkdtempSync(path.join(os.tmpdir(), 'strata-faults-'));
writeFileSync(path.join(folder, 'script.json'), JSON.stringify({ scripts }));
const child = await startServer(['--script', path.join(folder, 'script.json'), '--engine-silence-s',
  String(silence), '--parallel', String(names.length), '--log-level', 'off']);
const server = new Server(child.url);
const user = (content) => [{ role: 'user', content }];

// Dialects: each gives {text, error, tokens}; `see` hears the text so far.
async function stream(path_, body, see, take) {
  const response = await fetch(server.url + path_, {
    method: 'POST', headers: server.headers(), body: JSON.stringify({ model: 'any', ...body, stream: true }),
  });
  if (response.status !== 200) {
    const { error } = await response.json();
    throw new Error(`refused with ${response.status}: ${error.message}`);
  }
  const decoder = new TextDecoder();
  const answer = { text: '' };
  let rest = '';
  const all = [];
  for await (const bytes of response.body) {
    rest += decoder.decode(bytes, { stream: true });
    const cut = rest.lastIndexOf('\n\n') + 2;
    if (cut < 2) continue;
    for (const event of events(rest.slice(0, cut))) {
      all.push(event);
      take(answer, event);
    }
    rest = rest.slice(cut);
    see(answer.text);
  }
  assert.equal(rest, '');
  answer.events = all;
  return answer;
}

function openAi(textOfChoice) {
  return (answer, event) => {
    assert.notEqual(answer.done, true, 'something after [DONE]');
    if (event.data === '[DONE]') {
      answer.done = true;
      return;
    }
    assert.equal(answer.error, undefined, 'something after the error');
    const chunk = JSON.parse(event.data);
    if (chunk.error) answer.error = chunk.error.message;
    if (chunk.usage) answer.tokens = chunk.usage.completion_tokens;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    answer.text += textOfChoice(choice);
    if (choice.finish_reason) answer.finish = choice.finish_reason;
  };
}

const whole = async (path_, body, read) => {
  const answer = await server.post(path_, { model: 'any', ...body });
  assert.ok(answer.json, `no JSON: ${answer.text}`);
  if (answer.status === 200) return read(answer.json);
  assert.equal(answer.status, 503, answer.text);
  return { text: '', error: answer.json.error.message };
};
const include = { stream_options: { include_usage: true } };
const chatEnd = (answer) => {
  assert.equal(answer.done, true, 'no [DONE]');
  if (!answer.error) assert.equal(answer.finish, 'stop');
  return answer;
};
const textOfResponse = (response) => response.output.filter((item) => item.type === 'message')
  .flatMap((item) => item.content).map((part) => part.text).join('');
const takeResponse = (answer, event) => {
  const value = JSON.parse(event.data);
  assert.equal(value.type, event.event);
  assert.equal(value.sequence_number, answer.next ?? 0);
  answer.next = value.sequence_number + 1;
  assert.equal(answer.terminal, undefined, 'something after the end');
  if (value.type === 'response.output_text.delta') answer.text += value.delta;
  if (value.type === 'response.output_text.done') assert.equal(value.text, answer.text);
  if (!/^response\.(completed|failed|incomplete)$/.test(value.type)) return;
  answer.terminal = value.type;
  if (value.type === 'response.completed') {
    answer.tokens = value.response.usage.output_tokens;
    assert.equal(textOfResponse(value.response), answer.text);
  } else {
    answer.error = value.response.error.message;
  }
};
const takeMessage = (answer, event) => {
  const value = JSON.parse(event.data);
  assert.equal(value.type, event.event);
  assert.ok(!answer.stopped && !answer.error, 'something after the end');
  if (value.type === 'error') answer.error = value.error.message;
  if (value.delta?.type === 'text_delta') answer.text += value.delta.text;
  if (value.type === 'message_delta') answer.tokens = value.usage.output_tokens;
  if (value.type === 'message_stop') answer.stopped = true;
};
const ignore = () => undefined;
const dialects = [
  async (prompt, see) => chatEnd(await stream('/v1/chat/completions', { ...include, messages: user(prompt) },
    see, openAi((choice) => choice.delta.content ?? ''))),
  async (prompt) => whole('/v1/chat/completions', { messages: user(prompt) }, (json) => ({
    text: json.choices[0].message.content, tokens: json.usage.completion_tokens,
  })),
  async (prompt, see) => chatEnd(await stream('/v1/completions', { ...include, prompt, max_tokens: -1 },
    see, openAi((choice) => choice.text))),
  async (prompt, see) => {
    const answer = await stream('/v1/messages', { messages: user(prompt), max_tokens: 5000 }, see, takeMessage);
    assert.ok(answer.stopped || answer.error, 'no end');
    return answer;
  },
  async (prompt) => whole('/v1/messages', { messages: user(prompt), max_tokens: 5000 }, (json) => ({
    text: json.content.filter((block) => block.type === 'text').map((block) => block.text).join(''),
    tokens: json.usage.output_tokens,
  })),
  async (prompt, see) => {
    const answer = await stream('/v1/responses', { input: prompt }, see, takeResponse);
    assert.ok(answer.terminal || answer.error, 'no end');
    return answer;
  },
  async (prompt, see) => {
    const answer = await stream('/v1/responses', { input: prompt, background: true }, see, takeResponse);
    assert.ok(answer.terminal, 'no end');
    return answer;
  },
  async (prompt) => {
    const begun = await server.post('/v1/responses', { input: prompt, background: true });
    assert.equal(begun.status, 200, begun.text);
    for (;;) {
      const { json } = await server.get(`/v1/responses/${begun.json.id}`);
      if (json.status === 'failed') return { text: textOfResponse(json), error: json.error.message };
      if (json.status === 'completed') return { text: textOfResponse(json), tokens: json.usage.output_tokens };
      assert.match(json.status, /^(queued|in_progress)$/);
      await sleep(20);
    }
  },
];
// It thinks until it is ended.
const hold = async (see) => chatEnd(await stream('/v1/chat/completions', { messages: user('hold') }, see,
  openAi((choice) => choice.delta.reasoning_content ?? '')));
// A completion knows no thinking: the mark of its end, which the script writes, may be text there.
const clean = (text) => text.replace('</think>', '');

const status = async () => (await server.get('/v1/status')).json;
const settled = async () => {
  for (let i = 0; ; i += 1) {
    const now = await status();
    if (now.activity.in_flight === 0 || i > 500) return now;
    await sleep(20);
  }
};
const descriptors = () => readdirSync(`/proc/${child.child.pid}/fd`).length;

// What each answer is without a fault.
const right = [];
const checks = new Checks();
await checks.run('without a fault', async () => {
  for (const [i, ask] of dialects.entries()) {
    const answer = await ask(`${names[i]}-decode`, ignore);
    assert.equal(answer.error, undefined);
    assert.equal(clean(answer.text), textOf(names[i]));
    assert.ok(answer.tokens >= words, `${answer.tokens} tokens`);
    right.push(answer.tokens);
  }
});

const totals = {};
async function round(number) {
  const phase = phases[number % phases.length];
  const signal = signals[Math.floor(number / phases.length) % signals.length];
  const before = await settled();
  const { pid } = before.engine.process;
  const holders = [];
  if (phase === 'queue') {
    // They take every place.
    let held = 0;
    for (let i = 0; i < names.length; i += 1) {
      let seen = false;
      holders.push(hold((text) => {
        if (text && !seen) held += 1;
        seen ||= text !== '';
      }));
      holders.at(-1).catch(ignore); // it is awaited later
    }
    while (held < names.length) await sleep(5);
  }
  // The moment: after a time, or after so many words of the first stream.
  let shoot;
  const shot = new Promise((resolve) => (shoot = resolve)).then((delay) => sleep(delay)).then(() => process.kill(pid, signal));
  const at = { decode: 1 + random(words - 10), end: words - 1 }[phase];
  let taken = false; // all of them, by the server
  const see = (text) => {
    if (taken && at && text.split(' ').length > at) shoot(phase === 'end' ? random(8 * pace) : 0);
  };
  const answers = dialects.map((ask, i) => ask(`${names[i]}-${phase}`, see));
  for (const answer of answers) answer.catch(ignore);
  const wanted = before.activity.requests + holders.length + answers.length;
  while ((await status()).activity.requests < wanted) await sleep(2);
  taken = true;
  if (!at) shoot(random(phase === 'prompt' ? 400 : 50));
  await shot;
  const ended = await Promise.all(answers);
  const tally = { whole: 0, failed: 0 };
  for (const [i, answer] of ended.entries()) {
    const text = clean(answer.text);
    if (answer.error === undefined) {
      assert.equal(text, textOf(names[i]), `${names[i]}: wrong text`);
      assert.equal(answer.tokens, right[i], `${names[i]}: wrong count`);
      tally.whole += 1;
    } else {
      assert.ok(textOf(names[i]).startsWith(text), `${names[i]}: '${text}'`);
      assert.match(answer.error, /^the engine (was ended by signal 9|said nothing for)/);
      tally.failed += 1;
    }
  }
  // What had told nothing is run again; what was in the middle is not.
  if (phase === 'queue' || phase === 'prompt') assert.equal(tally.failed, 0, JSON.stringify(ended.map((a) => a.error)));
  if (phase === 'decode') assert.ok(tally.failed > 0, 'no answer was cut');
  for (const holder of await Promise.all(holders)) {
    assert.ok('held '.repeat(1000).startsWith(holder.text), holder.text);
    assert.match(holder.error, /^the engine /);
    tally.failed += 1;
  }
  for (let i = 0; ; i += 1) {
    const next = await server.chat({ messages: user('next') });
    if (next.status === 200) {
      assert.equal(next.content, 'fine');
      break;
    }
    assert.equal(next.status, 503);
    assert.ok(i < 600, 'the engine does not come back');
    await sleep(50);
  }
  assert.throws(() => process.kill(pid, 0), 'the old engine is still there');
  const after = await settled();
  const more = (name) => after.activity.finished[name] - before.activity.finished[name];
  assert.equal(after.activity.in_flight, 0);
  assert.equal(more('stop'), tally.whole + 1, 'finished.stop');
  assert.equal(more('error'), tally.failed, 'finished.error');
  assert.equal(more('cancelled') + more('length') + more('tool_calls'), 0);
  assert.equal(after.activity.requests - before.activity.requests, tally.whole + tally.failed + 1);
  assert.ok(after.engine.process.restarts > before.engine.process.restarts);
  for (const slot of (await server.get('/slots')).json) assert.equal(slot.is_processing, false);
  const total = (totals[`${phase} ${signal}`] ??= { rounds: 0, whole: 0, failed: 0 });
  total.rounds += 1;
  total.whole += tally.whole;
  total.failed += tally.failed;
}

const open = descriptors();
await checks.run(`${rounds} faults`, async () => {
  for (let i = 0; i < rounds; i += 1) {
    try {
      await round(i);
    } catch (error) {
      error.message = `round ${i} (${phases[i % 4]}, ${signals[Math.floor(i / 4) % 2]}): ${error.message}`;
      throw error;
    }
  }
});
for (const [name, total] of Object.entries(totals)) {
  console.log(`      ${name}: ${total.rounds} times, ${total.whole} answers whole, ${total.failed} ended with an error`);
}
await checks.run('nothing is left open', async () => {
  // This client keeps its idle connections for some seconds.
  for (let i = 0; descriptors() > open + 8 && i < 100; i += 1) await sleep(200);
  assert.ok(descriptors() <= open + 8, `${descriptors()} descriptors, ${open} before`);
});

await child.stop();
rmSync(folder, { recursive: true });
process.exit(checks.finish());

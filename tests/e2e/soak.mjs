// Eight clients, a server whose engine is killed (SIGKILL) and which is started anew now and then, all
// with one cache folder. Conversations go on, are edited and asked again; connections are closed in the
// middle. Every whole answer is the one that a server without drafts and caches gives, errors come only
// where something was killed, and when all is quiet nothing is open.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/soak.mjs [SECONDS]      (20)
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { startServer } from './server.mjs';

const seconds = Number(process.argv[2] ?? 20);
const clients = 8;
const folder = mkdtempSync(path.join(os.tmpdir(), 'strata-soak-'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Deterministic, but for the order in which clients come.
let state = 4711;
const draw = (below) => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return Math.floor(state / 65536) % below;
};

// With --parity a prompt's ids are those of its text, whoever asked before.
const common = ['--parity', '--log-level', 'off'];
const flags = [...common, '--cache-dir', path.join(folder, 'cache'), '--cache-ram', '8M', '--cache-disk', '32M',
  '--parallel', '4'];
const solo = await startServer([...common, '--drafts', 'off', '--cache-ram', '0', '--parallel', '1']);
let server = await startServer(flags);
let faults = 0; // counts up before and after something is killed or stopped: odd means just now
let changing = false; // the server is being started anew

// {text, closed, error}: whole, closed by us after some bytes, or failed.
function chat(port, body, closeAfter = Infinity) {
  const content = JSON.stringify(body);
  return new Promise((resolve) => {
    let text = '', raw = 0, failed;
    const request = http.request({
      port, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions', agent: false,
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(content) },
    }, (response) => {
      response.setEncoding('utf8');
      response.on('data', (data) => {
        text += data;
        raw += data.length;
        if (raw < closeAfter) return;
        resolve({ closed: true });
        request.destroy();
      });
      response.on('end', () => resolve(whole(response.statusCode, text, body.stream)));
      response.on('error', (error) => resolve({ error: error.message }));
    });
    request.on('error', (error) => resolve({ error: error.message }));
    request.end(content);
    if (closeAfter === 0) setTimeout(() => { resolve({ closed: true }); request.destroy(); }, 20);
  });
}

function whole(status, text, streamed) {
  if (status !== 200) return { error: `${status}: ${text.slice(0, 300)}` };
  if (!streamed) {
    const { choices, usage } = JSON.parse(text);
    return { text: choices[0].message.content, finish: choices[0].finish_reason, usage };
  }
  const answer = { text: '' };
  for (const line of text.split('\n')) {
    if (!line.startsWith('data: {')) continue;
    const event = JSON.parse(line.slice(6));
    if (event.error) return { error: event.error.message };
    answer.text += event.choices?.[0]?.delta?.content ?? '';
    answer.finish = event.choices?.[0]?.finish_reason ?? answer.finish;
    if (event.usage) answer.usage = event.usage;
  }
  return text.includes('data: [DONE]') ? answer : { error: 'the stream has no end' };
}

// One at a time; the same question once only.
const known = new Map();
function soloAnswer(body) {
  const key = JSON.stringify({ ...body, stream: false, stream_options: undefined });
  if (!known.has(key)) known.set(key, chat(solo.port, JSON.parse(key)));
  return known.get(key);
}

const questions = ['Hello', 'What is the capital of France?', 'Tell me a story about a cat.', 'Who are you?',
  'What is 3 plus 4?', 'Say: one two three one two three one two three'];
const systems = [undefined, 'You are a helpful assistant. Be brief and polite, and always say what you know.'];
const tally = { answers: 0, closed: 0, failed: 0, cached: 0, kills: 0, restarts: 0, wrong: 0 };

async function client(end) {
  let messages = [];
  while (Date.now() < end && tally.wrong === 0) {
    if (changing) {
      await sleep(20);
      continue;
    }
    const action = draw(8);
    if (messages.length > 9 || action === 0) messages = [];
    if (messages.length > 2 && action === 1) messages = messages.slice(0, 1 + (messages.length % 2));
    if (messages.length === 0) {
      const system = systems[draw(systems.length)];
      if (system) messages.push({ role: 'system', content: system });
    }
    if (action !== 2 || messages.at(-1)?.role !== 'user')
      messages.push({ role: 'user', content: questions[draw(questions.length)] });
    const body = {
      model: 'any', messages, max_tokens: 24, chat_template_kwargs: { enable_thinking: false },
      temperature: draw(2), seed: 1 + draw(2), stream: draw(2) === 0,
    };
    if (body.stream) body.stream_options = { include_usage: true };
    const before = faults;
    const answer = await chat(server.port, body, draw(5) === 0 ? draw(3) * 300 : Infinity);
    const disturbed = faults !== before || faults % 2 === 1;
    if (answer.closed) {
      tally.closed += 1;
    } else if (answer.error) {
      tally.failed += 1;
      if (!disturbed) {
        tally.wrong += 1;
        console.log(`FAIL  an error although nothing was killed: ${answer.error}`);
      }
    } else {
      const expected = await soloAnswer(body);
      tally.answers += 1;
      tally.cached += answer.usage.prompt_tokens_details.cached_tokens;
      if (answer.text !== expected.text || answer.finish !== expected.finish) {
        tally.wrong += 1;
        console.log(`FAIL  ${JSON.stringify(body)}: ${JSON.stringify(answer)}, but alone ` +
          JSON.stringify(expected));
      }
      messages = [...messages, { role: 'assistant', content: answer.text }];
      continue;
    }
    if (answer.error) await sleep(100);
    if (messages.at(-1).role === 'user') messages = messages.slice(0, -1);
  }
}

async function status() {
  return (await fetch(`${server.url}/v1/status`)).json();
}

async function engineProcess() {
  return (await status()).engine.process;
}

// By turns: a server whose engine dies often waits longer each time before it starts another.
async function disturb(end) {
  for (let turn = 0; Date.now() < end - 1500; turn += 1) {
    await sleep(1500 + draw(1500));
    faults += 1;
    if (turn % 2 === 0) {
      const { pid, restarts } = await engineProcess();
      if (pid > 0) process.kill(pid, 'SIGKILL');
      tally.kills += 1;
      // Until another one is there, requests may be refused.
      for (let i = 0; i < 400; i += 1) {
        const now = await engineProcess();
        if (now.up && now.restarts > restarts) break;
        await sleep(25);
      }
    } else {
      changing = true;
      await server.stop();
      server = await startServer(flags);
      changing = false;
      tally.restarts += 1;
    }
    faults += 1;
  }
}

const end = Date.now() + seconds * 1000;
await Promise.all([disturb(end), ...Array.from({ length: clients }, () => client(end))]);
let activity;
for (let i = 0; i < 100; i += 1) {
  ({ activity } = await status());
  if (activity.in_flight === 0) break;
  await sleep(50);
}
if (activity.in_flight !== 0) {
  tally.wrong += 1;
  console.log(`FAIL  ${activity.in_flight} requests are open although nobody asks`);
}
await server.stop();
await solo.stop();
rmSync(folder, { recursive: true });
console.log(Object.entries(tally).map(([name, count]) => `${count} ${name}`).join(', '));
if (tally.answers === 0 || tally.kills + tally.restarts === 0 || tally.cached === 0) {
  console.log('FAIL  nothing was tested');
  process.exit(1);
}
process.exit(tally.wrong === 0 ? 0 : 1);

// What caches, batches and the scheduler are worth, as a client of the demo model sees it: time to the
// first token cold, for a follow-up turn, after a restart and for the same again; tokens a second of
// one client and of eight; how long a prompt of 2,000 tokens holds another client's tokens up. Prints a
// table; ends with 1 where an aim is missed. Wants a machine that does nothing else.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/timings.mjs [RUNS]
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { startServer } from './server.mjs';

const runs = Number(process.argv[2] ?? 3);
const folder = mkdtempSync(path.join(os.tmpdir(), 'strata-timings-'));
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const ms = (value) => `${value.toFixed(1)} ms`;

// Posts, streaming: {first, arrivals (ms since the request; of each token), cached, prompt, text}.
function stream(server, body) {
  const text = JSON.stringify({
    model: 'any', temperature: 0, stream: true, stream_options: { include_usage: true },
    chat_template_kwargs: { enable_thinking: false }, ...body,
  });
  return new Promise((resolve, reject) => {
    const start = performance.now();
    const answer = { start, arrivals: [], text: '' };
    let rest = '';
    const request = http.request({
      port: server.port, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions',
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) },
    }, (response) => {
      response.on('data', (data) => {
        const now = performance.now();
        const lines = (rest + data).split('\n');
        rest = lines.pop();
        for (const line of lines) {
          if (!line.startsWith('data: {')) continue;
          const event = JSON.parse(line.slice(6));
          if (event.error) reject(new Error(JSON.stringify(event.error)));
          const content = event.choices?.[0]?.delta?.content;
          if (content) {
            answer.arrivals.push(now - start);
            answer.text += content;
          }
          if (event.usage) answer.usage = event.usage;
        }
      });
      response.on('end', () => {
        if (!answer.usage) reject(new Error(`no usage: ${response.statusCode}`));
        answer.first = answer.arrivals[0];
        answer.seconds = (performance.now() - start) / 1000;
        answer.cached = answer.usage?.prompt_tokens_details.cached_tokens;
        resolve(answer);
      });
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(text);
  });
}

// About so many tokens that no other call has given.
let seed = 1;
function words(tokens) {
  const some = ['tree', 'river', 'stone', 'house', 'light', 'water', 'green', 'small', 'walk', 'find'];
  let text = '';
  for (let i = 0; i < tokens; i += 1) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    text += ` ${some[Math.floor(seed / 65536) % some.length]}`;
  }
  return text;
}
const user = (content) => ({ role: 'user', content });
const assistant = (content) => ({ role: 'assistant', content });
// Answers that do not end by themselves.
const endless = { logit_bias: { 8144: -100, 8146: -100 } };

const rows = [];
let missed = 0;
function report(name, value, aim, reached) {
  rows.push(`| ${name} | ${value} | ${aim} | ${reached ? 'yes' : '**no**'} |`);
  if (!reached) missed += 1;
}

async function conversation() {
  const flags = ['--cache-dir', path.join(folder, 'cache'), '--log-level', 'error'];
  let server = await startServer(flags);
  await stream(server, { messages: [user('Hello')], max_tokens: 8 }); // so that all is there
  const cold = [], next = [], again = [], restarted = [], regenerated = [];
  const talks = [];
  let tokens;
  for (let run = 0; run < runs; run += 1) {
    const messages = [user(`${words(3970)} What is the capital of France?`)];
    const first = await stream(server, { messages, max_tokens: 16 });
    cold.push(first.first);
    tokens = first.usage.prompt_tokens;
    messages.push(assistant(first.text), user('What is 3 plus 4?'));
    const second = await stream(server, { messages, max_tokens: 16 });
    next.push(second.first);
    const same = await stream(server, { messages, max_tokens: 16 });
    again.push(same.first);
    regenerated.push(same.usage.prompt_tokens - same.cached);
    if (same.text !== second.text) throw new Error('another answer to the same question');
    talks.push([...messages, assistant(same.text), user('Who are you?')]);
  }
  await server.stop();
  server = await startServer(flags);
  await stream(server, { messages: [user('Hello')], max_tokens: 8 });
  const read = [];
  for (const messages of talks) {
    const third = await stream(server, { messages, max_tokens: 16 });
    restarted.push(third.first);
    read.push(third.usage.prompt_tokens - third.cached);
  }
  await server.stop();
  const share = (values) => median(values) / median(cold);
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  report(`first token, cold, ${tokens} tokens`, ms(median(cold)), '', true);
  report('first token of the follow-up turn', `${ms(median(next))}, ${percent(share(next))} of cold`, '5 %',
    share(next) <= 0.05);
  report('the same again', `${ms(median(again))}, ${Math.max(...regenerated)} tokens read`, 'a chunk (512)',
    Math.max(...regenerated) <= 512);
  report('first token of a turn after a restart',
    `${ms(median(restarted))}, ${percent(share(restarted))} of cold, ${Math.max(...read)} tokens read`, '10 %',
    share(restarted) <= 0.1);
}

async function batch(drafts) {
  const server = await startServer(['--parallel', '8', '--drafts', drafts, '--log-level', 'error']);
  const rate = async (clients) => {
    const start = performance.now();
    const answers = await Promise.all(Array.from({ length: clients }, () => stream(server, {
      messages: [user(`Tell me a story about a${words(4)}.`)], max_tokens: 256, ...endless,
    })));
    const tokens = answers.reduce((sum, answer) => sum + answer.usage.completion_tokens, 0);
    return (1000 * tokens) / (performance.now() - start);
  };
  await rate(8);
  const one = [], eight = [];
  for (let run = 0; run < runs; run += 1) {
    one.push(await rate(1));
    eight.push(await rate(8));
  }
  await server.stop();
  const ratio = median(eight) / median(one);
  report(`tokens/s of one client, of eight, drafts ${drafts}`,
    `${median(one).toFixed(0)}, ${median(eight).toFixed(0)}: ${ratio.toFixed(2)} times`, '3 times', ratio >= 3);
}

// A stream that decodes while another client's prompt is read.
async function neighbours() {
  const trace = path.join(folder, 'trace');
  const server = await startServer(['--trace', trace, '--log-level', 'error']);
  const gaps = [], alone = [];
  for (let run = 0; run < runs; run += 1) {
    const decoding = stream(server, {
      messages: [user(`Tell me a story about a${words(4)}.`)], max_tokens: 1500, ...endless,
    });
    await new Promise((resolve) => setTimeout(resolve, 150));
    const begin = performance.now();
    const reader = await stream(server, { messages: [user(words(1980))], max_tokens: 1 });
    const end = performance.now();
    const { start, arrivals } = await decoding;
    for (let i = 1; i < arrivals.length; i += 1) {
      const at = start + arrivals[i];
      (at > begin && at - (arrivals[i] - arrivals[i - 1]) < end ? gaps : alone)
        .push(arrivals[i] - arrivals[i - 1]);
    }
    if (reader.usage.prompt_tokens < 1900) throw new Error(`${reader.usage.prompt_tokens} tokens read`);
  }
  await server.stop();
  const chunks = [];
  for (const line of readFileSync(trace, 'utf8').trim().split('\n')) {
    const round = JSON.parse(line);
    const { parts } = round;
    if (round.prompt_rows > 100 && parts.some((part) => part.rows <= 16))
      chunks.push(round.draft_ms + round.window_ms + round.sample_ms);
  }
  const longest = Math.max(...chunks), gap = Math.max(...gaps);
  report(`longest gap between tokens while another's 2,000 tokens are read (${chunks.length} chunks, longest ` +
    `${ms(longest)}; gaps else: median ${ms(median(alone))})`, ms(gap), 'a chunk',
  gap <= longest * 1.1 + 2);
}

try {
  await conversation();
  await batch('off');
  await batch('auto');
  await neighbours();
} finally {
  rmSync(folder, { recursive: true });
}
console.log(`| what | measured | aim | reached |\n| --- | ---: | ---: | --- |\n${rows.join('\n')}`);
process.exit(missed === 0 ? 0 : 1);

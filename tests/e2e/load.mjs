// Load: many streams at once, and many short requests, against a scripted engine. The client runs on
// the same cores.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/load.mjs [STREAMS]
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { Checks, startServer } from './server.mjs';

const streams = Number(process.argv[2] ?? 500);
const tokens = 60;
const pace = 100; // milliseconds
const requests = 10000;

const folder = mkdtempSync(path.join(os.tmpdir(), 'strata-load-'));
const script = path.join(folder, 'script.json');
writeFileSync(script, JSON.stringify({
  scripts: [
    { match: 'stream', text: '</think>word word', repeat: true, pace_ms: pace },
    { text: '</think>fine' },
  ],
}));
const server = await startServer(['--script', script, '--parallel', String(streams + 32), '--connections', '2000',
  '--log-level', 'error']);
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
const { port } = server;

// Seconds of CPU that the server's own process has had.
function cpuSeconds() {
  const fields = readFileSync(`/proc/${server.child.pid}/stat`, 'utf8').split(') ').pop().split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function post(body, onData) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const request = http.request({
      port, host: '127.0.0.1', agent, method: 'POST', path: '/v1/chat/completions',
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) },
    }, (response) => {
      let all = '';
      response.on('data', (data) => (onData ? onData(data) : (all += data)));
      response.on('end', () => resolve({ status: response.statusCode, text: all }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(text);
  });
}

const checks = new Checks();


await checks.run(`${streams} open streams of ${1000 / pace} tokens/s`, async () => {
  const late = [];
  let count = 0;
  const one = async (_, i) => {
    // People do not press return all at once; together, tokens would wait for each other.
    await new Promise((resolve) => setTimeout(resolve, (1000 * i) / streams));
    const arrivals = [];
    const answer = await post({
      model: 'any', stream: true, max_tokens: tokens, messages: [{ role: 'user', content: 'stream' }],
    }, (data) => {
      const now = performance.now();
      for (const _ of data.toString().matchAll(/"content":"[^"]+"/g)) arrivals.push(now);
    });
    assert.equal(answer.status, 200);
    assert.ok(arrivals.length >= tokens - 3, `${arrivals.length} tokens`);
    count += arrivals.length;
    const begin = Math.min(...arrivals.map((time, i) => time - i * pace));
    arrivals.forEach((time, i) => late.push(time - i * pace - begin));
  };
  const before = cpuSeconds();
  await Promise.all(Array.from({ length: streams }, one));
  const cpu = (cpuSeconds() - before) / count;
  late.sort((a, b) => a - b);
  const p99 = late[Math.floor(late.length * 0.99)];
  console.log(`      ${count} tokens, p99 of the added time ${p99.toFixed(2)} ms, ` +
    `${(cpu * 1e6).toFixed(1)} us of the server's CPU for each`);
  assert.ok(p99 < 5, `p99 is ${p99.toFixed(2)} ms`);
  assert.ok(cpu < 50e-6, `${(cpu * 1e6).toFixed(1)} us a token`);
});

await checks.run(`${requests} short requests, none lost`, async () => {
  let left = requests;
  const worker = async () => {
    while (left > 0) {
      left -= 1;
      const answer = await post({ model: 'any', messages: [{ role: 'user', content: 'short' }] });
      assert.equal(answer.status, 200);
      assert.equal(JSON.parse(answer.text).choices[0].message.content, 'fine');
    }
  };
  await Promise.all(Array.from({ length: 32 }, worker));
  const status = await (await fetch(`${server.url}/v1/status`)).json();
  assert.equal(status.activity.in_flight, 0);
  assert.ok(status.activity.finished.stop >= requests);
});

agent.destroy();
await server.stop();
rmSync(folder, { recursive: true });
process.exit(checks.finish());

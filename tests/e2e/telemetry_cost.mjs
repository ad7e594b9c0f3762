// What the sampler costs while an answer is written: the same answer with someone looking and with
// --no-telemetry, beside a second server without as the control, in alternating order; and the
// sampler thread's own processor time.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/telemetry_cost.mjs [ROUNDS]
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { Server } from './blackbox/client.mjs';
import { Checks, startServer } from './server.mjs';

const rounds = Number(process.argv[2] ?? 10);
const kTokens = 2000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
const checks = new Checks();

const flags = ['--threads', '1', '--drafts', 'off', '--cache-ram', '0', '--log-level', 'off'];
const sides = {
  on: await startServer(flags),
  off: await startServer([...flags, '--no-telemetry']),
  control: await startServer([...flags, '--no-telemetry']),
};
// It may not end, and is the same in every run.
const story = {
  messages: [{ role: 'user', content: 'Tell me a story.' }], temperature: 1, seed: 7, max_tokens: kTokens,
  logit_bias: { 8144: -100, 8146: -100 },
};

// Nanoseconds that the thread of this name has had.
function threadTime(pid, name) {
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    if (readFileSync(`/proc/${pid}/task/${task}/comm`, 'utf8').trim() !== name) continue;
    return Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]);
  }
  throw new Error(`no thread '${name}'`);
}

async function speed(side) {
  const server = new Server(sides[side].url);
  const looks = setInterval(() => side === 'on' && server.get('/v1/telemetry?since=1000000000'), 1000);
  const { json, text } = await server.post('/v1/chat/completions', story);
  clearInterval(looks);
  assert.equal(json.usage?.completion_tokens, kTokens, text);
  return { speed: json.timings.predicted_per_second, text: json.choices[0].message };
}

await checks.run(`${rounds} rounds: the same text, and no difference beyond the control's`, async () => {
  const names = Object.keys(sides);
  for (const side of names) await speed(side); // warm
  const ratios = { on: [], control: [] };
  for (let n = 0; n < rounds; n += 1) {
    const result = {};
    // Each comes first, second and last in turn, in both directions.
    const order = names.map((_, place) => names[(place + n) % 3]);
    for (const side of n % 2 === 0 ? order : order.reverse()) result[side] = await speed(side);
    for (const side of ['on', 'control']) {
      assert.deepEqual(result[side].text, result.off.text);
      ratios[side].push(result[side].speed / result.off.speed);
    }
  }
  for (const [side, all] of Object.entries(ratios))
    console.log(`      speed of '${side}' over 'off': median ${median(all).toFixed(4)}, from ${Math.min(...all).toFixed(4)} to ${Math.max(...all).toFixed(4)}`);
  const spread = Math.max(...ratios.control) - Math.min(...ratios.control);
  assert.ok(Math.abs(median(ratios.on) - 1) <= Math.max(0.01, spread), `${ratios.on.map((ratio) => ratio.toFixed(4))}`);
});

await checks.run('the sampler takes less than 0.3 % of a core while someone looks', async () => {
  const { pid } = sides.on.child;
  const server = new Server(sides.on.url);
  const first = (await server.get('/v1/telemetry')).json.seq;
  const [start, began] = [threadTime(pid, 'sampler'), performance.now()];
  for (let n = 0; n < 20; n += 1) {
    await sleep(1000);
    await server.get('/v1/telemetry?since=1000000000');
  }
  const [used, passed] = [threadTime(pid, 'sampler') - start, (performance.now() - began) * 1e6];
  const samples = (await server.get('/v1/telemetry')).json.seq - first;
  console.log(`      ${samples} samples in ${(passed / 1e9).toFixed(1)} s: ${((100 * used) / passed).toFixed(4)} % of a core, ${(used / samples / 1000).toFixed(0)} us a sample`);
  assert.ok(samples >= 10, `${samples} samples`);
  assert.ok(used / passed < 0.003);
});

await Promise.all(Object.values(sides).map((side) => side.stop()));
process.exit(checks.finish());

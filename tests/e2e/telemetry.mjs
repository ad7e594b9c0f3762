// /metrics as Prometheus reads it, the dashboard, what a sampler may not do, and chats that stay.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Server } from './blackbox/client.mjs';
import { Checks, dataFolder, startServer } from './server.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const checks = new Checks();
async function until(what, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; ; await sleep(50)) {
    const found = await what();
    if (found) return found;
    assert.ok(Date.now() < end, `not within ${seconds} s: ${what}`);
  }
}

const child = await startServer(['--log-level', 'off']);
const server = new Server(child.url);
const metrics = async () => (await server.get('/metrics')).text;
// "name{labels}" to its value.
const values = (text) => new Map(text.split('\n').filter((line) => line && !line.startsWith('#')).map((line) => {
  const space = line.lastIndexOf(' ');
  return [line.slice(0, space), Number(line.slice(space + 1))];
}));

// Answers under way, one after the other, until `stop`.
function busy(count = 3) {
  const abort = new AbortController();
  const story = { messages: [{ role: 'user', content: 'Tell me a story.' }], stream: true, temperature: 1, max_tokens: 6000, logit_bias: { 8144: -100, 8146: -100 } };
  const write = async () => {
    while (!abort.signal.aborted) await server.post('/v1/chat/completions', story, { signal: abort.signal }).catch(() => undefined);
  };
  const running = Array.from({ length: count }, write);
  return async () => {
    abort.abort();
    await Promise.all(running);
  };
}

await checks.run('promtool accepts the metrics while answers run', async () => {
  const stop = busy();
  // With the machine's values, too, which come with the second look.
  const text = await until(async () => {
    const now = await metrics();
    return /\nvllm:num_requests_running\{model_name="[^"]+"\} [23]\n/.test(now) && /\nstrata_machine_memory_available_bytes \d/.test(now) && now;
  }).finally(stop);
  const { status: code, stdout, stderr, error } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  assert.ok(!error, `promtool is missing (scripts/install_dependencies.sh test): ${error}`);
  // It reads all of it. What it would have named otherwise are the names of others, which have colons.
  const complaints = `${stdout}${stderr}`.split('\n').filter((line) => line !== '');
  assert.ok(code === 0 || code === 3, `${code}: ${stderr}`);
  for (const line of complaints) assert.match(line, /^(vllm|llamacpp):\S+ /);
  // That it can refuse is shown, too.
  assert.equal(spawnSync('promtool', ['check', 'metrics'], { input: 'a{b="c} 1\n', encoding: 'utf8' }).status, 1);
  const lint = spawnSync('promtool', ['check', 'metrics'], { input: '# HELP strata_x x\n# TYPE strata_x counter\nstrata_x 1\n', encoding: 'utf8' });
  assert.match(`${lint.stdout}${lint.stderr}`, /^strata_x /);
});

await checks.run('every metric that the dashboard asks for is there', async () => {
  // The engine's own come with its first sign of life.
  const all = await until(async () => {
    const now = await metrics();
    return now.includes('strata_ngram_rows_requested_total{') && now;
  });
  const families = new Map([...all.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type]));
  const dashboard = JSON.parse(readFileSync(path.join(here, '../../docs/grafana.json'), 'utf8'));
  const asked = new Set();
  const walk = (value) => {
    if (typeof value?.expr === 'string') for (const [name] of value.expr.matchAll(/(?:vllm:|llamacpp:|strata_)\w+/g)) asked.add(name);
    if (value !== null && typeof value === 'object') Object.values(value).forEach(walk);
  };
  walk(dashboard);
  assert.ok(asked.size > 20, `${asked.size} metrics`);
  for (const name of asked) {
    const base = name.replace(/_(bucket|sum|count)$/, '');
    assert.ok(families.has(name) || families.get(base) === 'histogram', `${name} is not in /metrics`);
  }
  assert.ok(dashboard.panels.every((panel) => panel.type === 'row' || panel.targets?.length > 0));
});

await checks.run('counters and histograms survive the death of the engine', async () => {
  const question = { messages: [{ role: 'user', content: 'What is the capital of France?' }], temperature: 0, max_tokens: 64 };
  for (let n = 0; n < 2; n += 1) assert.equal((await server.chat({ ...question, cache_prompt: n === 0 })).status, 200);
  const counted = (text) => new Map([...values(text)].filter(([name]) => /(_total|_count|_sum|_bucket)(\{|$)/.test(name)));
  // The engine tells its own counts once a second.
  const before = await until(async () => {
    const now = counted(await metrics());
    return now.get('strata_draft_rounds_total') > 0 && now.get('strata_ngram_rows_requested_total{table="0"}') > 0 && now;
  });
  const { pid } = (await server.get('/v1/status')).json.engine.process;
  process.kill(pid, 'SIGKILL');
  await until(async () => {
    const now = (await server.get('/v1/status')).json.engine.process;
    return now.up && now.pid !== pid;
  });
  assert.equal((await server.chat(question)).status, 200);
  const after = await until(async () => {
    const now = counted(await metrics());
    return now.get('strata_draft_rounds_total') > before.get('strata_draft_rounds_total') && now;
  });
  for (const [name, value] of before) assert.ok(after.get(name) >= value, `${name}: ${value}, then ${after.get(name)}`);
  assert.equal(after.get('strata_engine_restarts_total'), 1);
  assert.ok([...after].some(([name, value]) => name.startsWith('vllm:e2e_request_latency_seconds_count') && value >= 3));
  // And the sampler follows the new process.
  await until(async () => {
    const { fields, samples } = (await server.get('/v1/telemetry')).json;
    const column = 1 + fields.findIndex(({ name, group }) => name === 'Engine' && group === 'Memory of processes');
    return samples.length > 0 && samples.at(-1)[column] > 1e6;
  });
});

await checks.run('looking starts no process and keeps no descriptor', async () => {
  // Those of a process that has ended meanwhile are none.
  const childrenOf = (pid) => readdirSync('/proc').filter((name) => {
    try {
      return /^\d+$/.test(name) && Number(readFileSync(`/proc/${name}/stat`, 'utf8').split(') ').pop().split(' ')[1]) === pid;
    } catch {
      return false;
    }
  });
  const engine = String((await server.get('/v1/status')).json.engine.process.pid);
  const open = () => readdirSync(`/proc/${child.child.pid}/fd`).length;
  await server.get('/v1/telemetry');
  await sleep(1500);
  const before = open();
  for (let n = 0; n < 100; n += 1) {
    await server.get(n % 2 === 0 ? '/metrics' : '/v1/telemetry?since=1000000');
    assert.deepEqual(childrenOf(child.child.pid), [engine]);
  }
  await sleep(1500);
  assert.ok(open() <= before + 4, `${before} descriptors, then ${open()}`);
});

await checks.run('samples have the form that is promised, and no number twice', async () => {
  const first = await until(async () => {
    const now = (await server.get('/v1/telemetry')).json;
    return now.samples.length >= 2 && now;
  });
  assert.equal(first.interval_s, 1);
  for (const { name, unit, group } of first.fields) assert.ok(name && typeof unit === 'string' && group);
  for (const sample of first.samples) assert.equal(sample.length, first.fields.length + 1);
  await sleep(1200);
  const next = (await server.get(`/v1/telemetry?since=${first.seq}`)).json;
  assert.equal(next.samples.length, next.seq - first.seq);
  for (const [time] of next.samples) assert.ok(time > first.samples.at(-1)[0]);
  assert.equal(typeof first.facts.nvidia, 'string');
});

await child.stop();

await checks.run('switched off, there are no samples and nothing of the machine', async () => {
  const off = await startServer(['--no-telemetry', '--log-level', 'off']);
  const plain = new Server(off.url);
  assert.equal((await plain.get('/v1/telemetry')).status, 501);
  const text = (await plain.get('/metrics')).text;
  assert.match(text, /^vllm:num_requests_running/m);
  assert.doesNotMatch(text, /strata_machine/);
  await off.stop();
});

await checks.run('chats are kept in the data folder of the user, for him alone, and survive', async () => {
  const data = path.join(dataFolder(), 'deeper');
  const one = await startServer(['--log-level', 'off'], { data });
  const made = await new Server(one.url).post('/v1/chats', { title: 'kept', content: { a: 1 } });
  assert.equal(made.status, 200, made.text);
  const settings = (await new Server(one.url).get('/v1/status')).json.engine.settings;
  assert.deepEqual(settings.find(({ name }) => name === 'chats_db'), { name: 'chats_db', value: `${data}/strata/chats.db`, source: 'built-in' });
  // Another server meanwhile: it works, in memory, and says so.
  const other = await startServer([], { data });
  assert.equal((await new Server(other.url).get('/v1/chats')).json.data.length, 0);
  assert.match(other.output.stderr, /chats are kept in memory until the server stops: .*chats\.db/);
  assert.equal((await new Server(other.url).post('/v1/chats', { title: 'lost', content: {} })).status, 200);
  await Promise.all([one.stop(), other.stop()]);
  assert.equal(statSync(path.join(data, 'strata')).mode & 0o777, 0o700);
  assert.equal(statSync(path.join(data, 'strata/chats.db')).mode & 0o777, 0o600);
  const two = await startServer(['--log-level', 'off'], { data });
  assert.deepEqual((await new Server(two.url).get('/v1/chats')).json.data.map(({ title }) => title), ['kept']);
  await two.stop();
});

await checks.run('without a folder that can be written chats are in memory, and the log says it once', async () => {
  const file = path.join(dataFolder(), 'file');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, '');
  const one = await startServer([], { data: file });
  assert.equal((await new Server(one.url).post('/v1/chats', { title: 'x', content: {} })).status, 200);
  await one.stop();
  assert.equal(one.output.stderr.match(/chats are kept in memory/g).length, 1);
  // A place that was named is not left for another one.
  await assert.rejects(startServer(['--chats-db', path.join(file, 'chats.db')]), /chats/);
});

process.exit(checks.finish());

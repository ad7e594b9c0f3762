// An idle server takes no CPU: its threads sleep soon after the last request.
import { readFileSync } from 'node:fs';
import { Checks, startServer } from './server.mjs';

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

// Hundredths of a second that all threads of the processes have had.
function cpuTicks(pids) {
  let ticks = 0;
  for (const pid of pids) {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ');
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks;
}

async function ask(url) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({
      messages: [{ role: 'user', content: 'What is the capital of France?' }],
      max_tokens: 32,
    }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  const { usage } = await response.json();
  return usage.completion_tokens;
}

function expectTicks(name, ticks, most) {
  console.log(`      ${name}: ${10 * ticks} ms of CPU`);
  if (ticks > most) throw new Error(`${10 * ticks} ms, more than ${10 * most}`);
}

const checks = new Checks();
const server = await startServer();
const status = await (await fetch(`${server.url}/v1/status`)).json();
const pids = [server.child.pid, status.engine.process.pid];
try {
  await checks.run('before any request: none', async () => {
    await sleep(1);
    const start = cpuTicks(pids);
    await sleep(2);
    expectTicks('two seconds', cpuTicks(pids) - start, 0);
  });
  for (let round = 1; round <= 3; round += 1) {
    await checks.run(`after request ${round}: none within a second`, async () => {
      const before = cpuTicks(pids);
      const tokens = await ask(server.url);
      const end = cpuTicks(pids);
      expectTicks(`an answer of ${tokens} tokens`, end - before, Infinity);
      if (end === before) throw new Error('an answer takes CPU time: the clock does not work');
      await sleep(1);
      const idle = cpuTicks(pids);
      expectTicks('the first second', idle - end, 2); // a little to fall asleep
      await sleep(2);
      expectTicks('the next two', cpuTicks(pids) - idle, 0);
    });
  }
} finally {
  await server.stop();
}
process.exit(checks.finish());

// The demo model's evaluation prompts through the server, several at a time, greedy.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/eval.mjs [options]
//     --model FILE      GGUF file (default: the demo model)
//     --prompts FILE    default tests/golden/demo-eval.jsonl
//     --tools-only      the categories tool and nocall
//     --limit N         the first N prompts of each category
//     --parallel N      requests at once, and strata serve's --parallel (default 4)
//     --min PERCENT     of all prompts that must be right
//     --min-tools PERCENT   of the tool prompts
//                       default of both: what the model card has right, less 5 % of the prompts
//                       (at least one)
//     --show            prints what was wrong
//
// A tool answer counts only when every call and argument is equal; JSON when it parses to the
// expected object; the others when the expected value stands in the answer.
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import { startServer } from './server.mjs';

const { values: options } = parseArgs({
  options: {
    model: { type: 'string' },
    prompts: { type: 'string', default: new URL('../golden/demo-eval.jsonl', import.meta.url).pathname },
    'tools-only': { type: 'boolean', default: false },
    limit: { type: 'string' },
    parallel: { type: 'string', default: '4' },
    min: { type: 'string' },
    'min-tools': { type: 'string' },
    show: { type: 'boolean', default: false },
  },
});

function readPrompts() {
  const seen = {};
  return readFileSync(options.prompts, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
    .filter((item) => !options['tools-only'] || ['tool', 'nocall'].includes(item.category))
    .filter((item) => {
      seen[item.category] = (seen[item.category] ?? 0) + 1;
      return !options.limit || seen[item.category] <= Number(options.limit);
    });
}

async function ask(url, item) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({
      model: 'demo',
      messages: item.messages,
      ...(item.tools?.length ? { tools: item.tools } : {}),
      temperature: 0,
      max_tokens: 512,
      chat_template_kwargs: {
        enable_thinking: item.enable_thinking,
        reasoning_effort: item.reasoning_effort,
      },
    }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(`${response.status}: ${body.error?.message}`);
  return body;
}

function callsOf(message) {
  return (message.tool_calls ?? []).map((call) => [
    call.function.name,
    JSON.parse(call.function.arguments),
  ]);
}

function parsesTo(text, wanted) {
  try {
    return isDeepStrictEqual(JSON.parse(text.replace(/^```(?:json)?\n([\s\S]*)\n```$/, '$1')), wanted);
  } catch {
    return false;
  }
}

function isRight(item, message) {
  const calls = callsOf(message);
  const content = message.content ?? '';
  if (item.category === 'tool') return isDeepStrictEqual(calls, item.key);
  if (calls.length > 0) return false;
  if (item.category === 'json') return parsesTo(content, item.key);
  // No value to look for (small talk): an answer without a call is what was asked.
  return item.key === null ? content.length > 0 : content.includes(String(item.key));
}

async function runAll(url, prompts) {
  const results = [];
  let next = 0;
  const worker = async () => {
    while (next < prompts.length) {
      const item = prompts[next++];
      try {
        const body = await ask(url, item);
        const { message } = body.choices[0];
        const right = isRight(item, message);
        results.push({ item, right, usage: body.usage });
        if (!right && options.show) {
          console.log(`wrong (${item.category}): wanted ${JSON.stringify(item.key)}, got ` +
            JSON.stringify(message.tool_calls ? callsOf(message) : message.content));
        }
      } catch (error) {
        results.push({ item, right: false, error: String(error) });
        console.log(`failed (${item.category}): ${error}`);
      }
    }
  };
  await Promise.all(Array.from({ length: Number(options.parallel) }, worker));
  return results;
}

const percent = (right, all) => (all === 0 ? 100 : (100 * right) / all);

function report(results, seconds) {
  const rows = new Map();
  let tokens = 0;
  for (const { item, right, usage } of results) {
    const row = rows.get(item.category) ?? { right: 0, all: 0, model: 0 };
    row.all += 1;
    row.right += right ? 1 : 0;
    row.model += item.ok ? 1 : 0;
    rows.set(item.category, row);
    tokens += usage?.completion_tokens ?? 0;
  }
  const total = { right: 0, all: 0, model: 0 };
  console.log('category        right   of   %      model card');
  const line = (name, row) =>
    console.log(`${name.padEnd(14)} ${String(row.right).padStart(6)} ${String(row.all).padStart(4)} ` +
      `${percent(row.right, row.all).toFixed(1).padStart(6)} ${String(row.model).padStart(8)}`);
  for (const [name, row] of rows) {
    line(name, row);
    for (const key of Object.keys(total)) total[key] += row[key];
  }
  line('all', total);
  console.log(`${seconds.toFixed(1)} s, ${tokens} tokens generated`);
  return { total, tool: rows.get('tool') ?? { right: 0, all: 0, model: 0 } };
}

const prompts = readPrompts();
const server = await startServer([
  ...(options.model ? ['-m', options.model] : []), '--parallel', options.parallel,
]);
const begin = Date.now();
const results = await runAll(server.url, prompts);
const { total, tool } = report(results, (Date.now() - begin) / 1000);
await server.stop();

const needed = (row, least) =>
  least === undefined
    ? Math.max(0, row.model - Math.max(1, Math.floor(0.05 * row.all)))
    : Math.ceil((Number(least) / 100) * row.all);
const neededOfAll = needed(total, options.min);
const neededOfTools = needed(tool, options['min-tools']);
const failures = results.filter((result) => result.error).length;
const enough =
  prompts.length > 0 &&
  failures === 0 &&
  total.right >= neededOfAll &&
  tool.right >= neededOfTools;
console.log(enough ? 'passed' : `failed: needed ${neededOfAll} of all and ${neededOfTools} of ` +
  'the tool prompts, and no failed request');
process.exit(enough ? 0 : 1);

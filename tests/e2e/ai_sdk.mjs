// The Vercel AI SDK against `strata serve` with a real model.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/ai_sdk.mjs
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { Checks, startServer } from './server.mjs';

const server = await startServer(['--parallel', '4']);
const provider = createOpenAICompatible({
  name: 'strata', baseURL: `${server.url}/v1`, apiKey: 'none', includeUsage: true,
});
const model = provider('any');
const checks = new Checks();
const quick = {
  model, temperature: 0, maxOutputTokens: 64, maxRetries: 0,
  providerOptions: { strata: { reasoningEffort: 'none' } },
};
const prompt = 'What is the capital of Netherlands?';
let whole;

await checks.run('a text is generated', async () => {
  whole = await generateText({ ...quick, prompt });
  assert.match(whole.text, /Amsterdam/);
  assert.equal(whole.finishReason, 'stop');
  assert.ok(whole.usage.inputTokens > 5 && whole.usage.outputTokens > 0);
});

await checks.run('a text is streamed, with the same words and usage', async () => {
  const result = streamText({ ...quick, prompt });
  let text = '';
  for await (const piece of result.textStream) text += piece;
  assert.equal(text, whole.text);
  assert.equal((await result.usage).outputTokens, whole.usage.outputTokens);
});

await checks.run('thinking arrives as reasoning', async () => {
  const result = streamText({
    ...quick, maxOutputTokens: 300, prompt,
    providerOptions: { strata: { reasoningEffort: 'low' } },
  });
  let reasoning = '';
  for await (const part of result.fullStream) {
    if (part.type === 'reasoning-delta') reasoning += part.text;
    assert.notEqual(part.type, 'error', String(part.error));
  }
  assert.ok(reasoning.length > 0);
});

const weather = (asked) => ({
  ...quick,
  prompt: 'Weather for Oslo, please.',
  stopWhen: stepCountIs(3),
  tools: {
    get_weather: tool({
      description: 'Get the current weather of a city.',
      inputSchema: jsonSchema({
        type: 'object', properties: { city: { type: 'string', description: 'city name' } }, required: ['city'],
      }),
      execute: async ({ city }) => {
        asked.push(city);
        return { temperature: 13, condition: 'sunny' };
      },
    }),
  },
});

await checks.run('a tool runs and its result reaches the answer', async () => {
  const asked = [];
  const result = await generateText(weather(asked));
  assert.deepEqual(asked, ['Oslo']);
  assert.match(result.text, /13/);
});

await checks.run('a tool runs in a stream', async () => {
  const asked = [];
  const types = new Set();
  const result = streamText(weather(asked));
  for await (const part of result.fullStream) {
    types.add(part.type);
    assert.notEqual(part.type, 'error', String(part.error));
  }
  assert.deepEqual(asked, ['Oslo']);
  for (const type of ['tool-input-start', 'tool-input-delta', 'tool-call', 'tool-result']) assert.ok(types.has(type), type);
  assert.match(await result.text, /13/);
});

await server.stop();
process.exit(checks.finish());

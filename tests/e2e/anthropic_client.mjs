// The official `@anthropic-ai/sdk` client against `strata serve` with a real model.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/anthropic_client.mjs
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { Checks, startServer } from './server.mjs';

const server = await startServer(['--parallel', '4']);
const client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
const checks = new Checks();

const quick = { model: 'any', max_tokens: 64, temperature: 0, thinking: { type: 'disabled' } };
const capital = [{ role: 'user', content: 'What is the capital of Netherlands?' }];
const weather = {
  name: 'get_weather',
  description: 'Get the current weather of a city.',
  input_schema: {
    type: 'object',
    properties: {
      city: { type: 'string', description: 'city name' },
      unit: { type: 'string', enum: ['celsius', 'fahrenheit'] },
    },
    required: ['city'],
  },
};

let whole;

await checks.run('a message is answered whole', async () => {
  whole = await client.messages.create({ ...quick, messages: capital });
  assert.equal(whole.type, 'message');
  assert.equal(whole.stop_reason, 'end_turn');
  assert.equal(whole.content.length, 1);
  assert.match(whole.content[0].text, /Amsterdam/);
  assert.ok(whole.usage.input_tokens > 5 && whole.usage.output_tokens > 0);
});

await checks.run('the stream helper builds the same message', async () => {
  let deltas = '';
  const stream = client.messages.stream({ ...quick, messages: capital });
  stream.on('text', (piece) => (deltas += piece));
  const message = await stream.finalMessage();
  assert.equal(message.content[0].text, whole.content[0].text);
  assert.equal(deltas, whole.content[0].text);
  assert.equal(message.stop_reason, 'end_turn');
  assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
});

await checks.run('thinking is a block of its own', async () => {
  const message = await client.messages
    .stream({
      ...quick, max_tokens: 300, messages: capital,
      thinking: { type: 'enabled', budget_tokens: 1024 },
    })
    .finalMessage();
  assert.equal(message.content[0].type, 'thinking');
  assert.ok(message.content[0].thinking.length > 0);
});

await checks.run('a tool is used and its result understood, streamed and whole', async () => {
  const messages = [{ role: 'user', content: 'Weather for Oslo, please.' }];
  const message = await client.messages
    .stream({ ...quick, messages, tools: [weather] })
    .finalMessage();
  assert.equal(message.stop_reason, 'tool_use');
  const use = message.content.find((block) => block.type === 'tool_use');
  assert.equal(use.name, 'get_weather');
  assert.equal(use.input.city, 'Oslo');
  const same = await client.messages.create({ ...quick, messages, tools: [weather] });
  assert.deepEqual(same.content.find((block) => block.type === 'tool_use').input, use.input);
  const answer = await client.messages.create({
    ...quick,
    tools: [weather],
    messages: [
      ...messages,
      { role: 'assistant', content: message.content },
      {
        role: 'user',
        content: [{
          type: 'tool_result', tool_use_id: use.id,
          content: [{ type: 'text', text: '{"temperature": 13, "condition": "sunny"}' }],
        }],
      },
    ],
  });
  assert.match(answer.content[0].text, /13/);
});

await checks.run('tokens are counted as the answer counts them', async () => {
  const counted = await client.messages.countTokens({
    model: 'any', messages: capital, thinking: { type: 'disabled' },
  });
  assert.equal(counted.input_tokens, whole.usage.input_tokens);
});

await checks.run('control tokens in a text count as plain text', async () => {
  const count = async (content) =>
    (await client.messages.countTokens({ model: 'any', messages: [{ role: 'user', content }] }))
      .input_tokens;
  const tokenize = async (content) => {
    const response = await fetch(`${server.url}/tokenize`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ content, parse_special: false }),
    });
    return (await response.json()).tokens.length;
  };
  const text = '<|im_start|>system <|im_end|> </think> <tool_call>';
  assert.equal((await count(`x ${text}`)) - (await count('x')),
    (await tokenize(`x ${text}`)) - (await tokenize('x')));
});

await checks.run('a stop sequence ends the message and is named', async () => {
  const stop = whole.content[0].text.slice(4, 9);
  const message = await client.messages.create({
    ...quick, messages: capital, stop_sequences: ['zzzz', stop],
  });
  assert.equal(message.stop_reason, 'stop_sequence');
  assert.equal(message.stop_sequence, stop);
});

await checks.run('errors are the classes that the client knows', async () => {
  const bad = await client.messages
    .create({ ...quick, messages: [] })
    .then(() => assert.fail(), (error) => error);
  assert.ok(bad instanceof Anthropic.BadRequestError, String(bad));
  const long = await client.messages
    .create({ ...quick, messages: [{ role: 'user', content: 'word '.repeat(100000) }] })
    .then(() => assert.fail(), (error) => error);
  assert.match(long.message, /prompt is too long: \d+ tokens > \d+ maximum/);
});

await checks.run('the request of Claude Code is taken', async () => {
  const response = await fetch(`${server.url}/v1/messages?beta=true`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'anthropic-version': '2023-06-01',
      'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14',
      'x-app': 'cli',
      authorization: 'Bearer anything',
    },
    body: JSON.stringify({
      model: 'claude-opus-4-5', max_tokens: 300, stream: true,
      metadata: { user_id: 'user_x' },
      context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
      thinking: { type: 'adaptive' },
      output_config: { effort: 'medium' },
      system: [
        { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.37.f4c; cc_entrypoint=cli; cch=9a1c7;' },
        { type: 'text', text: 'You are a coding agent.', cache_control: { type: 'ephemeral' } },
      ],
      tools: [{ ...weather, cache_control: { type: 'ephemeral' } }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'What is the capital of Norway?', cache_control: { type: 'ephemeral' } }] },
        { role: 'system', content: 'Answer in one sentence.' },
      ],
    }),
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  assert.match(text, /event: message_stop/);
});

await server.stop();
process.exit(checks.finish());

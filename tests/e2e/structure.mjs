// Answers of a form, with the clients' own helpers: schemas, grammars, forced and strict calls,
// with thinking and without, with drafts and without. Judged by ajv and by the helpers.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/structure.mjs
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { Ajv2020 } from 'ajv/dist/2020.js';
import OpenAI from 'openai';
import { zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { Checks, startServer } from './server.mjs';

const server = await startServer(['--parallel', '4']);
const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
const checks = new Checks();
const ajv = new Ajv2020({ strict: false });

const ask = (text) => [{ role: 'user', content: text }];
const person = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 24 },
    age: { type: 'integer', minimum: 0, maximum: 150 },
    tags: { type: 'array', items: { enum: ['kind', 'old', 'brave'] }, maxItems: 2 },
  },
  required: ['name', 'age', 'tags'],
  additionalProperties: false,
};
const weather = {
  type: 'object',
  properties: {
    city: { type: 'string', minLength: 1, maxLength: 30 },
    days: { type: 'integer', minimum: 1, maximum: 9 },
    unit: { enum: ['celsius', 'fahrenheit'] },
  },
  required: ['city', 'days', 'unit'],
  additionalProperties: false,
};
const note = { type: 'object', properties: { text: { type: 'string', maxLength: 40 } }, required: ['text'] };
const tool = (name, parameters, strict) => ({ type: 'function', function: { name, description: name, strict, parameters } });
const sampled = (seed) => ({ temperature: 1, seed, max_tokens: 700 });
const valid = (schema, value) => assert.ok(ajv.validate(schema, value), `${JSON.stringify(value)}: ${ajv.errorsText()}`);

for (const effort of ['none', 'low']) {
  await checks.run(`json_schema, reasoning ${effort}: 20 answers are valid, drafts change nothing`, async () => {
    const format = { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: person } };
    for (let seed = 1; seed <= 20; ++seed) {
      const request = { model: 'x', messages: ask('Tell me about Tom.'), response_format: format, reasoning_effort: effort, ...sampled(seed) };
      const [off, on] = await Promise.all([0, 'auto'].map((drafts) => client.chat.completions.create({ ...request, drafts })));
      assert.equal(off.choices[0].finish_reason, 'stop');
      valid(person, JSON.parse(off.choices[0].message.content));
      assert.deepEqual(on.choices[0].message, off.choices[0].message);
      assert.equal(Boolean(off.choices[0].message.reasoning_content), effort !== 'none');
    }
  });
}

await checks.run('tool_choice required: always a valid call of one of the tools', async () => {
  const tools = [tool('get_weather', weather, true), tool('take_note', note)];
  for (let seed = 1; seed <= 20; ++seed) {
    const request = { model: 'x', messages: ask('What is the capital of Peru?'), tools, tool_choice: 'required', ...sampled(seed) };
    const [off, on] = await Promise.all([0, 3].map((drafts) => client.chat.completions.create({ ...request, drafts })));
    const { finish_reason: reason, message } = off.choices[0];
    assert.equal(reason, 'tool_calls');
    assert.ok(message.tool_calls.length >= 1);
    for (const { function: call } of message.tool_calls)
      valid(call.name === 'get_weather' ? weather : note, JSON.parse(call.arguments));
    const calls = (answer) => answer.choices[0].message.tool_calls.map((one) => one.function);
    assert.deepEqual(calls(on), calls(off));
  }
});

await checks.run('tool_choice of a name: exactly that call, streamed too', async () => {
  const tools = [tool('get_weather', weather), tool('take_note', note)];
  for (let seed = 1; seed <= 10; ++seed) {
    const stream = client.chat.completions.stream({ model: 'x', messages: ask('Hello!'), tools, tool_choice: { type: 'function', function: { name: 'take_note' } }, ...sampled(seed) });
    const [call, ...others] = (await stream.finalMessage()).tool_calls;
    assert.equal(call.function.name, 'take_note');
    assert.equal(others.length, 0);
    valid(note, JSON.parse(call.function.arguments));
  }
});

// What a field holds is text: whether it is a string is the schema's business as much as the reader's.
await checks.run('arguments that may be strings or something else are delivered as what was enforced', async () => {
  const digits = { type: 'string', pattern: '^[0-9]{2}$' };
  for (const s of [
    { anyOf: [{ type: 'integer', minimum: 1, maximum: 3 }, digits] }, { type: ['string', 'integer'], pattern: '^[0-9]{2}$', maximum: 9 },
    { if: { type: 'string' }, then: { pattern: '^[0-9]{2}$' }, else: { type: 'integer', minimum: 0, maximum: 9 } },
    { anyOf: [{ type: 'string', pattern: '^\\[[0-9]\\]$' }, { type: 'array', items: { const: 'a' } }] },
    { anyOf: [{ type: 'string', pattern: '^(tru|true)$' }, { const: false }] }, { type: ['integer', 'string'], maxLength: 8, maximum: 9 },
    { not: { type: ['number', 'object', 'array', 'boolean', 'null'] }, pattern: '^[0-9]{1,3}$' },
    { anyOf: [{ const: 'auto' }, { type: 'integer', minimum: 0, maximum: 9 }] }, { enum: ['x', 1e25] }, { enum: ['5', 7] },
    { type: ['string', 'null'], pattern: '^[0-9]{5}$' }, { allOf: [digits] },
  ]) {
    const parameters = { type: 'object', properties: { s }, required: ['s'], additionalProperties: false };
    for (let seed = 1; seed <= 4; ++seed) {
      const { choices } = await client.chat.completions.create({
        model: 'x', messages: ask('Call f with the number 42.'), tools: [tool('f', parameters, true)], tool_choice: 'required',
        reasoning_effort: 'none', ...sampled(seed),
      });
      valid(parameters, JSON.parse(choices[0].message.tool_calls[0].function.arguments));
    }
  }
});

await checks.run('strict tools under auto: every call is valid', async () => {
  let calls = 0;
  for (let seed = 1; seed <= 20; ++seed) {
    const { choices } = await client.chat.completions.create({ model: 'x', messages: ask('What is the weather in Oslo?'), tools: [tool('get_weather', weather, true)], ...sampled(seed) });
    for (const { function: call } of choices[0].message.tool_calls ?? []) {
      valid(weather, JSON.parse(call.arguments));
      ++calls;
    }
  }
  assert.ok(calls >= 10, `${calls} calls in 20 answers`);
});

await checks.run('parallel_tool_calls false with required: one call', async () => {
  for (let seed = 1; seed <= 5; ++seed) {
    const { choices } = await client.chat.completions.create({ model: 'x', messages: ask('Hi'), tools: [tool('take_note', note)], tool_choice: 'required', parallel_tool_calls: false, ...sampled(seed) });
    assert.equal(choices[0].message.tool_calls.length, 1);
  }
});

await checks.run("openai's parse helpers: chat and responses", async () => {
  const Person = z.object({ name: z.string(), age: z.number().int(), married: z.boolean() });
  const chat = await client.chat.completions.parse({ model: 'x', messages: ask('Tell me about Lina.'), response_format: zodResponseFormat(Person, 'person'), ...sampled(3) });
  if (chat.choices[0].finish_reason === 'stop') assert.equal(typeof chat.choices[0].message.parsed.married, 'boolean');
  const response = await client.responses.parse({ model: 'x', input: 'Tell me about Lina.', text: { format: zodTextFormat(z.object({ ok: z.boolean(), n: z.number().int().min(0).max(9) }), 'verdict') }, max_output_tokens: 2048, temperature: 0 });
  assert.equal(typeof response.output_parsed.ok, 'boolean');
  const called = await client.responses.parse({
    model: 'x', input: 'Hello', tool_choice: 'required', max_output_tokens: 2048, temperature: 0,
    tools: [zodResponsesFunction({ name: 'choose', parameters: z.object({ color: z.enum(['red', 'green']) }) })],
  });
  const call = called.output.find((item) => item.type === 'function_call');
  assert.ok(['red', 'green'].includes(call.parsed_arguments.color));
});

await checks.run("Anthropic's any, tool and output_config.format", async () => {
  const tools = [{ name: 'take_note', input_schema: note }, { name: 'get_weather', input_schema: weather }];
  for (const choice of [{ type: 'any' }, { type: 'tool', name: 'get_weather' }]) {
    const message = await anthropic.messages.create({ model: 'x', max_tokens: 2048, temperature: 0, messages: ask('Hello'), tools, tool_choice: choice });
    const use = message.content.find((block) => block.type === 'tool_use');
    assert.equal(message.stop_reason, 'tool_use');
    valid(use.name === 'get_weather' ? weather : note, use.input);
    if (choice.name) assert.equal(use.name, choice.name);
  }
  const message = await anthropic.messages.create({ model: 'x', max_tokens: 2048, temperature: 0, messages: ask('Tell me about Tom.'), output_config: { format: { type: 'json_schema', schema: person } } });
  valid(person, JSON.parse(message.content.find((block) => block.type === 'text').text));
});

await checks.run('grammars, patterns and choices', async () => {
  const answer = async (fields) => {
    const { choices } = await client.chat.completions.create({ model: 'x', messages: ask('Is Paris in France?'), ...sampled(5), ...fields });
    return choices[0].message.content;
  };
  assert.match(await answer({ grammar: 'root ::= "yes" | "no" ws\nws ::= "!"?' }), /^(yes|no!?)$/);
  assert.match(await answer({ guided_regex: '[a-c]{3}-\\d{2}' }), /^[a-c]{3}-\d{2}$/);
  assert.ok(['x "1"', 'y\n2'].includes(await answer({ guided_choice: ['x "1"', 'y\n2'] })));
  const { choices } = await client.completions.create({ model: 'x', prompt: 'Once', max_tokens: 300, temperature: 1, seed: 4, json_schema: { type: 'array', items: { type: 'boolean' }, maxItems: 3 } });
  valid({ type: 'array', items: { type: 'boolean' }, maxItems: 3 }, JSON.parse(choices[0].text));
});

await checks.run('what cannot be enforced is refused by name', async () => {
  const refusal = async (fields) => {
    const error = await client.chat.completions.create({ model: 'x', messages: ask('x'), ...fields }).then(() => undefined, (e) => e);
    assert.equal(error?.status, 400, JSON.stringify(fields));
    return error;
  };
  const schema = { type: 'array', items: { type: 'string' }, uniqueItems: true };
  assert.match((await refusal({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } })).message, /uniqueItems/);
  assert.match((await refusal({ tools: [tool('f', { type: 'object', properties: { a: schema }, required: ['a'] }, true)] })).message, /tools\[0\].*uniqueItems/);
  assert.match((await refusal({ grammar: 'root ::= "a' })).message, /line 1, column 10/);
  // What only the engine finds, and before the head of a stream.
  for (const stream of [false, true]) {
    assert.match((await refusal({ grammar: 'root ::= a\na ::= "x" a', stream })).message, /can never end/);
    assert.match((await refusal({ grammar: 'root ::= <nobody>', stream })).message, /<nobody>/);
  }
  assert.match((await refusal({ tools: [tool('f', note), tool('f', weather)] })).message, /two tools of the name 'f'/);
  assert.equal((await refusal({ tool_choice: 'required' })).param, 'tool_choice');
  assert.equal((await refusal({ tools: [tool('f', note)], tool_choice: { type: 'function', function: { name: 'g' } } })).param, 'tool_choice');
  assert.match((await refusal({ grammar: 'root ::= "a"', guided_regex: 'b' })).message, /send one/);
});

await server.stop();
process.exit(checks.finish());

// The official `openai` client against `strata serve` with a real model.
//
//   STRATA_PROGRAM=build/release/strata node tests/e2e/openai_client.mjs [MODEL.gguf]
//
// Without MODEL.gguf (or STRATA_MODEL) the demo model is served, and its answers are judged too.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { Checks, runProgram, startServer } from './server.mjs';

const model = process.argv[2] ?? process.env.STRATA_MODEL;
const server = await startServer([...(model ? ['-m', model] : []), '--parallel', '4']);
const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
const checks = new Checks();

const quick = { chat_template_kwargs: { enable_thinking: false }, temperature: 0, max_tokens: 64 };
const capital = [{ role: 'user', content: 'What is the capital of Netherlands?' }];
const weatherTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Get the current weather of a city.',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string', description: 'city name' },
        unit: { type: 'string', enum: ['celsius', 'fahrenheit'] },
      },
      required: ['city'],
    },
  },
};

async function collect(stream) {
  const all = { role: '', content: '', reasoning: '', finish: null, usage: null, chunks: 0 };
  for await (const chunk of stream) {
    all.chunks += 1;
    if (chunk.usage) all.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    all.role += choice.delta.role ?? '';
    all.content += choice.delta.content ?? '';
    all.reasoning += choice.delta.reasoning_content ?? '';
    if (choice.finish_reason) all.finish = choice.finish_reason;
  }
  return all;
}

async function expectStatus(promise, status, check) {
  const error = await promise.then(
    () => assert.fail('the request was accepted'),
    (caught) => caught,
  );
  assert.equal(error.status, status, String(error));
  check?.(error);
}

let whole;

await checks.run('the models are listed', async () => {
  const models = [];
  for await (const entry of client.models.list()) models.push(entry.id);
  assert.equal(models.length, 1);
  assert.equal((await client.models.retrieve(models[0])).id, models[0]);
  await expectStatus(client.models.retrieve('no-such-model'), 404);
});

await checks.run('a chat is answered whole', async () => {
  whole = await client.chat.completions.create({ model: 'any', messages: capital, ...quick });
  const choice = whole.choices[0];
  assert.equal(whole.object, 'chat.completion');
  assert.equal(choice.message.role, 'assistant');
  assert.ok(choice.message.content.length > 0);
  assert.ok(['stop', 'length'].includes(choice.finish_reason));
  const { usage } = whole;
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.ok(usage.prompt_tokens > 5 && usage.completion_tokens > 0);
  if (!model) assert.match(choice.message.content, /Amsterdam/);
});

await checks.run('a chat is streamed, with the same text', async () => {
  const stream = await client.chat.completions.create({
    model: 'any', messages: capital, ...quick, stream: true,
  });
  const all = await collect(stream);
  assert.equal(all.role, 'assistant');
  assert.equal(all.content, whole.choices[0].message.content);
  assert.equal(all.finish, whole.choices[0].finish_reason);
  assert.equal(all.usage, null);
  assert.ok(all.chunks > 2);
});

await checks.run('a stream carries usage when asked', async () => {
  const stream = await client.chat.completions.create({
    model: 'any', messages: capital, ...quick, stream: true, stream_options: { include_usage: true },
  });
  const all = await collect(stream);
  assert.equal(all.usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.equal(all.usage.completion_tokens, whole.usage.completion_tokens);
});

await checks.run('thinking is reported apart from the answer', async () => {
  const stream = await client.chat.completions.create({
    model: 'any', messages: capital, temperature: 0, max_tokens: 200, reasoning_effort: 'low',
    stream: true, stream_options: { include_usage: true },
  });
  const all = await collect(stream);
  assert.ok(all.reasoning.length > 0);
  assert.ok(all.usage.completion_tokens_details.reasoning_tokens > 0);
  assert.doesNotMatch(all.content + all.reasoning, /<\/?think>/);
});

const toolRequest = {
  model: 'any',
  messages: [{ role: 'user', content: 'Weather for Oslo, please.' }],
  tools: [weatherTool],
  ...quick,
};

await checks.run('a tool is called, whole', async () => {
  const answer = await client.chat.completions.create(toolRequest);
  const choice = answer.choices[0];
  if (model && !choice.message.tool_calls) return;
  assert.equal(choice.finish_reason, 'tool_calls');
  assert.equal(choice.message.tool_calls.length, 1);
  const call = choice.message.tool_calls[0];
  assert.equal(call.type, 'function');
  assert.equal(call.function.name, 'get_weather');
  assert.equal(JSON.parse(call.function.arguments).city, 'Oslo');

  const next = await client.chat.completions.create({
    ...toolRequest,
    messages: [
      ...toolRequest.messages,
      choice.message,
      {
        role: 'tool', tool_call_id: call.id,
        content: '{"temperature": 13, "condition": "sunny"}',
      },
    ],
  });
  assert.equal(next.choices[0].finish_reason, 'stop');
  if (!model) assert.match(next.choices[0].message.content, /13/);
});

await checks.run("a tool is called, streamed with the client's own helper", async () => {
  const runner = client.chat.completions.stream(toolRequest);
  const message = await runner.finalMessage();
  if (model && !message.tool_calls) return;
  assert.equal(message.tool_calls[0].function.name, 'get_weather');
  assert.equal(JSON.parse(message.tool_calls[0].function.arguments).city, 'Oslo');
});

for (const stream of [false, true]) {
  await checks.run(`the client's runner calls the function and hands its result back, ${stream ? 'streamed' : 'whole'}`, async () => {
    const asked = [];
    const runner = client.chat.completions.runTools({
      ...toolRequest,
      stream,
      tools: [{
        type: 'function',
        function: {
          ...weatherTool.function, parse: JSON.parse,
          function: ({ city }) => {
            asked.push(city);
            return { temperature: 13, condition: 'sunny' };
          },
        },
      }],
    });
    const text = await runner.finalContent();
    if (model && asked.length === 0) return;
    assert.deepEqual(asked, ['Oslo']);
    if (!model) assert.match(text, /13/);
  });
}

await checks.run('tool_choice none hides the tools', async () => {
  const shown = await client.chat.completions.create(toolRequest);
  const hidden = await client.chat.completions.create({ ...toolRequest, tool_choice: 'none' });
  assert.ok(hidden.usage.prompt_tokens < shown.usage.prompt_tokens - 50);
});

await checks.run('a limit ends the answer with finish_reason length', async () => {
  const answer = await client.chat.completions.create({
    model: 'any', messages: capital, ...quick, max_tokens: 2,
  });
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 2);
});

await checks.run('a stop string cuts the answer', async () => {
  const text = whole.choices[0].message.content;
  const stop = text.slice(4, 9);
  const answer = await client.chat.completions.create({
    model: 'any', messages: capital, ...quick, stop: [stop],
  });
  assert.equal(answer.choices[0].message.content ?? '', text.slice(0, text.indexOf(stop)));
  assert.equal(answer.choices[0].finish_reason, 'stop');
});

await checks.run('log-probabilities are those of the greedy tokens', async () => {
  const answer = await client.chat.completions.create({
    model: 'any', messages: capital, ...quick, logprobs: true, top_logprobs: 5,
  });
  const items = answer.choices[0].logprobs.content;
  assert.equal(items.length, answer.usage.completion_tokens);
  for (const item of items) {
    assert.equal(item.token, item.top_logprobs[0].token); // greedy: the likeliest
    assert.ok(Math.abs(item.logprob - item.top_logprobs[0].logprob) < 1e-6);
    const mass = item.top_logprobs.reduce((sum, top) => sum + Math.exp(top.logprob), 0);
    assert.ok(mass <= 1 + 1e-5);
  }
  assert.equal(items.map((item) => item.token).join(''), answer.choices[0].message.content);
});

await checks.run('n answers with a seed are the same again', async () => {
  const create = () => client.chat.completions.create({
    model: 'any', messages: capital, ...quick, temperature: 1.2, seed: 11, n: 3,
  });
  const texts = (answer) => answer.choices.map((choice) => choice.message.content);
  const first = texts(await create());
  assert.equal(first.length, 3);
  assert.deepEqual(texts(await create()), first);
});

await checks.run('a bias bans a token, and penalties are accepted', async () => {
  const { tokens } = await (await fetch(`${server.url}/tokenize`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ content: whole.choices[0].message.content }),
  })).json();
  const answer = await client.chat.completions.create({
    model: 'any', messages: capital, ...quick, logit_bias: { [tokens[0]]: -100 },
    presence_penalty: 0.5, frequency_penalty: 0.5,
  });
  assert.notEqual(answer.choices[0].message.content, whole.choices[0].message.content);
});

await checks.run('a text is completed, whole and streamed, and scored', async () => {
  const request = { model: 'any', prompt: 'The capital of France is', temperature: 0, max_tokens: 8 };
  const answer = await client.completions.create(request);
  const { text } = answer.choices[0];
  assert.ok(text.length > 0);
  let streamed = '';
  for await (const chunk of await client.completions.create({ ...request, stream: true })) {
    streamed += chunk.choices[0]?.text ?? '';
  }
  assert.equal(streamed, text);
  const scored = await client.completions.create({
    ...request, prompt: request.prompt + text, max_tokens: 0, echo: true, logprobs: 1,
  });
  const { tokens, token_logprobs, top_logprobs } = scored.choices[0].logprobs;
  assert.equal(tokens.join(''), request.prompt + text);
  assert.equal(token_logprobs[0], null);
  // What was written greedily is the likeliest at every place.
  for (let i = tokens.length - 3; i < tokens.length; i += 1) {
    assert.equal(Object.keys(top_logprobs[i]).length, 1, `token ${i}`);
  }
  await expectStatus(client.completions.create({ ...request, suffix: 'x' }), 400);
});

await checks.run('a response is created, streamed, stored, continued and deleted', async () => {
  const request = {
    model: 'any', input: capital[0].content, temperature: 0, max_output_tokens: 64,
    reasoning: { effort: 'none' },
  };
  const response = await client.responses.create(request);
  assert.equal(response.status, 'completed');
  if (!model) assert.match(response.output_text, /Amsterdam/);
  assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);

  const runner = client.responses.stream(request);
  let deltas = '';
  runner.on('response.output_text.delta', (event) => (deltas += event.delta));
  const final = await runner.finalResponse();
  assert.equal(final.output_text, response.output_text);
  assert.equal(deltas, response.output_text);

  const again = await client.responses.retrieve(response.id);
  assert.equal(again.output_text, response.output_text);
  const items = [];
  for await (const item of client.responses.inputItems.list(response.id)) items.push(item);
  assert.equal(items.length, 1);
  const next = await client.responses.create({
    ...request, input: 'And of Norway?', previous_response_id: response.id,
  });
  assert.ok(next.usage.input_tokens > response.usage.input_tokens + response.usage.output_tokens);
  await client.responses.delete(response.id);
  await expectStatus(client.responses.retrieve(response.id), 404);
});

await checks.run('a response runs in the background and is cancelled', async () => {
  const request = {
    model: 'any', input: 'Tell me a story about a lighthouse.', background: true,
    temperature: 1, seed: 3,
  };
  const queued = await client.responses.create(request);
  assert.equal(queued.status, 'queued');
  await client.responses.cancel(queued.id);
  for (let i = 0; ; i += 1) {
    const now = await client.responses.retrieve(queued.id);
    if (['completed', 'cancelled', 'incomplete'].includes(now.status)) break;
    assert.ok(i < 200, now.status);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
});

await checks.run('a background response is streamed again from where a client left it', async () => {
  const request = {
    model: 'any', input: 'Tell me a story about a lighthouse.', background: true, stream: true,
    temperature: 0, max_output_tokens: 40,
  };
  let id;
  let after;
  const told = [];
  for await (const event of await client.responses.create(request)) {
    id ??= event.response?.id;
    after = event.sequence_number;
    if (event.type === 'response.output_item.added') break; // the client leaves
  }
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) {
    assert.equal(event.sequence_number, after += 1);
    told.push(event);
  }
  const response = await client.responses.retrieve(id);
  assert.deepEqual(told.at(-1).response, JSON.parse(JSON.stringify({ ...response, output_text: undefined })));
});

await checks.run('a tool is called in a response', async () => {
  const response = await client.responses.create({
    model: 'any', input: toolRequest.messages, temperature: 0, max_output_tokens: 64,
    reasoning: { effort: 'none' },
    tools: [{ type: 'function', strict: false, ...weatherTool.function }],
  });
  const call = response.output.find((item) => item.type === 'function_call');
  if (model && !call) return;
  assert.equal(call.name, 'get_weather');
  assert.equal(JSON.parse(call.arguments).city, 'Oslo');
});

await checks.run('embeddings are refused in JSON', async () => {
  await expectStatus(client.embeddings.create({ model: 'any', input: 'x' }), 501);
});

await checks.run('bad fields are BadRequestError and named', async () => {
  const request = { model: 'any', messages: capital, ...quick };
  const named = (param) => (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.type, 'invalid_request_error');
    assert.equal(error.param, param);
  };
  const create = (extra) => client.chat.completions.create({ ...request, ...extra });
  await expectStatus(create({ top_logprobs: 3 }), 400, named('top_logprobs'));
  await expectStatus(create({ temperature: -1 }), 400, named('temperature'));
  await expectStatus(create({ n: 1000 }), 400, named('n'));
  await expectStatus(create({ strange_field: 1 }), 400, named('strange_field'));
});

await checks.run('a conversation that is too long says by how much', async () => {
  const messages = [{ role: 'user', content: 'word '.repeat(100000) }];
  await expectStatus(
    client.chat.completions.create({ model: 'any', messages, ...quick }),
    400,
    (error) => assert.equal(error.code, 'context_length_exceeded'),
  );
});

await checks.run('an aborted stream stops the engine', async () => {
  const stream = await client.chat.completions.create({
    model: 'any', messages: [{ role: 'user', content: 'Tell me a story about a lighthouse.' }],
    temperature: 1, seed: 1, stream: true,
  });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    chunks += 1;
    if (chunks === 3) break;
  }
  stream.controller.abort();
  const answer = await client.chat.completions.create({ model: 'any', messages: capital, ...quick });
  assert.equal(answer.choices[0].message.content, whole.choices[0].message.content);
});

await checks.run('eight chats at once get the answer of one', async () => {
  const create = () => client.chat.completions.create({ model: 'any', messages: capital, ...quick });
  for (const answer of await Promise.all(Array.from({ length: 8 }, create))) {
    assert.equal(answer.choices[0].message.content, whole.choices[0].message.content);
  }
});

await checks.run('a busy port is one clear sentence', async () => {
  const second = await runProgram(['serve', '--port', String(server.port)]);
  assert.equal(second.code, 1);
  assert.equal(
    second.stderr.trim(),
    `strata: port ${server.port} on 127.0.0.1 is in use by another program; ` +
      'choose another with --port',
  );
});

await checks.run('SIGTERM ends the server with exit code 0', async () => {
  assert.equal(await server.stop(), 0);
  assert.match(server.output.stdout, /base URL http:\/\/127\.0\.0\.1:\d+\/v1/);
});

if (server.child.exitCode === null) await server.stop();
process.exit(checks.finish());

// Requests as clients send them (taken from their documentation and source), and bodies that no
// client should send.

const environment = '<environment_context>\n  <cwd>/home/user/project</cwd>\n  <shell>bash</shell>\n</environment_context>';
const parameters = {
  type: 'object', additionalProperties: false, required: ['command'],
  properties: { command: { type: 'array', items: { type: 'string' } }, workdir: { type: 'string' }, timeout_ms: { type: 'number' } },
};

// Codex: Responses, items without ids, tools that run elsewhere, a free-text tool with a grammar.
export const codex = {
  path: '/v1/responses',
  headers: {
    originator: 'codex_cli_rs', version: '0.60.0', 'user-agent': 'codex_cli_rs/0.60.0', accept: 'text/event-stream',
    session_id: '0199a213-81c0-7800-8aa1-bbab2a035a53', conversation_id: '0199a213-81c0-7800-8aa1-bbab2a035a53',
    'openai-beta': 'responses=experimental', authorization: 'Bearer anything',
  },
  body: {
    model: 'gpt-5-codex', instructions: 'You are a coding agent.', store: false, stream: true, tool_choice: 'auto',
    parallel_tool_calls: true, include: ['reasoning.encrypted_content'], reasoning: { effort: 'low', summary: 'auto' },
    prompt_cache_key: '0199a213-81c0-7800-8aa1-bbab2a035a53',
    tools: [
      { type: 'function', name: 'shell', description: 'Runs a command.', strict: false, parameters },
      { type: 'custom', name: 'apply_patch', description: 'Edits files.',
        format: { type: 'grammar', syntax: 'lark', definition: 'start: "*** Begin Patch" LF' } },
      { type: 'web_search', external_web_access: false },
      { type: 'local_shell' },
    ],
    input: [
      { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Sandbox: read-only.' }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: environment }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'List the files.' }] },
      { type: 'reasoning', summary: [], content: null, encrypted_content: 'SSBsb29rLg==' },
      { type: 'function_call', name: 'shell', arguments: '{"command":["ls"]}', call_id: 'call_1' },
      { type: 'function_call_output', call_id: 'call_1', output: '{"output":"a.txt\\n","metadata":{"exit_code":0}}' },
      { type: 'custom_tool_call', name: 'apply_patch', input: '*** Begin Patch\n*** End Patch', call_id: 'call_2', status: 'completed' },
      { type: 'custom_tool_call_output', call_id: 'call_2', output: 'Done' },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'There is a.txt.' }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Thanks.' }] },
    ],
  },
};

// opencode: chat by the AI SDK, several system messages, parts, null content beside calls.
export const opencode = {
  path: '/v1/chat/completions',
  headers: { 'user-agent': 'ai-sdk/openai-compatible/1.0.22 ai-sdk/provider-utils/3.0.12 runtime/bun/1.2.21', authorization: 'Bearer anything' },
  body: {
    model: 'strata', max_tokens: 200, temperature: 0, top_p: 1, stream: true, stream_options: { include_usage: true }, tool_choice: 'auto',
    tools: [{ type: 'function', function: {
      name: 'read', description: 'Reads a file.',
      parameters: { $schema: 'http://json-schema.org/draft-07/schema#', type: 'object', additionalProperties: false,
        properties: { filePath: { type: 'string' }, limit: { type: 'number', minimum: 0 } }, required: ['filePath'] },
    } }],
    messages: [
      { role: 'system', content: 'You are opencode.' },
      { role: 'system', content: `Here is the environment: ${environment}` },
      { role: 'user', content: [{ type: 'text', text: 'What is in a.txt?' }] },
      { role: 'assistant', content: '', tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'read', arguments: '{"filePath":"a.txt"}' } }] },
      { role: 'tool', tool_call_id: 'call_1', content: '<file>\n00001| hello\n</file>' },
      { role: 'assistant', content: null, reasoning_content: 'It says hello.', tool_calls: [
        { id: 'call_2', type: 'function', function: { name: 'read', arguments: '' } }] },
      { role: 'tool', tool_call_id: 'call_2', content: 'error: no path' },
      { role: 'user', content: 'Thanks.' },
    ],
  },
};

// Claude Code: Messages, its headers, the billing line, late system messages, tools with caching.
export const claudeCode = {
  path: '/v1/messages?beta=true',
  headers: {
    'anthropic-version': '2023-06-01', 'x-app': 'cli', 'x-stainless-lang': 'js', 'x-stainless-retry-count': '0',
    'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14',
    'anthropic-dangerous-direct-browser-access': 'true', 'user-agent': 'claude-cli/2.1.37 (external, cli)',
    authorization: 'Bearer anything',
  },
  body: {
    model: 'claude-sonnet-4-5-20250929', max_tokens: 200, stream: true, temperature: 1,
    metadata: { user_id: 'user_0_account__session_0' }, thinking: { type: 'enabled', budget_tokens: 1024 },
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    system: [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.37.f4c; cc_entrypoint=cli; cch=9a1c7;' },
      { type: 'text', text: "You are Claude Code, Anthropic's official CLI for Claude.", cache_control: { type: 'ephemeral' } },
    ],
    tools: [{ name: 'Bash', description: 'Runs a command.', cache_control: { type: 'ephemeral' }, input_schema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', additionalProperties: false,
      properties: { command: { type: 'string' }, timeout: { type: 'number' } }, required: ['command'] } }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: '<system-reminder>be careful</system-reminder>' },
        { type: 'text', text: 'List the files.', cache_control: { type: 'ephemeral' } }] },
      { role: 'assistant', content: [
        { type: 'thinking', thinking: 'I list them.', signature: '' },
        { type: 'text', text: 'I look.' },
        { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: { command: 'ls' } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', is_error: false,
        content: [{ type: 'text', text: 'a.txt' }], cache_control: { type: 'ephemeral' } }] },
      { role: 'system', content: 'The user has opened a.txt.' },
      { role: 'user', content: 'Thanks.' },
    ],
  },
};

// Bytes that are no request's JSON, for every dialect.
export const noJson = {
  'nothing': '', 'blanks': '  \r\n', 'a word': 'hello', 'a form': 'messages=hi&stream=true', 'XML': '<messages/>',
  'cut off': '{"messages":[{"role":"user","content":"hi"}', 'one bracket too many': '{"messages":[]}}',
  'two objects': '{"messages":[]}{"messages":[]}', 'a comment': '{/* x */"messages":[]}', 'a trailing comma': '{"messages":[],}',
  'single quotes': "{'messages':[]}", 'NaN': '{"messages":[],"temperature":NaN}', 'Infinity': '{"temperature":Infinity}',
  'a number too large': '{"temperature":1e999}', 'hexadecimal': '{"seed":0x10}', 'a control character': '{"messages":"a\u0001b"}',
  'half an escape': '{"messages":"\\u12"}', 'a lone surrogate': '{"messages":[{"role":"user","content":"\\ud800"}]}',
  'a wrong escape': '{"messages":"\\x41"}', 'an array': '[]', 'a string': '"hi"', 'a number': '5', 'null': 'null', 'true': 'true',
  'too deep': `${'['.repeat(1000)}${']'.repeat(1000)}`, 'far too deep': '['.repeat(100000), 'deep objects': '{"a":'.repeat(5000),
  'invalid UTF-8': Buffer.from([0x7b, 0x22, 0xc3, 0x28, 0x22, 0x3a, 0x31, 0x7d]),
  'overlong UTF-8': Buffer.from([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d]),
  'UTF-16': Buffer.from('\ufeff{"messages":[]}', 'utf16le'), 'zeros': Buffer.alloc(64), 'gzip': Buffer.from('1f8b0800000000000003', 'hex'),
};

// Shapes that are JSON but no request.
const user = [{ role: 'user', content: 'hi' }];
const over = (base, list) => list.map((members) => ({ ...base, ...members }));
export const wrongChats = over({ messages: user }, [
  { tools: 'auto' }, { messages: 5 }, { messages: [{ role: 'user', content: 7 }] }, { messages: [{ role: 'user', content: [7] }] },
  { tools: [{ type: 'function', function: {} }] }, { tools: [{ name: 'f', parameters: [] }] }, { tools: { name: 'f' } },
  { messages: [{ role: 'assistant', tool_calls: ['x'] }] }, { messages: [] }, { messages: [{}] }, { messages: [null] },
  { messages: [{ role: 'king', content: 'x' }] }, { messages: 'x' }, { messages: null }, { messages: [[]] },
  { messages: [{ role: 'user', content: [{ type: 'hologram' }] }] }, { messages: [{ role: 5, content: 'x' }] },
  { temperature: 'hot' }, { temperature: -1 }, { temperature: 1e308 }, { top_p: 0 }, { top_p: 2 }, { top_k: 1.5 }, { min_p: -1 },
  { seed: 'x' }, { seed: 2 ** 63 }, { max_tokens: -2 }, { max_tokens: '5' }, { max_tokens: 1.5 }, { n: 0 }, { n: 1e6 }, { n: '2' },
  { stop: 5 }, { stop: [5] }, { stream: 'yes' }, { stream: 1 }, { logit_bias: 5 }, { logit_bias: { x: 1 } }, { logprobs: 5 },
  { top_logprobs: 3 }, { logprobs: true, top_logprobs: 99 }, { reasoning_effort: 'huge' }, { reasoning_effort: 3 },
  { tool_choice: 5 }, { stream_options: { include_usage: true } }, { stream: true, stream_options: 5 },
  { response_format: { type: 'yaml' } }, { presence_penalty: 99 }, { chat_template_kwargs: [] }, { unheard_of: 1 },
]);
export const wrongMessages = over({ messages: user, max_tokens: 5 }, [
  { max_tokens: -2 }, { max_tokens: 'x' }, { messages: undefined }, { messages: [] },
  { messages: 5 }, { messages: [5] }, { messages: [{}] }, { messages: [{ role: 'tool', content: 'x' }] },
  { messages: [{ role: 'user' }] }, { messages: [{ role: 'user', content: 5 }] }, { messages: [{ role: 'user', content: [5] }] },
  { messages: [{ role: 'user', content: [{ type: 'text' }] }] }, { messages: [{ role: 'user', content: [{ type: 'video' }] }] },
  { messages: [{ role: 'assistant', content: [{ type: 'tool_use', name: 5 }] }] },
  { messages: [{ role: 'user', content: [{ type: 'tool_result', content: 5 }] }] }, { system: 5 }, { system: [5] },
  { system: [{ type: 'image' }] }, { tools: 'x' }, { tools: [5] }, { tools: [{ name: 5 }] }, { tools: [{ name: 'f', input_schema: 'x' }] },
  { stop_sequences: 5 }, { stop_sequences: [5] }, { temperature: 'x' }, { top_p: 7 }, { top_k: 'x' }, { stream: 'x' },
  { thinking: 5 }, { thinking: { type: 'sideways' } }, { thinking: { type: 'enabled', budget_tokens: 'x' } },
  { output_config: { effort: 'huge' } }, { unheard_of: 1 },
]);
export const wrongResponses = over({ input: 'hi' }, [
  { input: undefined }, { input: 5 }, { input: [] }, { input: [5] }, { input: [{}] }, { input: [{ type: 'dance' }] },
  { input: [{ role: 'king', content: 'x' }] }, { input: [{ role: 'user', content: 5 }] }, { input: [{ role: 'user', content: [5] }] },
  { input: [{ role: 'user', content: [{ type: 'input_text' }] }] }, { input: [{ type: 'function_call' }] },
  { input: [{ type: 'function_call', call_id: 'a', name: 5, arguments: '{}' }] }, { input: [{ type: 'function_call_output' }] },
  { instructions: 5 }, { tools: 'x' }, { tools: [5] }, { tools: [{ type: 'function' }] }, { tools: [{ type: 'teleport' }] },
  { tools: [{ type: 'function', name: 'f', parameters: [] }] }, { tool_choice: 5 }, { max_output_tokens: 'x' }, { max_output_tokens: -5 },
  { temperature: 'x' }, { top_p: 9 }, { stream: 'x' }, { background: 'x' }, { background: true, store: false }, { store: 5 },
  { include: 'x' }, { include: ['everything'] }, { reasoning: 5 }, { reasoning: { effort: 'huge' } }, { text: { format: { type: 'yaml' } } },
  { truncation: 'auto' }, { previous_response_id: 5 }, { metadata: 5 }, { metadata: { a: 5 } }, { unheard_of: 1 },
]);

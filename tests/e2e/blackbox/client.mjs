// Small clients for the black-box tests: JSON over fetch, bytes over a socket, event streams.
import net from 'node:net';

export class Server {
  constructor(url, key) {
    this.url = url.replace(/\/$/, '');
    this.key = key;
  }
  headers(more = {}) {
    return {
      'content-type': 'application/json',
      ...(this.key ? { authorization: `Bearer ${this.key}` } : {}),
      ...more,
    };
  }
  async post(path, body, options = {}) {
    const response = await fetch(this.url + path, {
      method: 'POST',
      headers: this.headers(options.headers),
      body: typeof body === 'string' || options.bytes ? body : JSON.stringify(body),
      signal: options.signal,
    });
    const text = await response.text();
    let json;
    try {
      json = JSON.parse(text);
    } catch {
      json = undefined;
    }
    return { status: response.status, text, json, headers: response.headers };
  }
  async get(path) {
    const response = await fetch(this.url + path, { headers: this.headers() });
    const text = await response.text();
    return { status: response.status, text, json: text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : undefined };
  }
  // A chat: the whole message, or a stream joined to one.
  async chat(body) {
    const request = { model: 'any', ...body };
    if (!request.stream) {
      const answer = await this.post('/v1/chat/completions', request);
      if (answer.status !== 200) return answer;
      const choice = answer.json.choices[0];
      return {
        status: 200, usage: answer.json.usage, finish: choice.finish_reason,
        content: choice.message.content ?? '', reasoning: choice.message.reasoning_content ?? '',
        calls: (choice.message.tool_calls ?? []).map((call) => ({ id: call.id, ...call.function })),
        deltas: [], choice,
      };
    }
    const answer = await this.post('/v1/chat/completions', request);
    if (answer.status !== 200) return answer;
    const all = { status: 200, content: '', reasoning: '', calls: [], finish: null, deltas: [], text: answer.text };
    for (const event of events(answer.text)) {
      if (event.data === '[DONE]') {
        all.done = true;
        continue;
      }
      const chunk = JSON.parse(event.data);
      if (chunk.error) all.error = chunk.error;
      if (chunk.usage) all.usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const { delta } = choice;
      for (const piece of [delta.content, delta.reasoning_content]) if (piece) all.deltas.push(piece);
      all.content += delta.content ?? '';
      all.reasoning += delta.reasoning_content ?? '';
      for (const call of delta.tool_calls ?? []) {
        all.calls[call.index] ??= { arguments: '' };
        const known = all.calls[call.index];
        known.id ??= call.id;
        known.name ??= call.function.name;
        known.arguments += call.function.arguments ?? '';
      }
      if (choice.finish_reason) {
        all.finish = choice.finish_reason;
        all.choice = choice;
      }
    }
    return all;
  }
  // An Anthropic message and a response, in the words of chats.
  async message(body) {
    const answer = await this.post('/v1/messages', { model: 'any', ...body });
    if (answer.status !== 200) return answer;
    const all = { status: 200, thinking: '', content: '' };
    let end = answer.json;
    if (body.stream) {
      for (const event of events(answer.text).map((one) => JSON.parse(one.data))) {
        if (event.type === 'content_block_delta') {
          all.thinking += event.delta.thinking ?? '';
          all.content += event.delta.text ?? '';
        }
        if (event.type === 'message_delta') end = { ...event, ...event.delta };
      }
    } else {
      for (const block of end.content) {
        all.thinking += block.thinking ?? '';
        all.content += block.text ?? '';
      }
    }
    const finish = { end_turn: 'stop', max_tokens: 'length', tool_use: 'tool_calls' }[end.stop_reason];
    return { ...all, finish, tokens: end.usage.output_tokens, guards: end };
  }
  async respond(body) {
    const answer = await this.post('/v1/responses', { model: 'any', ...body });
    if (answer.status !== 200) return answer;
    const last = body.stream ? JSON.parse(events(answer.text).at(-1).data).response : answer.json;
    const texts = (type) => last.output.filter((item) => item.type === type)
      .flatMap((item) => item.content.map((part) => part.text)).join('');
    return {
      status: 200, thinking: texts('reasoning'), content: texts('message'),
      finish: last.status === 'incomplete' ? 'length' : 'stop', tokens: last.usage.output_tokens, guards: last,
    };
  }
  // Bytes as they are; the answer's status and text, or null if the connection ended without one.
  raw(bytes, { halfClose = false, seconds = 15 } = {}) {
    const { hostname, port } = new URL(this.url);
    return new Promise((resolve, reject) => {
      const socket = net.connect(Number(port), hostname);
      let text = '';
      const timer = setTimeout(() => {
        socket.destroy();
        reject(new Error(`no end of the answer: ${text.slice(0, 200)}`));
      }, seconds * 1000);
      const done = () => {
        clearTimeout(timer);
        const status = /^HTTP\/1\.1 (\d+)/.exec(text);
        resolve(status ? { status: Number(status[1]), text } : null);
      };
      socket.on('connect', () => {
        socket.write(bytes);
        if (halfClose) socket.end();
      });
      socket.on('data', (data) => (text += data.toString('latin1')));
      socket.on('error', done);
      socket.on('close', done);
    });
  }
  request(method, path, headers, body = '') {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const length = body ? `Content-Length: ${Buffer.byteLength(body)}\r\n` : '';
    return this.raw(`${method} ${path} HTTP/1.1\r\n${lines.join('')}Connection: close\r\n${length}\r\n${body}`);
  }
}

// The events of a stream's text: {event, data}; comments are left out.
export function events(text) {
  return text.split('\n\n').filter(Boolean).flatMap((block) => {
    const event = { event: 'message', data: '' };
    for (const line of block.split('\n')) {
      if (line.startsWith('event: ')) event.event = line.slice(7);
      if (line.startsWith('data: ')) event.data += line.slice(6);
    }
    return event.data ? [event] : [];
  });
}

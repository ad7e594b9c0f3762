// An answer on its way: asked for as a stored background response, so that it goes on when the
// page goes away. Whoever has its id follows it again from any of its events.
import { ApiError, ask, askJson, type Timings } from './api';
import { eventsOf } from './sse';
import type { ChatSettings, Node, ToolCall, Usage } from './tree';

interface ResponseItem {
  type: string;
  id?: string;
  call_id?: string;
  name?: string;
  arguments?: string;
  input?: string;
  content?: { type: string; text?: string }[];
}

interface ResponseObject {
  id: string;
  status: string;
  model?: string;
  output?: ResponseItem[];
  error?: { message?: string } | null;
  timings?: Timings | null;
  usage?: {
    input_tokens: number;
    output_tokens: number;
    input_tokens_details?: { cached_tokens?: number };
    output_tokens_details?: { reasoning_tokens?: number };
  } | null;
}

interface ResponseEvent {
  type: string;
  sequence_number?: number;
  response?: ResponseObject;
  item?: ResponseItem;
  output_index?: number;
  delta?: string;
  error?: { message?: string };
  message?: string;
}

// The conversation up to a question, as items of a request.
export function inputOf(path: Node[]): unknown[] {
  const items: unknown[] = [];
  for (const node of path) {
    if (node.role === 'user') {
      items.push({ type: 'message', role: 'user', content: questionText(node) });
    } else if (node.role === 'tool') {
      for (const result of node.results ?? []) {
        items.push({ type: 'function_call_output', call_id: result.call, output: result.text });
      }
    } else {
      if (node.thinking) {
        items.push({ type: 'reasoning', content: [{ type: 'reasoning_text', text: node.thinking }] });
      }
      if (node.text !== '') items.push({ type: 'message', role: 'assistant', content: node.text });
      for (const call of node.calls ?? []) {
        if (!call.done) continue;
        items.push({ type: 'function_call', call_id: call.id, name: call.name, arguments: call.arguments });
      }
    }
  }
  return items;
}

// Files go after the words, each under its name.
export function questionText(node: Node): string {
  const files = (node.attachments ?? []).map((file) => {
    const fence = '`'.repeat(Math.max(3, longestRun(file.text) + 1));
    return `${file.name}\n${fence}\n${file.text}${file.text.endsWith('\n') ? '' : '\n'}${fence}`;
  });
  return [node.text, ...files].filter((part) => part !== '').join('\n\n');
}

function longestRun(text: string): number {
  let longest = 0;
  for (const [run] of text.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  return longest;
}

export function requestOf(path: Node[], settings: ChatSettings): Record<string, unknown> {
  const request: Record<string, unknown> = {
    input: inputOf(path),
    stream: true,
    background: true,
    store: true,
  };
  if (settings.system?.text) request.instructions = settings.system.text;
  if (settings.effort) request.reasoning = { effort: settings.effort };
  for (const [name, value] of Object.entries(settings.sampling ?? {})) request[name] = value;
  if (settings.tools?.trim()) request.tools = JSON.parse(settings.tools) as unknown;
  return request;
}

const kFinal = new Set(['completed', 'incomplete', 'failed', 'cancelled']);
const kRetries = 20;

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

// Writes what arrives into the answer's node and says so through `changed`.
export class AnswerRun {
  private last = -1; // sequence number of the last event
  private anew = false; // the next event is the first: what the node holds is from before
  private over = false;
  private stopping = false;
  private readonly abort = new AbortController();
  private readonly startedAt = Date.now();
  private firstAt: number | undefined;
  private thinkingAt: number | undefined;
  private readonly watched: boolean; // from its first token: only then its times mean something

  constructor(
    readonly node: Node,
    private readonly changed: (milestone: boolean) => void,
    fresh: boolean,
  ) {
    this.watched = fresh;
  }

  async start(request: Record<string, unknown>): Promise<void> {
    await this.guarded(async () => {
      const response = await ask('/v1/responses', { body: request, signal: this.abort.signal });
      await this.read(response).catch((error: unknown) => this.unlessCut(error));
      await this.followToEnd();
    });
  }

  // An answer that another page, or this one before it was loaded again, has asked for.
  async resume(): Promise<void> {
    this.anew = true;
    await this.guarded(() => this.followToEnd());
  }

  async stop(): Promise<void> {
    if (this.over || this.stopping) return;
    this.stopping = true;
    // A response that runs in the background is not stopped by leaving it: its name is needed.
    for (let tries = 0; this.node.response === undefined && tries < 50; tries += 1) {
      await sleep(100);
      if (this.over) return;
    }
    const id = this.node.response;
    if (id === undefined) return this.abort.abort();
    try {
      await ask(`/v1/responses/${encodeURIComponent(id)}/cancel`, { method: 'POST', body: {} });
      await sleep(3000); // for its last words and its count of tokens
    } catch {
      // It has ended, or the server has gone.
    }
    if (!this.over) this.finish('stopped');
    this.abort.abort();
  }

  private async guarded(body: () => Promise<void>): Promise<void> {
    try {
      await body();
    } catch (error) {
      if (this.over) return;
      if (this.stopping || this.abort.signal.aborted) return this.finish('stopped');
      this.node.error = error instanceof Error ? error.message : String(error);
      this.finish(error instanceof ApiError && error.status === 404 ? 'lost' : 'failed');
    }
  }

  private unlessCut(error: unknown): void {
    if (this.abort.signal.aborted || error instanceof ApiError || this.node.response === undefined) throw error;
  }

  // Until the answer has ended: connections that break are made again where they broke.
  private async followToEnd(): Promise<void> {
    for (let tries = 0; !this.over; tries += 1) {
      if (this.node.response === undefined) throw new Error('The server ended the connection before the answer began.');
      const before = this.last;
      try {
        const from = this.last >= 0 ? `&starting_after=${this.last}` : '';
        const id = encodeURIComponent(this.node.response);
        const response = await ask(`/v1/responses/${id}?stream=true${from}`, { signal: this.abort.signal });
        await this.read(response);
        if (!this.over) await this.readWhole();
      } catch (error) {
        if (this.abort.signal.aborted) throw error;
        if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
          if (error.status !== 400 || !(await this.readWhole())) throw error;
        }
        if (tries >= kRetries) throw error;
      }
      if (this.last > before) tries = 0;
      if (!this.over) await sleep(Math.min(5000, 250 * 2 ** Math.min(tries, 5)));
    }
  }

  private async read(response: Response): Promise<void> {
    for await (const { data } of eventsOf(response)) {
      if (data === '[DONE]') return;
      this.take(JSON.parse(data) as ResponseEvent);
      if (this.over) return;
    }
  }

  // The stored response itself, where its events are no longer there. True if it has ended.
  private async readWhole(): Promise<boolean> {
    const id = encodeURIComponent(this.node.response ?? '');
    const whole = await askJson<ResponseObject>(`/v1/responses/${id}`, { signal: this.abort.signal });
    if (!kFinal.has(whole.status)) return false;
    this.takeFinal(whole);
    return true;
  }

  private take(event: ResponseEvent): void {
    const node = this.node;
    if (event.sequence_number !== undefined) {
      if (event.sequence_number <= this.last) return;
      this.last = event.sequence_number;
    }
    if (this.anew) {
      this.anew = false;
      node.text = '';
      node.thinking = undefined;
      node.calls = undefined;
    }
    let milestone = false;
    if (event.response?.id && node.response === undefined) {
      node.response = event.response.id;
      node.model = event.response.model;
      milestone = true;
    }
    switch (event.type) {
      case 'response.reasoning_text.delta':
        this.firstToken();
        this.thinkingAt ??= Date.now();
        node.thinking = (node.thinking ?? '') + (event.delta ?? '');
        break;
      case 'response.output_text.delta':
        this.endThinking();
        node.text += event.delta ?? '';
        break;
      case 'response.output_item.added':
        if (event.item) this.addItem(event.item);
        break;
      case 'response.function_call_arguments.delta':
      case 'response.custom_tool_call_input.delta': {
        const call = node.calls?.at(-1);
        if (call) call.arguments += event.delta ?? '';
        break;
      }
      case 'response.output_item.done':
        this.endItem(event.item);
        break;
      case 'error':
        throw new Error(event.error?.message ?? event.message ?? 'The server reported an error.');
      default:
        if (event.response && kFinal.has(event.response.status)) return this.takeFinal(event.response);
        if (!milestone) return;
    }
    node.changed = Date.now();
    this.changed(milestone);
  }

  private addItem(item: ResponseItem): void {
    if (item.type !== 'function_call' && item.type !== 'custom_tool_call') return;
    this.endThinking();
    const call: ToolCall = { id: item.call_id ?? item.id ?? '', name: item.name ?? '', arguments: '', done: false };
    this.node.calls = [...(this.node.calls ?? []), call];
  }

  private endItem(item: ResponseItem | undefined): void {
    if (item?.type !== 'function_call' && item?.type !== 'custom_tool_call') return;
    const call = this.node.calls?.find((one) => one.id === (item.call_id ?? item.id));
    if (!call) return;
    call.arguments = item.arguments ?? item.input ?? call.arguments;
    call.done = true;
  }

  private firstToken(): void {
    if (this.firstAt !== undefined) return;
    this.firstAt = Date.now();
    if (this.watched) this.node.firstMs = this.firstAt - this.startedAt;
  }

  private endThinking(): void {
    this.firstToken();
    if (this.thinkingAt === undefined || !this.watched || this.node.thinkingMs !== undefined) return;
    this.node.thinkingMs = Date.now() - this.thinkingAt;
  }

  // The last event carries everything: what was missed on the way is in it.
  private takeFinal(response: ResponseObject): void {
    const node = this.node;
    const thinking: string[] = [];
    const text: string[] = [];
    const calls: ToolCall[] = [];
    for (const item of response.output ?? []) {
      const joined = (item.content ?? []).map((part) => part.text ?? '').join('');
      if (item.type === 'reasoning') thinking.push(joined);
      if (item.type === 'message') text.push(joined);
      if (item.type === 'function_call' || item.type === 'custom_tool_call') {
        calls.push({
          id: item.call_id ?? item.id ?? '',
          name: item.name ?? '',
          arguments: item.arguments ?? item.input ?? '',
          done: true,
        });
      }
    }
    if ((response.output ?? []).length > 0) {
      node.thinking = thinking.join('\n\n') || undefined;
      node.text = text.join('\n\n');
      node.calls = calls.length > 0 ? calls : undefined;
    }
    if (response.usage) node.usage = usageOf(response.usage);
    node.speed = response.timings?.predicted_per_second ?? undefined;
    if (response.status === 'failed') node.error = response.error?.message ?? 'The server reported an error.';
    const states = { completed: 'done', incomplete: 'cut', failed: 'failed', cancelled: 'stopped' } as const;
    const state = states[response.status as keyof typeof states];
    this.finish(this.stopping && state !== 'done' ? 'stopped' : state);
  }

  private finish(state: NonNullable<Node['state']>): void {
    this.over = true;
    if (this.thinkingAt !== undefined && this.watched) this.node.thinkingMs ??= Date.now() - this.thinkingAt;
    for (const call of this.node.calls ?? []) call.done = call.done && state !== 'failed';
    this.node.state = state;
    this.node.changed = Date.now();
    this.changed(true);
  }
}

function usageOf(usage: NonNullable<ResponseObject['usage']>): Usage {
  return {
    input: usage.input_tokens,
    cached: usage.input_tokens_details?.cached_tokens ?? 0,
    output: usage.output_tokens,
    reasoning: usage.output_tokens_details?.reasoning_tokens ?? 0,
  };
}

// The server, as the app asks it: its own address only, with the key that the browser keeps.
import { apiKey } from './preferences';
import { signal } from './signal';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly param: string | null = null,
    readonly body: unknown = undefined,
  ) {
    super(message);
  }
}

// True after a 401: the view asks for the key.
export const keyWanted = signal(false);

export interface Ask {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  last?: boolean; // the page may be on its way out: it is sent all the same, if it is small
}

export async function ask(path: string, options: Ask = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const key = apiKey.get();
  if (key !== '') headers['Authorization'] = `Bearer ${key}`;
  if (options.body !== undefined) headers['Content-Type'] = 'application/json';
  const body = options.body === undefined ? undefined : JSON.stringify(options.body);
  let response: Response;
  try {
    response = await fetch(path, {
      method: options.method ?? (options.body === undefined ? 'GET' : 'POST'),
      headers,
      body,
      keepalive: options.last === true && (body?.length ?? 0) < 20_000,
      signal: options.signal,
      cache: 'no-store',
      credentials: 'same-origin',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 'The server cannot be reached.');
  }
  if (response.status === 401) keyWanted.set(true);
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  try {
    const body = JSON.parse(text) as { error?: { message?: string; param?: string | null } };
    const message = body.error?.message;
    if (message) return new ApiError(response.status, message, body.error?.param ?? null, body);
  } catch {
    // Not JSON: something between us and the server has answered.
  }
  return new ApiError(response.status, `The server answered ${response.status}.`);
}

export async function askJson<T>(path: string, options: Ask = {}): Promise<T> {
  const response = await ask(path, options);
  return (await response.json()) as T;
}

export interface Health {
  status: string;
  model?: string;
  max_context?: number;
  api_key?: boolean;
  loaded?: boolean;
  reason?: string;
}

// Health answers 503 with a body while the model is not there.
export async function askHealth(): Promise<Health> {
  try {
    const response = await fetch('/health', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    return (await response.json()) as Health;
  } catch {
    return { status: 'offline', reason: 'The server cannot be reached.' };
  }
}

export interface Setting {
  name: string;
  value: unknown;
  source: string;
}

export interface Status {
  service: string;
  version: string;
  model: string;
  loaded: boolean;
  auto_load: boolean;
  started: number;
  uptime_s: number;
  context: number;
  concurrency: { serving: number; requested: number };
  dialects: string[];
  capabilities: Record<string, boolean>;
  parity: boolean;
  defaults: Setting[];
  engine: {
    process: { up: boolean; state: string; pid: number; restarts: number; last_death: string | null } | null;
    threads: number;
    isa: string;
    drafts: string;
    settings: Setting[];
    reserved_bytes: number;
    layers: number;
    parameters: number;
    weight_bytes: number;
    ngram_tables: { how: string; memory_bytes: number }[];
  };
  drafts: {
    rounds: number;
    drafted: number;
    accepted: number;
    by_depth: { depth: number; drafted: number; accepted: number }[];
  };
  cache: Record<string, number>;
  prompt_encoder: Record<string, number>;
  activity: {
    requests: number;
    in_flight: number;
    queued: number;
    queue: { id: number; ahead: number; prompt_tokens: number }[];
    finished: Record<string, number>;
    last_request_at: number | null;
  };
  last_timings: Timings | null;
  last_requests: PastRequest[]; // newest first
}

// One that has ended.
export interface PastRequest {
  id: number;
  ended_at: number; // seconds since 1970
  finish: string;
  queue_ms: number;
  whole_ms: number;
  first_token_ms: number | null;
  timings: Timings;
}

export interface Timings {
  cache_n: number;
  prompt_n: number;
  prompt_ms: number;
  prompt_per_second: number | null;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_second: number | null;
  draft_n?: number;
  draft_n_accepted?: number;
  cache_disk_n?: number;
}

export interface Slot {
  id: number;
  n_ctx: number;
  is_processing: boolean;
  id_task?: number;
  n_prompt_tokens?: number;
  n_prompt_tokens_processed?: number;
  n_prompt_tokens_cache?: number;
  n_decoded?: number;
}

export interface Props {
  default_generation_settings: { n_ctx: number; params: Record<string, number> };
  total_slots: number;
  model_alias: string;
  model_path: string;
  build_info: string;
  chat_template_caps: Record<string, boolean>;
}

// What the views know of the server; filled by `refreshFacts`.
export const health = signal<Health>({ status: 'unknown' });
export const props = signal<Props | undefined>(undefined);
export const status = signal<Status | undefined>(undefined);

export async function refreshFacts(): Promise<void> {
  const now = await askHealth();
  health.set(now);
  if (now.status === 'offline' || now.status === 'loading') return;
  if (now.api_key && apiKey.get() === '') return keyWanted.set(true);
  if (keyWanted.get()) return;
  try {
    if (!props.get()) props.set(await askJson<Props>('/props'));
    if (!status.get()) status.set(await askJson<Status>('/v1/status'));
  } catch {
    // The pill says what is wrong; it is asked again.
  }
}

// A new key, or none: everything is asked again.
export function forgetFacts(): void {
  keyWanted.set(false);
  props.set(undefined);
  status.set(undefined);
}

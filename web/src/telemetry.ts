// What the Monitor draws: fields with a unit and a group, and a sample of all of them each second.
// It comes from /v1/telemetry; a server without it is looked at from outside, once a second.
import { ApiError, ask, askJson, type PastRequest, type Slot, type Status } from './api';

export interface Field {
  name: string;
  unit: string;
  group: string;
}

export interface Picture {
  fields: Field[];
  samples: (number | null)[][]; // the time in seconds, then a value a field
  facts: Record<string, unknown>;
  status: Status | undefined;
  slots: Slot[];
  finished: PastRequest[]; // newest first
  own: boolean; // the samples are the page's own
}

export const kMostSamples = 3600;

interface TelemetryAnswer {
  seq: number;
  interval_s: number;
  fields: Field[];
  samples: (number | null)[][];
  facts: Record<string, unknown>;
}

// "name{a="b"} 1" to {'name{a="b"}': 1}
export function readMetrics(text: string): Map<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const space = line.lastIndexOf(' ');
    const value = Number(line.slice(space + 1));
    if (space > 0 && Number.isFinite(value)) values.set(line.slice(0, space), value);
  }
  return values;
}

function sumOf(metrics: Map<string, number>, name: string): number | null {
  let sum: number | null = null;
  for (const [key, value] of metrics) {
    if (key === name || key.startsWith(`${name}{`)) sum = (sum ?? 0) + value;
  }
  return sum;
}

const share = (part: number | null, whole: number | null): number | null =>
  part !== null && whole !== null && whole > 0 ? (100 * part) / whole : null;

const kOwnFields: Field[] = [
  { name: 'Prompts read', unit: 'tokens/s', group: 'Speed' },
  { name: 'Answers written', unit: 'tokens/s', group: 'Speed' },
  { name: 'Running', unit: 'requests', group: 'Requests' },
  { name: 'Waiting', unit: 'requests', group: 'Requests' },
  { name: 'Guesses that were right', unit: '%', group: 'Drafts' },
  ...[1, 2, 3, 4, 5].map((depth) => ({ name: `At depth ${depth}`, unit: '%', group: 'Drafts' })),
  { name: 'From memory', unit: 'tokens/s', group: 'Prompt cache' },
  { name: 'From disk', unit: 'tokens/s', group: 'Prompt cache' },
  { name: 'Read anew', unit: 'tokens/s', group: 'Prompt cache' },
  { name: 'Weights', unit: 'B', group: 'Memory' },
  { name: 'Kept conversations', unit: 'B', group: 'Memory' },
  { name: 'Running requests', unit: 'B', group: 'Memory' },
  { name: 'N-gram rows', unit: 'B', group: 'Memory' },
  { name: 'Rows needed', unit: 'rows/s', group: 'N-gram table' },
  { name: 'Rows read from disk', unit: 'rows/s', group: 'N-gram table' },
  { name: 'Waits', unit: 'ms/s', group: 'N-gram waits' },
];

export class Watch {
  private seq = -1;
  private serverSamples = true;
  private lastTime = 0;
  private counters = new Map<string, number>();
  private decoded = new Map<number, { read: number; written: number }>();
  readonly picture: Picture = {
    fields: [],
    samples: [],
    facts: {},
    status: undefined,
    slots: [],
    finished: [],
    own: false,
  };

  // One look at the server.
  async look(): Promise<void> {
    const picture = this.picture;
    if (this.serverSamples) await this.takeTelemetry();
    const [slots, status] = await Promise.all([askJson<Slot[]>('/slots'), askJson<Status>('/v1/status')]);
    picture.slots = slots;
    picture.status = status;
    picture.finished = status.last_requests;
    if (!this.serverSamples) {
      const metrics = readMetrics(await (await ask('/metrics')).text());
      this.takeOwn(metrics, slots, status);
    }
  }

  private async takeTelemetry(): Promise<void> {
    try {
      const since = this.seq >= 0 ? `?since=${this.seq}` : '';
      const answer = await askJson<TelemetryAnswer>(`/v1/telemetry${since}`);
      const { picture } = this;
      const same = JSON.stringify(answer.fields) === JSON.stringify(picture.fields);
      if (!same || answer.seq < this.seq) picture.samples = [];
      picture.fields = answer.fields;
      picture.facts = answer.facts ?? {};
      picture.samples = [...picture.samples, ...answer.samples].slice(-kMostSamples);
      this.seq = answer.seq;
    } catch (error) {
      if (!(error instanceof ApiError && (error.status === 404 || error.status === 501))) throw error;
      this.serverSamples = false;
      this.picture.own = true;
      this.picture.fields = kOwnFields;
    }
  }

  // By how much a counter has grown since the last look.
  private grown(name: string, now: number | null): number | null {
    const before = this.counters.get(name);
    if (now === null) return null;
    this.counters.set(name, now);
    return before === undefined || now < before ? null : now - before;
  }

  private takeOwn(metrics: Map<string, number>, slots: Slot[], status: Status): void {
    const now = Date.now() / 1000;
    const span = now - this.lastTime;
    const usable = this.lastTime > 0 && span > 0.2 && span < 10;
    this.lastTime = now;
    const rate = (name: string, value: number | null): number | null => {
      const grown = this.grown(name, value);
      return usable && grown !== null ? grown / span : null;
    };
    let read = 0;
    let written = 0;
    const seen = new Map<number, { read: number; written: number }>();
    for (const slot of slots) {
      if (slot.id_task === undefined) continue;
      const had = this.decoded.get(slot.id_task);
      const fresh = Math.max(0, (slot.n_prompt_tokens_processed ?? 0) - (slot.n_prompt_tokens_cache ?? 0));
      const decoded = slot.n_decoded ?? 0;
      read += Math.max(0, fresh - (had?.read ?? 0));
      written += Math.max(0, decoded - (had?.written ?? 0));
      seen.set(slot.id_task, { read: fresh, written: decoded });
    }
    this.decoded = seen;
    const drafted = this.grown('drafted', status.drafts.drafted);
    const accepted = this.grown('accepted', status.drafts.accepted);
    const depths = [0, 1, 2, 3, 4].map((index) => {
      const one = status.drafts.by_depth[index];
      const right = this.grown(`accepted ${index}`, one?.accepted ?? 0);
      return share(right, this.grown(`drafted ${index}`, one?.drafted ?? 0));
    });
    const disk = rate('disk', sumOf(metrics, 'strata_cache_disk_tokens_total'));
    const cached = rate('cached', sumOf(metrics, 'strata_cached_tokens_total'));
    const wait = rate('wait', sumOf(metrics, 'strata_ngram_wait_seconds_total'));
    const sample: (number | null)[] = [
      now,
      usable ? read / span : null,
      usable ? written / span : null,
      status.activity.in_flight - status.activity.queued,
      status.activity.queued,
      usable ? share(accepted, drafted) : null,
      ...depths.map((value) => (usable ? value : null)),
      cached === null ? null : Math.max(0, cached - (disk ?? 0)),
      disk,
      rate('anew', sumOf(metrics, 'llamacpp:prompt_tokens_total')),
      status.loaded ? status.engine.weight_bytes : 0,
      sumOf(metrics, 'strata_cache_bytes'),
      sumOf(metrics, 'strata_reserved_bytes'),
      sumOf(metrics, 'strata_ngram_memory_bytes'),
      rate('rows', sumOf(metrics, 'strata_ngram_rows_requested_total')),
      rate('rows_read', sumOf(metrics, 'strata_ngram_rows_read_total')),
      wait === null ? null : wait * 1000,
    ];
    this.picture.samples = [...this.picture.samples, sample].slice(-kMostSamples);
  }
}

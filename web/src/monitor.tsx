// What the server does now and has done within the last hour.
import { useEffect, useRef, useState } from 'preact/hooks';
import { keyWanted, status as statusSignal, type Status } from './api';
import { bytes, clock, count, duration, percent, short } from './format';
import { kColours, Plot, valueText } from './plots';
import { preferences } from './preferences';
import { useSignal } from './signal';
import { Watch, type Field, type Picture } from './telemetry';

// For as long as the page lives: going to another view and back loses nothing.
const watch = new Watch();

function Card({ title, children, wide }: { title: string; children: preact.ComponentChildren; wide?: boolean }) {
  return (
    <section class={wide ? 'card wide' : 'card'} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function GroupPlot({ name, fields, columns, picture, span }: { name: string; fields: Field[]; columns: number[]; picture: Picture; span: number }) {
  const root = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot>(undefined);
  const { theme } = useSignal(preferences);
  const key = fields.map((field) => field.name).join('|');
  useEffect(() => {
    if (!root.current) return;
    plot.current = new Plot(root.current, fields, span);
    const media = matchMedia('(prefers-color-scheme: dark)');
    const again = () => plot.current?.build();
    media.addEventListener('change', again);
    return () => {
      media.removeEventListener('change', again);
      plot.current?.destroy();
    };
  }, [key, theme, span]);
  const scale = (picture.samples[0]?.[0] ?? 0) > 1e11 ? 1000 : 1; // milliseconds
  const last = picture.samples.at(-1);
  const since = (last?.[0] ?? 0) / scale - span;
  const shown = picture.samples.filter((sample) => (sample[0] ?? 0) / scale >= since);
  useEffect(() => {
    plot.current?.update([
      shown.map((sample) => (sample[0] ?? 0) / scale),
      ...columns.map((column) => shown.map((sample) => sample[column] ?? null)),
    ], span);
  });
  const now = fields.map((field, index) => `${field.name} ${valueText(last?.[columns[index] ?? 0], field.unit)}`);
  return (
    <Card title={name}>
      <ul class="legend">
        {fields.map((field, index) => (
          <li key={field.name}>
            <span class={`swatch s${(index % kColours.length) + 1}`} aria-hidden="true" />
            {field.name} <b class="digits">{valueText(last?.[columns[index] ?? 0], field.unit)}</b>
          </li>
        ))}
      </ul>
      <div class="plot" ref={root} role="img" aria-label={`${name} over time. Now: ${now.join(', ')}.`} />
    </Card>
  );
}

// Fields of one group and unit share a plot.
function plotsOf(picture: Picture): { name: string; fields: Field[]; columns: number[] }[] {
  const plots = new Map<string, { name: string; fields: Field[]; columns: number[] }>();
  picture.fields.forEach((field, index) => {
    const key = `${field.group}\n${field.unit}`;
    const same = [...plots.values()].some((plot) => plot.name === field.group);
    const plot = plots.get(key) ?? { name: same ? `${field.group} (${field.unit === 'B' ? 'bytes' : field.unit})` : field.group, fields: [], columns: [] };
    plot.fields.push(field);
    plot.columns.push(index + 1);
    plots.set(key, plot);
  });
  return [...plots.values()].flatMap((plot) => {
    const parts = [];
    const most = kColours.length;
    for (let at = 0; at < plot.fields.length; at += most) {
      const name = at === 0 ? plot.name : `${plot.name}, continued`;
      parts.push({ name, fields: plot.fields.slice(at, at + most), columns: plot.columns.slice(at, at + most) });
    }
    return parts;
  });
}

function Requests({ picture }: { picture: Picture }) {
  const running = picture.slots.filter((slot) => slot.is_processing);
  const queue = picture.status?.activity.queue ?? [];
  return (
    <Card title="Requests now" wide>
      {running.length === 0 && queue.length === 0 && <p class="note">Nothing runs and nothing waits.</p>}
      <ul class="requests">
        {running.map((slot) => {
          const total = slot.n_prompt_tokens ?? 0;
          const read = slot.n_prompt_tokens_processed ?? 0;
          const decoded = slot.n_decoded ?? 0;
          return (
            <li key={slot.id_task}>
              <span class="digits">#{slot.id_task}</span>
              {decoded === 0 ? (
                <>
                  <progress aria-label={`Request ${slot.id_task}: prompt read`} max={Math.max(1, total)} value={read} />
                  <span class="digits">
                    reading {count(read)} / {count(total)}
                  </span>
                </>
              ) : (
                <>
                  <progress aria-label={`Request ${slot.id_task}: context in use`} max={slot.n_ctx} value={total + decoded} />
                  <span class="digits">
                    writing, {count(decoded)} tokens{(slot.n_prompt_tokens_cache ?? 0) > 0 && `, ${count(slot.n_prompt_tokens_cache ?? 0)} of ${count(total)} cached`}
                  </span>
                </>
              )}
            </li>
          );
        })}
        {queue.map((entry) => (
          <li key={`q${entry.id}`}>
            <span class="digits">#{entry.id}</span>
            <span class="digits">
              waits, {count(entry.ahead)} ahead, prompt {count(entry.prompt_tokens)}
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function LastRequests({ picture }: { picture: Picture }) {
  return (
    <Card title="Last requests" wide>
      {picture.finished.length === 0 ? (
        <p class="note">None has ended since the server was started.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Last requests">
          <table class="figures">
            <thead>
              <tr>
                <th scope="col">Ended</th>
                <th scope="col">How</th>
                <th scope="col">Waited</th>
                <th scope="col">First token</th>
                <th scope="col">Prompt</th>
                <th scope="col">Cached</th>
                <th scope="col">Prompt t/s</th>
                <th scope="col">Answer</th>
                <th scope="col">Answer t/s</th>
                <th scope="col">Drafts right</th>
                <th scope="col">Time</th>
              </tr>
            </thead>
            <tbody>
              {picture.finished.map(({ id, ended_at, finish, queue_ms, first_token_ms, whole_ms, timings }) => (
                <tr key={id}>
                  <td>{clock(ended_at * 1000)}</td>
                  <td>{finish.replaceAll('_', ' ')}</td>
                  <td>{duration(queue_ms)}</td>
                  <td>{first_token_ms === null ? '–' : duration(first_token_ms)}</td>
                  <td>{count(timings.prompt_n + timings.cache_n)}</td>
                  <td>{count(timings.cache_n)}</td>
                  <td>{timings.prompt_per_second === null ? '–' : short(timings.prompt_per_second)}</td>
                  <td>{count(timings.predicted_n)}</td>
                  <td>{timings.predicted_per_second === null ? '–' : short(timings.predicted_per_second)}</td>
                  <td>{timings.draft_n ? percent(timings.draft_n_accepted ?? 0, timings.draft_n) : '–'}</td>
                  <td>{duration(whole_ms)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function Depths({ status }: { status: Status }) {
  const { drafts } = status;
  return (
    <Card title="Drafts by depth">
      {drafts.by_depth.length === 0 ? (
        <p class="note">{status.capabilities.drafts ? 'Nothing was guessed yet.' : 'Drafts are off.'}</p>
      ) : (
        <>
          <p class="note digits">
            {percent(drafts.accepted, drafts.drafted)} of {count(drafts.drafted)} guesses were right, in {count(drafts.rounds)} rounds.
          </p>
          <ul class="bars">
            {drafts.by_depth.map(({ depth, drafted, accepted }) => (
              <li key={depth}>
                <span class="digits">{depth}</span>
                <meter aria-label={`Depth ${depth}`} min={0} max={1} value={drafted > 0 ? accepted / drafted : 0} />
                <span class="digits">
                  {percent(accepted, drafted)} of {count(drafted)}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </Card>
  );
}

function Tiers({ status }: { status: Status }) {
  const { cache, engine } = status;
  const rows: [string, string, string][] = [
    ['Weights', bytes(engine.weight_bytes), `${count(engine.parameters)} parameters`],
    ['Conversations in memory', `${bytes(cache.bytes ?? 0)} of ${bytes(cache.limit ?? 0)}`, `${count(cache.checkpoints ?? 0)} points, ${count(cache.evicted ?? 0)} let go`],
    ['Conversations on disk', `${bytes(cache.disk_bytes ?? 0)} of ${bytes(cache.disk_limit ?? 0)}`, `${count(cache.disk_checkpoints ?? 0)} points`],
    ['Running requests', bytes(engine.reserved_bytes), 'promised and not taken yet'],
    ['Prompt encoder', bytes(status.prompt_encoder.held_bytes ?? 0), `${count(status.prompt_encoder.entries ?? 0)} kept`],
  ];
  return (
    <Card title="Memory by tier">
      <table class="figures left">
        <tbody>
          {rows.map(([name, size, what]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{size}</td>
              <td class="dim">{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

// Sizes as such; objects as their values, those of a list one after the other.
function factText(name: string, value: unknown): string {
  if (typeof value === 'number') return name.endsWith('_bytes') ? bytes(value) : name.endsWith('_w') ? `${short(value)} W` : short(value);
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.map((one) => factText(name, one)).join('; ');
  if (typeof value === 'object' && value !== null) return Object.entries(value).map(([key, one]) => factText(key, one)).join(', ');
  return JSON.stringify(value);
}

// Facts that the server gives as it likes: plain ones in a list, lists of objects as tables.
function Facts({ facts }: { facts: Record<string, unknown> }) {
  const plain = Object.entries(facts).filter(([, value]) => typeof value !== 'object' || value === null);
  const nested = Object.entries(facts).filter(([, value]) => typeof value === 'object' && value !== null);
  if (plain.length + nested.length === 0) return null;
  return (
    <Card title="This machine" wide>
      <dl class="pairs">
        {[...plain, ...nested].map(([name, value]) => (
          <div key={name}>
            <dt>{name.replace(/_bytes$/, '').replaceAll('_', ' ')}</dt>
            <dd>{factText(name, value)}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}

export function Monitor() {
  const [, draw] = useState(0);
  const [error, setError] = useState('');
  const [chosen, setSpan] = useState<number>();
  const span = chosen ?? (watch.picture.own ? 60 : 300);
  useEffect(() => {
    let over = false;
    let busy = false;
    const look = async () => {
      if (busy || document.hidden || keyWanted.get()) return;
      busy = true;
      try {
        await watch.look();
        statusSignal.set(watch.picture.status);
        if (!over) setError('');
      } catch (reason) {
        if (!over) setError(reason instanceof Error ? reason.message : String(reason));
      }
      busy = false;
      if (!over) draw((n) => n + 1);
    };
    void look();
    const timer = setInterval(() => void look(), 1000);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, []);
  const { picture } = watch;
  const { status } = picture;
  return (
    <section class="page" aria-label="Monitor">
      <header class="page-head">
        <h1>Monitor</h1>
        <div class="segments" role="group" aria-label="Time shown">
          {([[60, '1 min'], [300, '5 min'], [3600, '1 hour']] as const).map(([seconds, label]) => (
            <button key={seconds} type="button" aria-pressed={span === seconds} onClick={() => setSpan(seconds)}>
              {label}
            </button>
          ))}
        </div>
      </header>
      {error !== '' && (
        <p class="note bad" role="alert">
          {error}
        </p>
      )}
      {picture.own && <p class="note">This server keeps no samples: the lines begin when this page was opened.</p>}
      <div class="cards">
        <Requests picture={picture} />
        {status && <Depths status={status} />}
        {status && <Tiers status={status} />}
        {plotsOf(picture).map((plot) => (
          <GroupPlot key={plot.name} {...plot} picture={picture} span={span} />
        ))}
        <LastRequests picture={picture} />
        <Facts facts={picture.facts} />
      </div>
    </section>
  );
}

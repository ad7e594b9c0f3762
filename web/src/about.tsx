// The model, its settings with where each came from, and how other programs connect.
import { useEffect, useState } from 'preact/hooks';
import { askJson, health, props, status, type Props, type Status, type Setting } from './api';
import { say } from './chats';
import { bytes, count, dateAndTime, duration } from './format';
import { copyText } from './markdown';
import { KeyForm } from './settings';
import { useSignal } from './signal';

// Where the build has put the notices of the packages.
declare const STRATA_LICENCES: string;

function Pairs({ rows }: { rows: [string, string | number | undefined][] }) {
  return (
    <dl class="pairs">
      {rows
        .filter(([, value]) => value !== undefined && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function SettingsTable({ title, settings }: { title: string; settings: Setting[] }) {
  const text = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={title}>
      <table class="figures left">
        <caption>{title}</caption>
        <thead>
          <tr>
            <th scope="col">Setting</th>
            <th scope="col">Value</th>
            <th scope="col">From</th>
          </tr>
        </thead>
        <tbody>
          {settings.map(({ name, value, source }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{text(value) === '' || value === null ? <span class="dim">none</span> : text(value)}</td>
              <td>{source}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Recipe({ title, text }: { title: string; text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    const good = await copyText(text);
    say(good ? `${title}: copied.` : 'The browser does not allow copying.');
    setDone(good);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <section class="recipe" aria-label={title}>
      <header>
        <h3>{title}</h3>
        <button type="button" aria-label={`Copy: ${title}`} onClick={() => void copy()}>
          {done ? 'Copied' : 'Copy'}
        </button>
      </header>
      <pre tabIndex={0}>{text}</pre>
    </section>
  );
}

// Configurations of common tools. The key is the user's to fill in: pages are shared by screenshots.
export function recipes(origin: string, model: string, needsKey: boolean): { title: string; text: string }[] {
  const key = needsKey ? 'YOUR_KEY' : 'none';
  return [
    { title: 'OpenAI’s libraries', text: `export OPENAI_BASE_URL=${origin}/v1\nexport OPENAI_API_KEY=${key}\n` },
    {
      title: 'Claude Code',
      text: `export ANTHROPIC_BASE_URL=${origin}\nexport ANTHROPIC_AUTH_TOKEN=${key}\nexport ANTHROPIC_MODEL=${model}\nclaude\n`,
    },
    {
      title: 'Codex (~/.codex/config.toml)',
      text: `model = "${model}"\nmodel_provider = "strata"\n\n[model_providers.strata]\nname = "Strata"\nbase_url = "${origin}/v1"\nwire_api = "responses"\n${needsKey ? 'env_key = "STRATA_API_KEY"\n' : ''}`,
    },
    {
      title: 'opencode (opencode.json)',
      text: `${JSON.stringify(
        {
          $schema: 'https://opencode.ai/config.json',
          provider: {
            strata: {
              npm: '@ai-sdk/openai-compatible',
              name: 'Strata',
              options: { baseURL: `${origin}/v1`, apiKey: key },
              models: { [model]: { name: model } },
            },
          },
        },
        null,
        2,
      )}\n`,
    },
    {
      title: 'Python',
      text: `from openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key="${key}")\nanswer = client.chat.completions.create(\n    model="${model}", messages=[{"role": "user", "content": "Hello"}])\nprint(answer.choices[0].message.content)\n`,
    },
    {
      title: 'curl',
      text: `curl ${origin}/v1/chat/completions \\\n  -H 'Content-Type: application/json' \\\n${needsKey ? `  -H 'Authorization: Bearer ${key}' \\\n` : ''}  -d '{"messages": [{"role": "user", "content": "Hello"}]}'\n`,
    },
  ];
}

// As the setting says it; what 'auto' has chosen is the engine's own.
function lieIn(server: Status): string | undefined {
  const value = server.engine.settings.find(({ name }) => name === 'weights')?.value;
  const words: Record<string, string> = { ram: 'memory', map: 'the mapped file', auto: 'memory if there is room, else the mapped file' };
  return typeof value === 'string' ? (words[value] ?? value) : undefined;
}

function tablesText(server: Status): string | undefined {
  const tables = server.engine.ngram_tables.map(({ how, memory_bytes }) => (memory_bytes > 0 ? `${how}; ${bytes(memory_bytes)} of memory` : how));
  return tables.length > 0 ? [...new Set(tables)].join('; ') : undefined;
}

function ModelFacts({ server, facts }: { server: Status; facts: Props | undefined }) {
  const { engine } = server;
  return (
    <Pairs
      rows={[
        ['Model', server.model],
        ['File', facts?.model_path],
        ['Parameters', count(engine.parameters)],
        ['Weights', bytes(engine.weight_bytes)],
        ['Layers', engine.layers],
        ['Context', `${count(server.context)} tokens`],
        ['Answers at a time', server.concurrency.serving],
        ['State', engine.process ? engine.process.state : 'in the server’s process'],
        ['Restarts', engine.process?.restarts],
        ['Last trouble', engine.process?.last_death ?? undefined],
      ]}
    />
  );
}

export function About() {
  const server = useSignal(status);
  const facts = useSignal(props);
  const state = useSignal(health);
  const [error, setError] = useState('');
  useEffect(() => {
    askJson<Status>('/v1/status').then((now) => status.set(now), (reason: Error) => setError(reason.message));
  }, []);
  const { origin } = location;
  const model = server?.model ?? state.model ?? 'strata';
  return (
    <section class="page" aria-label="About">
      <header class="page-head">
        <h1>About</h1>
      </header>
      {error !== '' && !server && (
        <p class="note bad" role="alert">
          {error}
        </p>
      )}
      <div class="cards">
        {server && (
          <section class="card" aria-label="The model">
            <h2>The model</h2>
            <ModelFacts server={server} facts={facts} />
          </section>
        )}
        {server && (
          <section class="card" aria-label="Placement and server">
            <h2>Placement and server</h2>
            <Pairs
              rows={[
                ['Backend', 'CPU'],
                ['Instructions', server.engine.isa],
                ['Threads', server.engine.threads],
                ['Weights lie in', lieIn(server)],
                ['N-gram table', tablesText(server)],
                ['Drafts', server.engine.drafts],
                ['Strata', server.version],
                ['Started', dateAndTime(server.started * 1000)],
                ['Up for', duration(server.uptime_s * 1000)],
                ['Loads by itself', server.auto_load ? 'yes' : 'no'],
                ['Pinned for evaluations', server.parity ? 'yes' : 'no'],
              ]}
            />
          </section>
        )}
        <section class="card" aria-label="Access">
          <h2>Access</h2>
          <p class="note">{state.api_key ? 'This server asks for a key.' : 'This server asks for no key.'}</p>
          <KeyForm onDone={() => undefined} />
        </section>
        <section class="card wide" aria-label="Connect other programs">
          <h2>Connect other programs</h2>
          <Pairs
            rows={[
              ['OpenAI’s API', `${origin}/v1`],
              ['Anthropic’s API', origin],
              ['Metrics (Prometheus)', `${origin}/metrics`],
            ]}
          />
          <div class="recipes">
            {recipes(origin, model, state.api_key === true).map((recipe) => (
              <Recipe key={recipe.title} {...recipe} />
            ))}
          </div>
        </section>
        {server && (
          <section class="card wide" aria-label="Settings in force">
            <h2>Settings in force</h2>
            <div class="two">
              <SettingsTable title="What changes answers" settings={server.defaults} />
              <SettingsTable title="What changes the speed, and where chats are kept" settings={server.engine.settings} />
            </div>
          </section>
        )}
        <section class="card wide" aria-label="Keys of the keyboard">
          <h2>Keyboard</h2>
          <Pairs
            rows={[
              ['Enter', 'send; with Shift, a new line'],
              ['Escape', 'stop the answer, or close what is open'],
              ['Ctrl K', 'search in the history'],
              ['Ctrl Shift O', 'a new chat'],
            ]}
          />
          <p class="note">
            This app contains the work of others: <a href={STRATA_LICENCES}>their licences</a>.
          </p>
        </section>
      </div>
    </section>
  );
}

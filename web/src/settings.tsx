// The settings of the open chat, and what new chats start with.
import { useEffect, useRef, useState } from 'preact/hooks';
import { apiKey, prefer, preferences, setApiKey } from './preferences';
import { forgetFacts, props, refreshFacts, status } from './api';
import { changeKey, changeSettings, current, place, refreshList, revision, say, serverKeepsChats, startChat } from './chats';
import { Action } from './message';
import { useSignal } from './signal';

interface Knob {
  name: string; // of the request
  prop: string; // of /props
  label: string;
  min: number;
  max: number;
  step: number;
  hint: string;
}

const kKnobs: Knob[] = [
  { name: 'temperature', prop: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, hint: '0 always takes the likeliest token' },
  { name: 'top_p', prop: 'top_p', label: 'Top p', min: 0.01, max: 1, step: 0.01, hint: 'the likeliest tokens that make up this share' },
  { name: 'top_k', prop: 'top_k', label: 'Top k', min: 0, max: 1000, step: 1, hint: 'so many of the likeliest tokens; 0 is off' },
  { name: 'min_p', prop: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, hint: 'least share of the likeliest token’s chance' },
  { name: 'presence_penalty', prop: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.1, hint: 'against tokens that were there' },
  { name: 'frequency_penalty', prop: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.1, hint: 'for each time they were' },
  { name: 'repetition_penalty', prop: 'repeat_penalty', label: 'Repetition penalty', min: 0.1, max: 2, step: 0.05, hint: '1 is off' },
  { name: 'seed', prop: 'seed', label: 'Seed', min: 0, max: 4294967295, step: 1, hint: 'the same seed gives the same answer' },
  { name: 'max_output_tokens', prop: 'n_predict', label: 'Most tokens of an answer', min: 1, max: 10_000_000, step: 1, hint: 'empty is the room in the context' },
];

const kEfforts = ['none', 'low', 'medium', 'high', 'xhigh'];

function shownDefault(knob: Knob, value: number | undefined): string {
  if (value === undefined) return 'model’s own';
  if (knob.name === 'seed' && value < 0) return 'random';
  if (knob.name === 'max_output_tokens' && value < 0) return 'what is left';
  return String(Math.round(value * 1e4) / 1e4);
}

function KnobField({ knob }: { knob: Knob }) {
  const chat = useSignal(current);
  const facts = useSignal(props);
  const server = useSignal(status);
  const given = chat.content.settings.sampling?.[knob.name];
  const built = facts?.default_generation_settings.params[knob.prop];
  const source = server?.defaults.find((one) => one.name === knob.name || one.name === knob.prop)?.source;
  const change = (text: string) => {
    const sampling = { ...chat.content.settings.sampling };
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value)) delete sampling[knob.name];
    else sampling[knob.name] = Math.min(knob.max, Math.max(knob.min, value));
    changeSettings({ sampling });
  };
  const id = `knob-${knob.name}`;
  return (
    <div class="knob">
      <label for={id}>{knob.label}</label>
      <input
        id={id}
        type="number"
        inputMode="decimal"
        min={knob.min}
        max={knob.max}
        step={knob.step}
        value={given ?? ''}
        placeholder={shownDefault(knob, built)}
        aria-describedby={`${id}-hint`}
        onChange={(event) => change(event.currentTarget.value)}
      />
      <p class="hint" id={`${id}-hint`}>
        {knob.hint}
        {source && given === undefined ? ` · from: ${source}` : ''}
      </p>
    </div>
  );
}

export function KeyForm({ onDone }: { onDone: () => void }) {
  const key = useSignal(apiKey);
  const [text, setText] = useState(key);
  const [wrong, setWrong] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setApiKey(text);
    const answer = await fetch('/v1/models', { headers: text.trim() === '' ? {} : { Authorization: `Bearer ${text.trim()}` } }).catch(() => undefined);
    if (answer?.status === 401) {
      setWrong(true);
      return;
    }
    setWrong(false);
    forgetFacts();
    await changeKey(refreshFacts());
    say('The key is kept in this browser.');
    onDone();
  };
  return (
    <form class="key" onSubmit={(event) => void submit(event)}>
      <label for="key">API key</label>
      <div class="row">
        <input
          id="key"
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={text}
          aria-invalid={wrong}
          aria-describedby="key-hint"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="main">
          Use
        </button>
      </div>
      <p class={wrong ? 'hint bad' : 'hint'} id="key-hint" role={wrong ? 'alert' : undefined}>
        {wrong ? 'The server does not know this key.' : 'Kept in this browser only, and sent to this server only.'}
      </p>
    </form>
  );
}

export function Settings({ onClose }: { onClose: () => void }) {
  const chat = useSignal(current);
  useSignal(revision);
  const choice = useSignal(preferences);
  const kept = useSignal(serverKeepsChats);
  const server = useSignal(status);
  const top = useRef<HTMLHeadingElement>(null);
  useEffect(() => top.current?.focus(), []);
  const { settings } = chat.content;
  const effortDefault = server?.defaults.find((one) => one.name === 'reasoning_effort');
  const changed = Object.keys(settings).length > 0;
  let toolsWrong = '';
  if (settings.tools?.trim()) {
    try {
      if (!Array.isArray(JSON.parse(settings.tools))) toolsWrong = 'It must be an array of tools.';
    } catch {
      toolsWrong = 'This is not valid JSON yet.';
    }
  }
  return (
    <aside class="settings" id="settings" aria-label="Settings">
      <header>
        <h2 tabIndex={-1} ref={top}>
          Settings
        </h2>
        <Action icon="close" label="Close the settings" onClick={onClose} />
      </header>
      <div class="settings-body">
        <section aria-label="This chat">
          <h3>This chat</h3>
          <label for="system">System prompt</label>
          <textarea
            id="system"
            rows={4}
            value={settings.system?.text ?? ''}
            placeholder="What the model should know and how it should answer"
            onChange={(event) => {
              const text = event.currentTarget.value;
              changeSettings({ system: text === '' ? undefined : { text } });
            }}
          />
          <label for="effort">Thinking</label>
          <select
            id="effort"
            value={settings.effort ?? ''}
            onChange={(event) => changeSettings({ effort: event.currentTarget.value || undefined })}
          >
            <option value="">Default ({effortDefault ? String(effortDefault.value ?? 'of the model') : 'of the model'})</option>
            {kEfforts.map((effort) => (
              <option key={effort} value={effort}>
                {effort}
              </option>
            ))}
          </select>
          <h4>Sampling</h4>
          <div class="knobs">
            {kKnobs.map((knob) => (
              <KnobField key={knob.name} knob={knob} />
            ))}
          </div>
          <label for="tools">Tools (JSON, as in the API)</label>
          <textarea
            id="tools"
            class="mono"
            rows={3}
            spellcheck={false}
            value={settings.tools ?? ''}
            placeholder='[{"type":"function","name":"weather","parameters":{…}}]'
            aria-invalid={toolsWrong !== ''}
            aria-describedby="tools-hint"
            onChange={(event) => changeSettings({ tools: event.currentTarget.value || undefined })}
          />
          <p class={toolsWrong ? 'hint bad' : 'hint'} id="tools-hint">
            {toolsWrong || 'The model’s calls are shown; you give their results.'}
          </p>
          <div class="row">
            <button
              type="button"
              disabled={!changed}
              onClick={() => changeSettings({ system: undefined, effort: undefined, sampling: undefined, tools: undefined })}
            >
              Reset
            </button>
            <button
              type="button"
              onClick={() => {
                prefer({ newChat: structuredClone(settings) });
                say('New chats start with these settings.');
              }}
            >
              Use for new chats
            </button>
          </div>
        </section>
        <section aria-label="The app">
          <h3>The app</h3>
          <label for="history-place">History</label>
          <select
            id="history-place"
            value={choice.history}
            onChange={(event) => {
              prefer({ history: event.currentTarget.value === 'browser' ? 'browser' : 'server' });
              if (current.get().id === undefined) startChat();
              void refreshList();
            }}
          >
            <option value="server">On the server</option>
            <option value="browser">In this browser only</option>
          </select>
          {!kept && <p class="hint">This server keeps no chats: they stay in this browser.</p>}
          {kept && place() === 'browser' && <p class="hint">Answers leave the server when they are complete.</p>}
          <label class="check">
            <input
              type="checkbox"
              checked={choice.enterSends}
              onChange={(event) => prefer({ enterSends: event.currentTarget.checked })}
            />
            Enter sends; Shift and Enter begins a line
          </label>
          <label class="check">
            <input
              type="checkbox"
              checked={choice.foldThinking}
              onChange={(event) => prefer({ foldThinking: event.currentTarget.checked })}
            />
            Fold the thinking
          </label>
        </section>
      </div>
    </aside>
  );
}

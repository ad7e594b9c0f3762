// One message of the shown path, with what may be done about it.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { current, edit, giveResults, regenerate, say, show } from './chats';
import { bytes, count, duration, short } from './format';
import { Icon, type IconName } from './icons';
import { copyText, MarkdownView } from './markdown';
import { preferences, prefer } from './preferences';
import { useSignal } from './signal';
import { childrenOf, type Node, type ToolCall, type ToolResult } from './tree';

// Draws a growing text; the slower that is, the longer until it is done again.
function Prose({ text, final }: { text: string; final: boolean }) {
  const root = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView>(undefined);
  const pending = useRef<ReturnType<typeof setTimeout>>(undefined);
  const next = useRef(0);
  useLayoutEffect(() => {
    if (!root.current) return;
    view.current ??= new MarkdownView(root.current, say);
    clearTimeout(pending.current);
    const draw = () => {
      const start = performance.now();
      view.current?.update(text, final);
      const end = performance.now();
      next.current = end + Math.min(2000, 4 * (end - start));
    };
    const wait = next.current - performance.now();
    if (wait <= 0) draw();
    else pending.current = setTimeout(draw, wait);
  }, [text, final]);
  useEffect(() => () => clearTimeout(pending.current), []);
  return <div class="prose" ref={root} />;
}

export function Action({ icon, label, onClick }: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="quiet" title={label} aria-label={label} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}

function CopyAction({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    const good = await copyText(text);
    say(good ? 'Copied.' : 'The browser does not allow copying.');
    setDone(good);
    setTimeout(() => setDone(false), 1500);
  };
  return <Action icon={done ? 'check' : 'copy'} label={label} onClick={() => void copy()} />;
}

// "2/3", where a message has siblings.
function Chooser({ node }: { node: Node }) {
  const siblings = childrenOf(current.get().content, node.parent);
  if (siblings.length < 2) return null;
  const at = siblings.findIndex((one) => one.id === node.id);
  const what = node.role === 'user' ? 'version of the question' : 'answer';
  const step = (by: number) => {
    const other = siblings[at + by];
    if (!other) return;
    show(other);
    say(`${what} ${at + by + 1} of ${siblings.length}`);
  };
  return (
    <span class="chooser" role="group" aria-label={`Choose the ${what}`}>
      <button type="button" class="quiet" disabled={at === 0} aria-label={`Previous ${what}`} onClick={() => step(-1)}>
        <Icon name="left" />
      </button>
      <span class="digits">
        {at + 1}/{siblings.length}
      </span>
      <button
        type="button"
        class="quiet"
        disabled={at === siblings.length - 1}
        aria-label={`Next ${what}`}
        onClick={() => step(1)}
      >
        <Icon name="right" />
      </button>
    </span>
  );
}

function Files({ node }: { node: Node }) {
  if (!node.attachments) return null;
  return (
    <ul class="files" aria-label="Attached files">
      {node.attachments.map((file) => (
        <li key={file.name}>
          <details>
            <summary>
              <Icon name="clip" /> {file.name} <span class="dim">{bytes(file.text.length)}</span>
            </summary>
            <pre tabIndex={0}>{file.text.length > 20_000 ? `${file.text.slice(0, 20_000)}…` : file.text}</pre>
          </details>
        </li>
      ))}
    </ul>
  );
}

function Question({ node }: { node: Node }) {
  const [editing, setEditing] = useState(false);
  const [text, setText] = useState(node.text);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (editing) field.current?.focus();
  }, [editing]);
  const cancel = () => {
    setEditing(false);
    setText(node.text);
  };
  const commit = (event: Event) => {
    event.preventDefault();
    if (text.trim() === '' && !node.attachments) return;
    setEditing(false);
    edit(node, text);
  };
  if (editing) {
    return (
      <article class="message question" aria-label="Your question">
        <form class="edit" onSubmit={commit}>
          <textarea
            ref={field}
            aria-label="The question, changed"
            rows={Math.min(12, text.split('\n').length + 1)}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') cancel();
              if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) commit(event);
            }}
          />
          <div class="row end">
            <button type="button" onClick={cancel}>
              Cancel
            </button>
            <button type="submit" class="main">
              Ask again
            </button>
          </div>
        </form>
      </article>
    );
  }
  const long = node.text.length > 6000;
  return (
    <article class="message question" aria-label="Your question">
      <div class="bubble">
        {long ? <LongText text={node.text} /> : node.text}
        <Files node={node} />
      </div>
      <div class="actions">
        <Chooser node={node} />
        <CopyAction text={node.text} label="Copy the question" />
        <Action icon="edit" label="Edit the question" onClick={() => setEditing(true)} />
      </div>
    </article>
  );
}

function LongText({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  return (
    <>
      {whole ? text.slice(0, 400_000) : `${text.slice(0, 3000)}…`}{' '}
      <button type="button" class="link" aria-expanded={whole} onClick={() => setWhole(!whole)}>
        {whole ? 'Show less' : `Show all (${bytes(text.length)})`}
      </button>
    </>
  );
}

function Thinking({ node, running }: { node: Node; running: boolean }) {
  const { foldThinking } = useSignal(preferences);
  if (!node.thinking) return null;
  const busy = running && node.text === '' && !node.calls;
  const time = node.thinkingMs !== undefined && node.thinkingMs >= 100 ? ` for ${duration(node.thinkingMs)}` : '';
  const tokens = node.usage && node.usage.reasoning > 0 ? ` · ${count(node.usage.reasoning)} tokens` : '';
  return (
    <details class="thinking" open={!foldThinking}>
      <summary>
        <Icon name="right" />
        {busy ? <span class="pulse">Thinking…</span> : `Thought${time}${tokens}`}
      </summary>
      <div class="thought">
        <Prose text={node.thinking} final={!busy} />
        <label class="check small">
          <input
            type="checkbox"
            checked={!foldThinking}
            onChange={(event) => prefer({ foldThinking: !event.currentTarget.checked })}
          />
          Always unfold
        </label>
      </div>
    </details>
  );
}

function pretty(call: ToolCall): string {
  try {
    return JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    return call.arguments;
  }
}

function Calls({ node, last }: { node: Node; last: boolean }) {
  const [given, setGiven] = useState<Record<string, string>>({});
  const calls = node.calls;
  if (!calls) return null;
  const ready = last && node.state === 'done' && calls.every((call) => call.done);
  const submit = (event: Event) => {
    event.preventDefault();
    const results: ToolResult[] = calls.map((call) => ({ call: call.id, name: call.name, text: given[call.id] ?? '' }));
    giveResults(node, results);
  };
  return (
    <form class="calls" onSubmit={submit}>
      {calls.map((call) => (
        <section key={call.id} class="call" aria-label={`Call of the tool ${call.name}`}>
          <header>
            <Icon name="tool" /> <b>{call.name}</b>
            {!call.done && <span class="dim">{node.state === 'running' ? ' writing its arguments…' : ' cut off'}</span>}
          </header>
          <pre tabIndex={0}>{pretty(call)}</pre>
          {ready && (
            <label>
              <span class="dim">Result of {call.name}</span>
              <textarea
                rows={2}
                value={given[call.id] ?? ''}
                onInput={(event) => setGiven({ ...given, [call.id]: event.currentTarget.value })}
              />
            </label>
          )}
        </section>
      ))}
      {ready && (
        <div class="row end">
          <button type="submit">Give the {calls.length > 1 ? 'results' : 'result'} and go on</button>
        </div>
      )}
    </form>
  );
}

// What an answer took: only what was measured.
function Facts({ node }: { node: Node }) {
  const { usage, speed, firstMs } = node;
  const parts: string[] = [];
  if (usage) {
    parts.push(`${count(usage.output)} tokens`);
    if (speed !== undefined) parts.push(`${short(speed)} tokens/s`);
    parts.push(`prompt ${count(usage.input)}${usage.cached > 0 ? ` (${count(usage.cached)} cached)` : ''}`);
  }
  if (firstMs !== undefined) parts.push(`first token ${duration(firstMs)}`);
  if (parts.length === 0) return null;
  return <span class="facts digits">{parts.join(' · ')}</span>;
}

const kEndings = {
  running: '',
  done: '',
  stopped: 'Stopped.',
  cut: 'The limit of tokens was reached.',
  failed: 'The answer failed.',
  lost: 'The rest of this answer is lost.',
};

function Answer({ node, last, waiting }: { node: Node; last: boolean; waiting: string }) {
  const running = node.state === 'running';
  const empty = node.text === '' && !node.thinking && !node.calls;
  const ending = kEndings[node.state ?? 'done'];
  return (
    <article class="message answer" aria-label="Answer" aria-busy={running}>
      <Thinking node={node} running={running} />
      {node.text !== '' && <Prose text={node.text} final={!running} />}
      <Calls node={node} last={last} />
      {running && empty && (
        <p class="waiting">
          <span class="dots" aria-hidden="true" /> {waiting}
        </p>
      )}
      {!running && empty && node.state === 'done' && <p class="note">The answer is empty.</p>}
      {ending !== '' && (
        <p class={node.state === 'failed' || node.state === 'lost' ? 'note bad' : 'note'}>
          {ending} {node.error}
        </p>
      )}
      {!running && (
        <div class="actions">
          <Chooser node={node} />
          <CopyAction text={node.text} label="Copy the answer" />
          <Action icon="redo" label="Another answer" onClick={() => regenerate(node)} />
          <Facts node={node} />
        </div>
      )}
    </article>
  );
}

function Results({ node }: { node: Node }) {
  return (
    <article class="message results" aria-label="Results of tools">
      {node.results?.map((result) => (
        <section key={result.call} class="call" aria-label={`Result of ${result.name}`}>
          <header>
            <Icon name="tool" /> Result of <b>{result.name}</b>
          </header>
          <pre tabIndex={0}>{result.text}</pre>
        </section>
      ))}
      <div class="actions">
        <Chooser node={node} />
      </div>
    </article>
  );
}

export function Message({ node, last, waiting }: { node: Node; last: boolean; waiting: string }) {
  if (node.role === 'user') return <Question node={node} />;
  if (node.role === 'tool') return <Results node={node} />;
  return <Answer node={node} last={last} waiting={waiting} />;
}

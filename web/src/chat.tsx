// The conversation and the field to write in.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ask, askJson, health, props, type Slot } from './api';
import { current, notice, revision, runningIn, send, stopCurrent } from './chats';
import { bytes, count } from './format';
import { Icon } from './icons';
import { Action, Message } from './message';
import { preferences } from './preferences';
import { useSignal } from './signal';
import { shownPath, type Attachment, type Node } from './tree';

const kMostAttached = 4 << 20; // bytes of text in one question

// What the engine does before the first token, as far as it can be told apart from others' work.
function useWaiting(running: boolean): string {
  const [text, setText] = useState('Waiting for the first token…');
  useEffect(() => {
    if (!running) return;
    setText('Waiting for the first token…');
    let over = false;
    const look = async () => {
      try {
        const { loaded } = health.get();
        const slots = (await askJson<Slot[]>('/slots')).filter((slot) => slot.is_processing);
        const [slot] = slots;
        if (over) return;
        if (slots.length === 1 && slot && (slot.n_decoded ?? 0) === 0 && (slot.n_prompt_tokens ?? 0) > 0) {
          setText(`Reading the prompt: ${count(slot.n_prompt_tokens_processed ?? 0)} of ${count(slot.n_prompt_tokens ?? 0)} tokens`);
        } else if (slots.length === 0 && loaded === false) {
          setText('The model is being loaded…');
        }
      } catch {
        // The answer itself will say what is wrong.
      }
    };
    const timer = setInterval(() => void look(), 700);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [running]);
  return text;
}

// The context that the shown path and the draft take: what the last answer counted, and the draft.
function ContextMeter({ path, draft }: { path: Node[]; draft: string }) {
  const facts = useSignal(props);
  const [extra, setExtra] = useState(0);
  useEffect(() => {
    if (draft === '') return setExtra(0);
    const timer = setTimeout(() => {
      ask('/tokenize', { body: { content: draft.slice(0, 200_000) } })
        .then((answer) => answer.json() as Promise<{ tokens: number[] }>)
        .then(({ tokens }) => setExtra(tokens.length), () => setExtra(0));
    }, 600);
    return () => clearTimeout(timer);
  }, [draft]);
  const most = facts?.default_generation_settings.n_ctx ?? 0;
  if (most === 0) return null;
  const counted = path.findLast((node) => node.usage)?.usage;
  const used = (counted ? counted.input + counted.output : 0) + extra;
  const share = Math.min(1, used / most);
  return (
    <div class="meter" title="Tokens of the context that this conversation and the draft take">
      <meter aria-label="Context in use" min={0} max={most} value={used} high={0.8 * most} optimum={0} />
      <span class="digits">
        {count(used)} / {count(most)}
        {share > 0.9 && <b> nearly full</b>}
      </span>
    </div>
  );
}

async function readFiles(files: Iterable<File>, had: Attachment[]): Promise<Attachment[]> {
  const taken: Attachment[] = [...had];
  let room = kMostAttached - had.reduce((sum, file) => sum + file.text.length, 0);
  for (const file of files) {
    if (file.size > room) {
      notice.set(`${file.name} is too large: ${bytes(kMostAttached)} may be attached in all.`);
      continue;
    }
    const data = new Uint8Array(await file.arrayBuffer());
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(data);
      if (text.includes('\0')) throw new Error();
      taken.push({ name: file.name, text });
      room -= text.length;
    } catch {
      notice.set(`${file.name} is not text in UTF-8; only text files can be attached.`);
    }
  }
  return taken;
}

// A question that came with the address: ?q=
function firstDraft(): string {
  const words = new URLSearchParams(location.search);
  const question = words.get('q') ?? '';
  if (question !== '') history.replaceState(null, '', `${location.pathname}${location.hash}`);
  return question;
}

function Composer({ path, onSettings, settingsOpen }: { path: Node[]; onSettings: () => void; settingsOpen: boolean }) {
  const chat = useSignal(current);
  const { enterSends } = useSignal(preferences);
  const [text, setText] = useState(firstDraft);
  const [files, setFiles] = useState<Attachment[]>([]);
  const [over, setOver] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const running = runningIn(chat) !== undefined;
  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, 260)}px`;
  }, [text]);
  useEffect(() => {
    if (matchMedia('(pointer: fine)').matches) field.current?.focus();
  }, [chat.key]);
  const take = (list: Iterable<File>) => void readFiles(list, files).then(setFiles);
  const submit = (event?: Event) => {
    event?.preventDefault();
    if (running || (text.trim() === '' && files.length === 0)) return;
    send(text, files);
    setText('');
    setFiles([]);
  };
  return (
    <form
      class={over ? 'composer over' : 'composer'}
      onSubmit={submit}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        if (event.dataTransfer) take(event.dataTransfer.files);
      }}
    >
      {files.length > 0 && (
        <ul class="chips" aria-label="Files to send">
          {files.map((file, index) => (
            <li key={index}>
              {file.name} <span class="dim">{bytes(file.text.length)}</span>
              <Action icon="close" label={`Remove ${file.name}`} onClick={() => setFiles(files.filter((_, i) => i !== index))} />
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={field}
        rows={1}
        aria-label="Your question"
        placeholder="Ask something"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onPaste={(event) => {
          const pasted = event.clipboardData?.files;
          if (!pasted || pasted.length === 0) return;
          event.preventDefault();
          take(pasted);
        }}
        onKeyDown={(event) => {
          if (event.isComposing || event.key !== 'Enter') return;
          const meant = enterSends ? !event.shiftKey : event.ctrlKey || event.metaKey;
          if (meant) submit(event);
        }}
      />
      <div class="row">
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-hidden="true"
          tabIndex={-1}
          onChange={(event) => {
            if (event.currentTarget.files) take([...event.currentTarget.files]);
            event.currentTarget.value = '';
          }}
        />
        <Action icon="clip" label="Attach text files" onClick={() => picker.current?.click()} />
        <button
          type="button"
          class="quiet"
          aria-expanded={settingsOpen}
          aria-controls="settings"
          aria-label="Settings of this chat"
          title="Settings of this chat"
          onClick={onSettings}
        >
          <Icon name="sliders" />
        </button>
        <ContextMeter path={path} draft={text} />
        {running ? (
          <button type="button" class="main round" aria-label="Stop the answer" title="Stop (Esc)" onClick={stopCurrent}>
            <Icon name="stop" />
          </button>
        ) : (
          <button
            type="submit"
            class="main round"
            aria-label="Send"
            title="Send"
            disabled={text.trim() === '' && files.length === 0}
          >
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

function Welcome() {
  const facts = useSignal(props);
  const state = useSignal(health);
  return (
    <div class="welcome">
      <Icon name="layers" />
      <h1>What do you want to know?</h1>
      <p class="dim">
        {facts
          ? `${facts.model_alias} answers on this machine, with ${count(facts.default_generation_settings.n_ctx)} tokens of context.`
          : (state.reason ?? 'Connecting to the server…')}
      </p>
    </div>
  );
}

export function ChatView({ onSettings, settingsOpen }: { onSettings: () => void; settingsOpen: boolean }) {
  const chat = useSignal(current);
  useSignal(revision);
  const path = shownPath(chat.content);
  const last = path.at(-1);
  const fresh = last?.state === 'running' && last.text === '' && !last.thinking && !last.calls;
  const waiting = useWaiting(fresh);
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const [away, setAway] = useState(false);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && atEnd.current) box.scrollTop = box.scrollHeight;
  });
  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    // What is drawn later (code, formulas, delayed text) keeps the end in view, too.
    const watcher = new ResizeObserver(() => {
      if (atEnd.current) box.scrollTop = box.scrollHeight;
    });
    if (box.firstElementChild) watcher.observe(box.firstElementChild);
    return () => watcher.disconnect();
  }, []);
  const toEnd = () => {
    atEnd.current = true;
    setAway(false);
    scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  };
  useEffect(toEnd, [chat.key, path.length]);
  const questions = path.length;
  return (
    <section class="chat" aria-label="Chat">
      <div
        class="messages"
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label={questions > 0 ? `Conversation: ${chat.title}` : 'Conversation'}
        onScroll={(event) => {
          const box = event.currentTarget;
          atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
          setAway(!atEnd.current);
        }}
      >
        <div class="column">
          {path.length === 0 && <Welcome />}
          {path.map((node, index) => (
            <Message key={node.id} node={node} last={index === path.length - 1} waiting={waiting} />
          ))}
        </div>
      </div>
      <div class="column foot">
        {away && (
          <button type="button" class="to-end" onClick={toEnd}>
            <Icon name="down" /> To the end
          </button>
        )}
        <Composer path={path} onSettings={onSettings} settingsOpen={settingsOpen} />
        <p class="fine dim">Answers can be wrong. What you write goes to this server only.</p>
      </div>
    </section>
  );
}

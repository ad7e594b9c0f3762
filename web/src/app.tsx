// The frame around the views.
import type { ComponentType } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { health, keyWanted, refreshFacts } from './api';
import { ChatView } from './chat';
import { announcement, chatInAddress, current, notice, openChat, refreshList, revision, runningIn, startChat, stopCurrent } from './chats';
import { Icon } from './icons';
import { Action } from './message';
import { prefer, preferences, type Theme } from './preferences';
import { KeyForm, Settings } from './settings';
import { Sidebar } from './sidebar';
import { useSignal } from './signal';

type View = 'chat' | 'monitor' | 'about';
const kViews: [View, string][] = [
  ['chat', 'Chat'],
  ['monitor', 'Monitor'],
  ['about', 'About'],
];

function viewOf(hash: string): View {
  const name = hash.replace(/^#\/?/, '').split('/')[0];
  return name === 'monitor' || name === 'about' ? name : 'chat';
}

// The other views come when they are first looked at.
function Later({ load }: { load: () => Promise<ComponentType> }) {
  const [view, setView] = useState<{ body: ComponentType }>();
  const [error, setError] = useState('');
  useEffect(() => {
    load().then((body) => setView({ body }), () => setError('This view could not be loaded. Is the server still there?'));
  }, []);
  if (view) return <view.body />;
  return <p class="note pad">{error || 'Loading…'}</p>;
}
const loadMonitor = () => import('./monitor').then((module) => module.Monitor);
const loadAbout = () => import('./about').then((module) => module.About);

const kStates: Record<string, [string, string]> = {
  ok: ['good', 'Ready'],
  unknown: ['wait', 'Connecting'],
  loading: ['wait', 'Loading'],
  unloaded: ['wait', 'Unloaded'],
  unloading: ['wait', 'Unloading'],
  error: ['bad', 'Trouble'],
  offline: ['bad', 'Offline'],
};

function StatePill() {
  const state = useSignal(health);
  const wanted = useSignal(keyWanted);
  const [kind, words] = wanted ? ['wait', 'Key needed'] : (kStates[state.status] ?? ['bad', state.status]);
  const asleep = state.status === 'ok' && state.loaded === false;
  return (
    <span class={`pill ${kind}`} role="status" title={state.reason ?? ''}>
      <span class="dot" aria-hidden="true" />
      <span class="words">{asleep ? 'Unloaded' : words}</span>
    </span>
  );
}

function ThemeButton() {
  const { theme } = useSignal(preferences);
  const next: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
  const names: Record<Theme, string> = { system: 'as the system', light: 'light', dark: 'dark' };
  const icon = theme === 'system' ? 'auto' : theme === 'light' ? 'sun' : 'moon';
  return (
    <Action
      icon={icon}
      label={`Colours: ${names[theme]}. Change to ${names[next[theme]]}`}
      onClick={() => prefer({ theme: next[theme] })}
    />
  );
}

function KeyDialog() {
  const wanted = useSignal(keyWanted);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (wanted && !dialog.current?.open) dialog.current?.showModal();
    if (!wanted) dialog.current?.close();
  }, [wanted]);
  return (
    <dialog ref={dialog} aria-labelledby="key-title">
      <h2 id="key-title">This server asks for a key</h2>
      <p class="note">Whoever has started it knows the key.</p>
      {wanted && <KeyForm onDone={() => dialog.current?.close()} />}
    </dialog>
  );
}

function Notice() {
  const text = useSignal(notice);
  if (text === '') return null;
  return (
    <div class="notice" role="alert">
      <span>{text}</span>
      <Action icon="close" label="Close the notice" onClick={() => notice.set('')} />
    </div>
  );
}

export function App() {
  const [view, setView] = useState<View>(viewOf(location.hash));
  const [side, setSide] = useState(false); // on narrow screens
  const [settings, setSettings] = useState(false);
  const chat = useSignal(current);
  const state = useSignal(health);
  useSignal(revision);
  const said = useSignal(announcement);

  useEffect(() => {
    const id = chatInAddress();
    if (id !== undefined) void openChat(id);
    const moved = () => {
      setView(viewOf(location.hash));
      const wanted = chatInAddress();
      if (wanted !== undefined && wanted !== current.get().id) void openChat(wanted);
    };
    addEventListener('hashchange', moved);
    void refreshFacts();
    const timer = setInterval(() => {
      if (!document.hidden) void refreshFacts();
    }, 4000);
    return () => {
      removeEventListener('hashchange', moved);
      clearInterval(timer);
    };
  }, []);

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && !event.defaultPrevented) {
        if (side) setSide(false);
        else if (settings) setSettings(false);
        else if (runningIn(current.get())) stopCurrent();
      }
      if (!(event.ctrlKey || event.metaKey)) return;
      if (event.key.toLowerCase() === 'k') {
        event.preventDefault();
        setView('chat');
        setSide(true);
        requestAnimationFrame(() => document.getElementById('search')?.focus());
      }
      if (event.shiftKey && event.key.toLowerCase() === 'o') {
        event.preventDefault();
        startChat();
        go('chat');
      }
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, [side, settings]);

  useEffect(() => {
    const name = view === 'chat' ? chat.title : view === 'monitor' ? 'Monitor' : 'About';
    document.title = `${name} · Strata`;
  });

  const go = (to: View) => {
    setView(to);
    setSide(false);
    const id = current.get().id;
    history.replaceState(null, '', to === 'chat' && id !== undefined ? `#/chat/${encodeURIComponent(id)}` : `#/${to}`);
    if (to === 'chat') void refreshList();
  };

  return (
    <div class={`app ${view}`}>
      <a class="skip" href="#main">
        To the content
      </a>
      <header class="top">
        {view === 'chat' && (
          <button
            type="button"
            class="quiet only-narrow"
            aria-label="History"
            aria-expanded={side}
            aria-controls="side"
            onClick={() => setSide(!side)}
          >
            <Icon name="menu" />
          </button>
        )}
        <span class="brand">
          <Icon name="layers" /> <b>Strata</b>
        </span>
        <nav class="tabs" aria-label="Views">
          {kViews.map(([name, label]) => (
            <a
              key={name}
              href={`#/${name}`}
              aria-current={view === name ? 'page' : undefined}
              onClick={(event) => {
                if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                event.preventDefault();
                go(name);
              }}
            >
              {label}
            </a>
          ))}
        </nav>
        <span class="grow" />
        <span class="model dim" title={state.model ?? ''}>
          {state.model ?? ''}
        </span>
        <StatePill />
        <ThemeButton />
      </header>
      {view === 'chat' && (
        <aside id="side" class={side ? 'side open' : 'side'} aria-label="Chats">
          <Sidebar onOpen={() => setSide(false)} />
        </aside>
      )}
      {side && <div class="shade" onClick={() => setSide(false)} />}
      <main id="main" tabIndex={-1}>
        {view === 'chat' && <ChatView onSettings={() => setSettings(!settings)} settingsOpen={settings} />}
        {view === 'monitor' && <Later key="monitor" load={loadMonitor} />}
        {view === 'about' && <Later key="about" load={loadAbout} />}
      </main>
      {view === 'chat' && settings && <Settings onClose={() => setSettings(false)} />}
      <Notice />
      <KeyDialog />
      <div class="off-screen" role="status" aria-live="polite">
        {said}
      </div>
    </div>
  );
}

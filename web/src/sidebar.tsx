// The history: search, open, rename, delete, export and import.
import { useEffect, useRef, useState } from 'preact/hooks';
import { status } from './api';
import {
  current,
  exportAll,
  exportCurrent,
  importChats,
  listing,
  moreOfList,
  notice,
  openChat,
  place,
  refreshList,
  removeChat,
  rename,
  revision,
  say,
  serverKeepsChats,
  startChat,
} from './chats';
import { bytes, dateAndTime, dayGroup } from './format';
import { Icon } from './icons';
import { Action } from './message';
import { preferences } from './preferences';
import { useSignal } from './signal';
import type { ChatHead } from './store';

const kMostImport = 64 << 20;

export function saveFile(name: string, value: unknown): void {
  const address = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: 'application/json' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function Entry({ head, shown, found, onOpen }: { head: ChatHead; shown: boolean; found: boolean; onOpen: () => void }) {
  const [mode, setMode] = useState<'plain' | 'rename' | 'remove'>('plain');
  const [title, setTitle] = useState(head.title);
  const input = useRef<HTMLInputElement>(null);
  const sure = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (mode === 'rename') input.current?.select();
    if (mode === 'remove') sure.current?.focus();
  }, [mode]);
  if (mode === 'rename') {
    const commit = (event: Event) => {
      event.preventDefault();
      setMode('plain');
      const name = title.trim();
      if (name !== '' && name !== head.title) void rename(head.id, name);
    };
    return (
      <li>
        <form class="rename" onSubmit={commit}>
          <input
            ref={input}
            aria-label="Name of the chat"
            maxLength={200}
            value={title}
            onInput={(event) => setTitle(event.currentTarget.value)}
            onBlur={commit}
            onKeyDown={(event) => {
              if (event.key === 'Escape') setMode('plain');
            }}
          />
        </form>
      </li>
    );
  }
  if (mode === 'remove') {
    return (
      <li class="sure">
        <span>Delete “{head.title}”?</span>
        <button ref={sure} type="button" class="danger" onClick={() => void removeChat(head.id)}>
          Delete
        </button>
        <button type="button" onClick={() => setMode('plain')}>
          Keep
        </button>
      </li>
    );
  }
  return (
    <li class={shown ? 'entry shown' : 'entry'}>
      <a
        href={`#/chat/${encodeURIComponent(head.id)}`}
        aria-current={shown ? 'page' : undefined}
        title={dateAndTime(head.updated_at * 1000)}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          onOpen();
          void openChat(head.id);
        }}
      >
        <span class="title">{head.title}</span>
        {found && head.snippet && <span class="snippet">{head.snippet}</span>}
      </a>
      <span class="tools">
        <Action
          icon="edit"
          label={`Rename ${head.title}`}
          onClick={() => {
            setTitle(head.title);
            setMode('rename');
          }}
        />
        <Action icon="trash" label={`Delete ${head.title}`} onClick={() => setMode('remove')} />
      </span>
    </li>
  );
}

export function Sidebar({ onOpen }: { onOpen: () => void }) {
  const list = useSignal(listing);
  const chat = useSignal(current);
  useSignal(revision);
  useSignal(preferences);
  const kept = useSignal(serverKeepsChats);
  const facts = useSignal(status);
  const file = facts?.engine.settings.find((one) => one.name === 'chats_db')?.value;
  const onServer = file === '' ? 'Kept by the server until it stops (chats_db)' : 'Kept on the server';
  const [query, setQuery] = useState('');
  const picker = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const timer = setTimeout(() => void refreshList(query.trim()), query === '' ? 0 : 200);
    return () => clearTimeout(timer);
  }, [query]);
  const groups = new Map<string, ChatHead[]>();
  for (const head of list.heads) {
    const name = list.query !== '' ? 'Found' : dayGroup(head.updated_at * 1000);
    groups.set(name, [...(groups.get(name) ?? []), head]);
  }
  const saveAll = () =>
    void exportAll().then(
      (file) => saveFile('strata-chats.json', file),
      (error: Error) => notice.set(`The chats could not be exported: ${error.message}`),
    );
  const load = (file: File | undefined) => {
    if (!file) return;
    if (file.size > kMostImport) return notice.set(`${file.name} is too large: at most ${bytes(kMostImport)} are imported at a time.`);
    void file
      .text()
      .then(importChats)
      .then(
        (n) => say(`${n} ${n === 1 ? 'chat was' : 'chats were'} imported.`),
        (error: Error) => notice.set(`Nothing was imported: ${error.message}.`),
      );
  };
  return (
    <>
      <div class="side-head">
        <button
          type="button"
          class="new"
          onClick={() => {
            startChat();
            onOpen();
          }}
        >
          <Icon name="plus" /> New chat
        </button>
        <label class="search">
          <Icon name="search" />
          <input
            id="search"
            type="search"
            aria-label="Search in the history"
            placeholder="Search"
            value={query}
            onInput={(event) => setQuery(event.currentTarget.value)}
          />
        </label>
      </div>
      <nav class="history" aria-label="History" tabIndex={0}>
        {[...groups].map(([name, heads]) => (
          <section key={name} aria-label={name}>
            <h2>{name}</h2>
            <ul>
              {heads.map((head) => (
                <Entry key={head.id} head={head} shown={chat.id === head.id} found={list.query !== ''} onOpen={onOpen} />
              ))}
            </ul>
          </section>
        ))}
        {list.more && (
          <button type="button" class="link" onClick={() => void moreOfList()}>
            Show more
          </button>
        )}
        {list.heads.length === 0 && !list.loading && (
          <p class="note">
            {list.error !== '' ? list.error : list.query !== '' ? 'Nothing was found.' : 'Chats appear here.'}
          </p>
        )}
      </nav>
      <div class="side-foot">
        <Action icon="download" label="Export this chat" onClick={() => saveFile('strata-chat.json', exportCurrent())} />
        <button type="button" class="link" onClick={saveAll}>
          Export all
        </button>
        <button type="button" class="link" onClick={() => picker.current?.click()}>
          Import
        </button>
        <input
          ref={picker}
          id="import"
          type="file"
          accept="application/json,.json"
          hidden
          tabIndex={-1}
          aria-hidden="true"
          onChange={(event) => {
            load(event.currentTarget.files?.[0]);
            event.currentTarget.value = '';
          }}
        />
        <span class="dim where">
          {place() === 'server' ? onServer : kept ? 'Kept in this browser' : 'Kept in this browser: the server keeps no chats'}
        </span>
      </div>
    </>
  );
}

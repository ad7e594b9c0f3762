// The chats that are open or listed, their saving, and the answers that run in them.
import { ApiError, ask } from './api';
import { AnswerRun, requestOf } from './answer';
import { preferences } from './preferences';
import { signal } from './signal';
import { BrowserStore, ServerStore, VersionConflict, type ChatHead, type ChatStore } from './store';
import {
  addNode,
  choose,
  emptyContent,
  merge,
  pathTo,
  readContent,
  shownPath,
  titleOf,
  type Attachment,
  type Content,
  type Node,
  type ToolResult,
} from './tree';

export interface Chat {
  key: string; // for this page; the id comes with the first save
  id: string | undefined;
  title: string;
  named: boolean; // by hand: the first question does not change it
  version: number;
  content: Content;
  place: 'server' | 'browser';
}

export interface Listing {
  heads: ChatHead[];
  more: boolean;
  query: string;
  error: string;
  loading: boolean;
}

// The server keeps no chats: they stay in the browser whatever is preferred.
export const serverKeepsChats = signal(true);
export const current = signal<Chat>(freshChat());
export const listing = signal<Listing>({ heads: [], more: false, query: '', error: '', loading: true });
// Counts changes of the open chat's content, which is changed in place.
export const revision = signal(0);
export const announcement = signal('');
export const notice = signal('');

const browserStore = new BrowserStore();
const serverStore = new ServerStore();
const runs = new Map<string, { run: AnswerRun; chat: Chat }>();
const opened = new Map<string, Chat>();
const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('strata-chats') : undefined;

function storeOf(place: Chat['place']): ChatStore {
  return place === 'server' ? serverStore : browserStore;
}

export function place(): Chat['place'] {
  return preferences.get().history === 'server' && serverKeepsChats.get() ? 'server' : 'browser';
}

function freshChat(): Chat {
  const { newChat } = preferences.get();
  const content = emptyContent(newChat);
  return { key: Math.random().toString(36).slice(2), id: undefined, title: 'New chat', named: false, version: 0, content, place: place() };
}

const touch = () => revision.set(revision.get() + 1);

export function say(text: string): void {
  announcement.set(text);
}

function complain(error: unknown, what: string): void {
  notice.set(`${what}: ${error instanceof Error ? error.message : String(error)}`);
}

// ---- the list

let listRun = 0;

export async function refreshList(query = listing.get().query): Promise<void> {
  const mine = ++listRun;
  listing.set({ ...listing.get(), query, loading: true });
  try {
    const page = await storeOf(place()).list(query);
    if (mine !== listRun) return;
    listing.set({ heads: page.data, more: page.has_more, query, error: '', loading: false });
  } catch (error) {
    if (mine !== listRun) return;
    if (error instanceof ApiError && (error.status === 404 || error.status === 501) && place() === 'server') {
      serverKeepsChats.set(false);
      if (current.get().id === undefined) current.get().place = 'browser';
      return refreshList(query);
    }
    const message = error instanceof Error ? error.message : String(error);
    listing.set({ ...listing.get(), loading: false, error: message });
  }
}

export async function moreOfList(): Promise<void> {
  const now = listing.get();
  const last = now.heads.at(-1);
  if (!last) return;
  const mine = ++listRun;
  try {
    const page = await storeOf(place()).list(now.query, last.id);
    if (mine !== listRun) return;
    listing.set({ ...now, heads: [...now.heads, ...page.data], more: page.has_more });
  } catch (error) {
    complain(error, 'The history could not be read');
  }
}

// ---- opening

export function chatInAddress(): string | undefined {
  const id = /^#\/chat\/(.+)$/.exec(location.hash)?.[1];
  try {
    return id === undefined ? undefined : decodeURIComponent(id);
  } catch {
    return undefined;
  }
}

export function startChat(): void {
  current.set(freshChat());
  if (/^(#\/chat.*)?$/.test(location.hash)) history.replaceState(null, '', '#/chat');
  touch();
}

export async function openChat(id: string): Promise<void> {
  const known = opened.get(id);
  if (known && [...runs.values()].some(({ chat }) => chat === known)) {
    current.set(known);
    history.replaceState(null, '', `#/chat/${encodeURIComponent(id)}`);
    return touch();
  }
  const from = id.startsWith('local_') ? 'browser' : 'server';
  try {
    const stored = await storeOf(from).get(id);
    const content = readContent(stored.content);
    if (!content) throw new Error('it is not a chat of this app');
    const chat: Chat = {
      key: id,
      id,
      title: stored.title,
      named: stored.title !== titleOf(content),
      version: stored.version,
      content,
      place: from,
    };
    opened.set(id, chat);
    current.set(chat);
    history.replaceState(null, '', `#/chat/${encodeURIComponent(id)}`);
    touch();
    for (const node of Object.values(content.nodes)) {
      if (node.state === 'running') follow(chat, node);
    }
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return; // changeKey() tries again
    complain(error, 'The chat could not be opened');
    if (current.get().id === id || current.get().id === undefined) startChat();
  }
}

// With another key there are other chats. `known` is there when the server takes the key; a
// question may be asked meanwhile, and stays.
export async function changeKey(known: Promise<void>): Promise<void> {
  const id = chatInAddress();
  opened.clear();
  serverKeepsChats.set(true);
  if (current.get().id !== undefined) current.set(freshChat());
  await known;
  await refreshList();
  if (id !== undefined && Object.keys(current.get().content.nodes).length === 0) await openChat(id);
}

// ---- saving

// While an answer grows; its events are on the server, this is for when that is gone, too.
const kSaveEvery = 15_000;

const saving = new Map<string, Promise<void>>();
const timers = new Map<string, ReturnType<typeof setTimeout>>();

export function saveSoon(chat: Chat, delay = 1200): void {
  clearTimeout(timers.get(chat.key));
  timers.set(chat.key, setTimeout(() => void saveNow(chat), delay));
}

// One save of a chat at a time; the next one waits for it.
export function saveNow(chat: Chat): Promise<void> {
  clearTimeout(timers.get(chat.key));
  timers.delete(chat.key);
  const before = saving.get(chat.key) ?? Promise.resolve();
  const mine = before.then(() => save(chat));
  saving.set(chat.key, mine);
  return mine;
}

async function save(chat: Chat): Promise<void> {
  if (Object.keys(chat.content.nodes).length === 0) return;
  if (!chat.named) chat.title = titleOf(chat.content);
  const store = storeOf(chat.place);
  try {
    if (chat.id === undefined) {
      const head = await store.create(chat.title, chat.content);
      chat.id = head.id;
      chat.version = head.version;
      opened.set(head.id, chat);
      if (current.get() === chat) history.replaceState(null, '', `#/chat/${encodeURIComponent(head.id)}`);
    } else {
      await saveOver(chat, store, chat.id);
    }
    channel?.postMessage({ id: chat.id });
    void refreshList();
  } catch (error) {
    complain(error, 'The chat could not be saved');
  }
}

async function saveOver(chat: Chat, store: ChatStore, id: string): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      const head = await store.update(id, chat.title, chat.content, chat.version);
      chat.version = head.version;
      return;
    } catch (error) {
      if (!(error instanceof VersionConflict) || tries === 5) throw error;
    }
    await takeIn(chat, store, id);
  }
}

// Takes in what another tab has written since. Nodes of answers that run here stay the ones that
// their runs write into.
async function takeIn(chat: Chat, store: ChatStore, id: string): Promise<void> {
  const stored = await store.get(id);
  const theirs = readContent(stored.content);
  if (theirs) {
    const merged = merge(chat.content, theirs);
    for (const { run, chat: owner } of runs.values()) {
      if (owner === chat) merged.nodes[run.node.id] = run.node;
    }
    chat.content = merged;
  }
  chat.version = stored.version;
  if (current.get() === chat) touch();
}

channel?.addEventListener('message', (event: MessageEvent<{ id?: string }>) => {
  void refreshList();
  const chat = current.get();
  if (chat.id === undefined || event.data.id !== chat.id || timers.has(chat.key)) return;
  const id = chat.id;
  void takeIn(chat, storeOf(chat.place), id)
    .then(() => {
      for (const node of Object.values(chat.content.nodes)) {
        if (node.state === 'running') follow(chat, node);
      }
    })
    .catch(() => undefined);
});

// What was not saved yet is, before the page goes.
addEventListener('visibilitychange', () => {
  if (document.visibilityState !== 'hidden') return;
  for (const chat of opened.values()) if (timers.has(chat.key)) void saveNow(chat);
});

// ---- answers

export function runningIn(chat: Chat): AnswerRun | undefined {
  const shown = new Set(shownPath(chat.content).map((node) => node.id));
  for (const { run, chat: owner } of runs.values()) {
    if (owner === chat && shown.has(run.node.id)) return run;
  }
  return undefined;
}

function register(chat: Chat, node: Node, fresh: boolean): AnswerRun {
  let drawn = false;
  let savedAt = Date.now();
  const run = new AnswerRun(
    node,
    (milestone) => {
      if (node.state !== 'running') ended(chat, node);
      else if (milestone || Date.now() - savedAt > kSaveEvery) {
        savedAt = Date.now();
        void saveNow(chat);
      }
      // Many pieces may come within a frame.
      if (drawn || current.get() !== chat) return;
      drawn = true;
      requestAnimationFrame(() => {
        drawn = false;
        touch();
      });
      // A page that is not seen gets no frames, and nobody has to see it.
      if (document.hidden) drawn = false;
    },
    fresh,
  );
  runs.set(node.id, { run, chat });
  return run;
}

function follow(chat: Chat, node: Node): void {
  if (runs.has(node.id)) return;
  if (node.response === undefined) {
    // Another page has just asked for it, or went away before the server had said its name.
    setTimeout(() => void lookAgain(chat, node.id), 6000);
    return;
  }
  void register(chat, node, false).resume();
}

async function lookAgain(chat: Chat, nodeId: string): Promise<void> {
  if (chat.id === undefined || runs.has(nodeId)) return;
  await takeIn(chat, storeOf(chat.place), chat.id).catch(() => undefined);
  const node = chat.content.nodes[nodeId];
  if (node?.state !== 'running') return;
  if (node.response !== undefined) return follow(chat, node);
  node.state = 'lost';
  node.error = 'The page was closed before the server had accepted the question.';
  node.changed = Date.now();
  touch();
  saveSoon(chat);
}

function ended(chat: Chat, node: Node): void {
  runs.delete(node.id);
  touch();
  const words = {
    running: '',
    done: 'The answer is complete.',
    stopped: 'The answer was stopped.',
    cut: 'The answer reached its limit.',
    failed: `The answer failed. ${node.error ?? ''}`,
    lost: 'The answer is lost.',
  };
  say(words[node.state ?? 'done']);
  const stored = saveNow(chat);
  // With the history in the browser nothing stays on the server.
  if (chat.place === 'browser' && node.response !== undefined) {
    const id = encodeURIComponent(node.response);
    void stored.then(() => ask(`/v1/responses/${id}`, { method: 'DELETE' })).catch(() => undefined);
  }
}

// Asks for an answer to what ends at `parent`.
function answer(chat: Chat, parent: Node): void {
  const path = pathTo(chat.content, parent.id);
  let request: Record<string, unknown>;
  try {
    request = requestOf(path, chat.content.settings);
  } catch {
    notice.set('The tools in the settings are not valid JSON.');
    return;
  }
  const node = addNode(chat.content, { parent: parent.id, role: 'assistant', text: '', state: 'running' });
  say('The question was sent.');
  touch();
  // The chat stands in the history before its answer, whose name follows.
  void saveNow(chat);
  void register(chat, node, true).start(request);
}

export function send(text: string, attachments: Attachment[]): void {
  const chat = current.get();
  const parent = shownPath(chat.content).at(-1)?.id ?? null;
  const node = addNode(chat.content, { parent, role: 'user', text, ...(attachments.length > 0 ? { attachments } : {}) });
  answer(chat, node);
}

export function edit(node: Node, text: string): void {
  const chat = current.get();
  const { attachments } = node;
  const other = addNode(chat.content, { parent: node.parent, role: 'user', text, ...(attachments ? { attachments } : {}) });
  answer(chat, other);
}

export function regenerate(node: Node): void {
  const chat = current.get();
  const parent = node.parent === null ? undefined : chat.content.nodes[node.parent];
  if (parent) answer(chat, parent);
}

export function giveResults(node: Node, results: ToolResult[]): void {
  const chat = current.get();
  const given = addNode(chat.content, { parent: node.id, role: 'tool', text: '', results });
  answer(chat, given);
}

export function show(node: Node): void {
  const chat = current.get();
  choose(chat.content, node);
  touch();
  saveSoon(chat);
}

export function changeSettings(change: Partial<Content['settings']>): void {
  const chat = current.get();
  chat.content.settings = { ...chat.content.settings, ...change };
  touch();
  if (chat.id !== undefined) saveSoon(chat);
}

export function stopCurrent(): void {
  void runningIn(current.get())?.stop();
}

export async function rename(id: string, title: string): Promise<void> {
  const chat = opened.get(id);
  if (chat) {
    chat.title = title;
    chat.named = true;
    touch();
    return saveNow(chat);
  }
  const store = storeOf(id.startsWith('local_') ? 'browser' : 'server');
  try {
    const stored = await store.get(id);
    const content = readContent(stored.content);
    if (content) await store.update(id, title, content, stored.version);
    await refreshList();
  } catch (error) {
    complain(error, 'The chat could not be renamed');
  }
}

export async function removeChat(id: string): Promise<void> {
  const chat = opened.get(id);
  try {
    for (const { run, chat: owner } of [...runs.values()]) if (owner === chat) void run.stop();
    if (chat) clearTimeout(timers.get(chat.key));
    await storeOf(id.startsWith('local_') ? 'browser' : 'server').remove(id);
    opened.delete(id);
    if (current.get().id === id) startChat();
    channel?.postMessage({});
    await refreshList();
    say('The chat was deleted.');
  } catch (error) {
    complain(error, 'The chat could not be deleted');
  }
}

// ---- files

interface ExportFile {
  format: 'strata-chats-1';
  exported_at: string;
  chats: { title: string; content: Content }[];
}

export function exportCurrent(): ExportFile {
  const chat = current.get();
  const title = chat.named ? chat.title : titleOf(chat.content);
  return exportFile([{ title, content: chat.content }]);
}

export async function exportAll(): Promise<ExportFile> {
  const store = storeOf(place());
  const chats: ExportFile['chats'] = [];
  for (let after: string | undefined; ; ) {
    const page = await store.list('', after);
    for (const head of page.data) {
      const content = readContent((await store.get(head.id)).content);
      if (content) chats.push({ title: head.title, content });
    }
    after = page.data.at(-1)?.id;
    if (!page.has_more || after === undefined) return exportFile(chats);
  }
}

function exportFile(chats: ExportFile['chats']): ExportFile {
  return { format: 'strata-chats-1', exported_at: new Date().toISOString(), chats };
}

// How many chats were taken in. What is no chat of this app is refused whole.
export async function importChats(text: string): Promise<number> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error('the file is not JSON');
  }
  const file = value as Partial<ExportFile> | null;
  if (file?.format !== 'strata-chats-1' || !Array.isArray(file.chats)) {
    throw new Error('the file holds no chats that this app has exported');
  }
  const chats = file.chats.map((one: { title?: unknown; content?: unknown } | null) => {
    const content = readContent(one?.content);
    if (!content) throw new Error('one of its chats is damaged');
    for (const node of Object.values(content.nodes)) {
      delete node.response; // of another server
      if (node.state === 'running') node.state = 'lost';
    }
    return { title: typeof one?.title === 'string' ? one.title.slice(0, 200) : titleOf(content), content };
  });
  let last: ChatHead | undefined;
  for (const { title, content } of chats) last = await storeOf(place()).create(title, content);
  channel?.postMessage({});
  await refreshList('');
  if (last) await openChat(last.id);
  return chats.length;
}

// Where chats are kept: on the server (/v1/chats, per API key) or in this browser (IndexedDB).
import { ApiError, ask, askJson } from './api';
import type { Content } from './tree';

export interface ChatHead {
  id: string;
  title: string;
  created_at: number; // seconds
  updated_at: number;
  version: number;
  snippet?: string | null;
}

export interface StoredChat extends ChatHead {
  content: unknown;
}

export interface ChatPage {
  data: ChatHead[];
  has_more: boolean;
}

// Somebody else has written since: `current` is the version that stands there.
export class VersionConflict extends Error {}

export interface ChatStore {
  list(query: string, after?: string): Promise<ChatPage>;
  get(id: string): Promise<StoredChat>;
  create(title: string, content: Content): Promise<ChatHead>;
  update(id: string, title: string, content: Content, version: number): Promise<ChatHead>;
  remove(id: string): Promise<void>;
}

const kPage = 50;

export class ServerStore implements ChatStore {
  async list(query: string, after?: string): Promise<ChatPage> {
    const words = new URLSearchParams({ limit: String(kPage) });
    if (query !== '') words.set('query', query);
    if (after !== undefined) words.set('after', after);
    return askJson<ChatPage>(`/v1/chats?${words}`);
  }
  get(id: string): Promise<StoredChat> {
    return askJson<StoredChat>(`/v1/chats/${encodeURIComponent(id)}`);
  }
  create(title: string, content: Content): Promise<ChatHead> {
    return askJson<ChatHead>('/v1/chats', { body: { title, content } });
  }
  async update(id: string, title: string, content: Content, version: number): Promise<ChatHead> {
    try {
      return await askJson<ChatHead>(`/v1/chats/${encodeURIComponent(id)}`, {
        method: 'PUT',
        body: { title, content, version },
        last: document.visibilityState === 'hidden',
      });
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) throw new VersionConflict();
      throw error;
    }
  }
  async remove(id: string): Promise<void> {
    try {
      await ask(`/v1/chats/${encodeURIComponent(id)}`, { method: 'DELETE' });
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
  }
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('The browser cannot keep chats.'));
  });
}

// All texts of a chat that a search looks at.
export function textsOf(value: unknown, texts: string[] = []): string[] {
  if (Array.isArray(value)) {
    for (const one of value) textsOf(one, texts);
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, one] of Object.entries(value)) {
      if (key === 'text' && typeof one === 'string') texts.push(one);
      else textsOf(one, texts);
    }
  }
  return texts;
}

// Where the words of a query stand in a text, with some of what is around; undefined if not all do.
export function snippetOf(texts: string[], query: string): string | undefined {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const lower = texts.map((text) => text.toLowerCase());
  if (!words.every((word) => lower.some((text) => text.includes(word)))) return undefined;
  const first = words[0] ?? '';
  const at = lower.findIndex((text) => text.includes(first));
  const place = lower[at]?.indexOf(first) ?? 0;
  const start = Math.max(0, place - 30);
  const piece = (texts[at] ?? '').slice(start, place + 90).replace(/\s+/g, ' ');
  return `${start > 0 ? '…' : ''}${piece}`;
}

export class BrowserStore implements ChatStore {
  private database: Promise<IDBDatabase> | undefined;

  private open(): Promise<IDBDatabase> {
    this.database ??= new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open('strata', 1);
      request.onupgradeneeded = () => request.result.createObjectStore('chats', { keyPath: 'id' });
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error ?? new Error('The browser cannot keep chats.'));
    });
    return this.database;
  }
  private async chats(mode: IDBTransactionMode): Promise<IDBObjectStore> {
    return (await this.open()).transaction('chats', mode).objectStore('chats');
  }

  async list(query: string, after?: string): Promise<ChatPage> {
    const all = await done<StoredChat[]>((await this.chats('readonly')).getAll());
    all.sort((a, b) => b.updated_at - a.updated_at || (a.id < b.id ? -1 : 1));
    const found: ChatHead[] = [];
    for (const { content, ...head } of all) {
      const snippet = query === '' ? undefined : snippetOf([head.title, ...textsOf(content)], query);
      if (query === '' || snippet !== undefined) found.push({ ...head, snippet });
    }
    const start = after === undefined ? 0 : found.findIndex((head) => head.id === after) + 1;
    return { data: found.slice(start, start + kPage), has_more: found.length > start + kPage };
  }
  async get(id: string): Promise<StoredChat> {
    const chat = await done<StoredChat | undefined>((await this.chats('readonly')).get(id));
    if (!chat) throw new ApiError(404, 'There is no such chat in this browser.');
    return chat;
  }
  async create(title: string, content: Content): Promise<ChatHead> {
    const now = Math.floor(Date.now() / 1000);
    const head: ChatHead = {
      id: `local_${crypto.getRandomValues(new Uint32Array(3)).join('')}`,
      title,
      created_at: now,
      updated_at: now,
      version: 1,
    };
    await done((await this.chats('readwrite')).add({ ...head, content: structuredClone(content) }));
    return head;
  }
  // Read and write are one transaction: another tab cannot come between.
  async update(id: string, title: string, content: Content, version: number): Promise<ChatHead> {
    const chats = await this.chats('readwrite');
    const now = await done<StoredChat | undefined>(chats.get(id));
    if (!now) throw new ApiError(404, 'There is no such chat in this browser.');
    if (now.version !== version) throw new VersionConflict();
    const head: ChatHead = {
      id,
      title,
      created_at: now.created_at,
      updated_at: Math.floor(Date.now() / 1000),
      version: version + 1,
    };
    await done(chats.put({ ...head, content: structuredClone(content) }));
    return head;
  }
  async remove(id: string): Promise<void> {
    await done((await this.chats('readwrite')).delete(id));
  }
}

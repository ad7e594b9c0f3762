// What the browser keeps for this server: the key, the theme and what new chats start with.
import { signal } from './signal';
import type { ChatSettings } from './tree';

export type Theme = 'system' | 'light' | 'dark';
export type HistoryPlace = 'server' | 'browser';

export interface Preferences {
  theme: Theme;
  history: HistoryPlace;
  foldThinking: boolean;
  enterSends: boolean;
  newChat: ChatSettings;
}

const kPreferences = 'strata.preferences';
const kKey = 'strata.key';

const built: Preferences = {
  theme: 'system',
  history: 'server',
  foldThinking: true,
  enterSends: true,
  newChat: {},
};

// Storage may be switched off in the browser: then nothing outlives the page.
function read(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name: string, value: string): void {
  try {
    if (value === '') localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // It stays in this page.
  }
}

function load(): Preferences {
  try {
    const kept = JSON.parse(read(kPreferences) ?? '{}') as Partial<Preferences>;
    return { ...built, ...kept };
  } catch {
    return built;
  }
}

export const preferences = signal<Preferences>(load());
export const apiKey = signal<string>(read(kKey) ?? '');

export function prefer(change: Partial<Preferences>): void {
  preferences.set({ ...preferences.get(), ...change });
  write(kPreferences, JSON.stringify(preferences.get()));
  applyTheme();
}

export function setApiKey(key: string): void {
  apiKey.set(key.trim());
  write(kKey, key.trim());
}

export function applyTheme(): void {
  const { theme } = preferences.get();
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function isDark(): boolean {
  const { theme } = preferences.get();
  return theme === 'dark' || (theme === 'system' && matchMedia('(prefers-color-scheme: dark)').matches);
}

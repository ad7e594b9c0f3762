// Numbers and times as text.

export function bytes(value: number): string {
  if (!Number.isFinite(value)) return 'unknown';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${units[unit]}`;
}

export function count(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

// Three digits that say something: 0.123, 12.3, 1,234.
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return count(value);
  if (size >= 10) return value.toFixed(1);
  return size >= 0.01 ? value.toFixed(2) : value.toPrecision(2);
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : 'none yet';
}

export function clock(time: number, seconds = true): string {
  return new Date(time).toLocaleTimeString([], {
    hour: '2-digit',
    minute: '2-digit',
    second: seconds ? '2-digit' : undefined,
  });
}

export function dateAndTime(time: number): string {
  return new Date(time).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
}

// The heading under which a chat of that time stands in the history.
export function dayGroup(time: number, now = Date.now()): string {
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  const day = 86_400_000;
  if (time >= midnight.getTime()) return 'Today';
  if (time >= midnight.getTime() - day) return 'Yesterday';
  if (time >= midnight.getTime() - 7 * day) return 'Last seven days';
  return new Date(time).toLocaleDateString([], { month: 'long', year: 'numeric' });
}

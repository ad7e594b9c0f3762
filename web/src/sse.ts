// Server-sent events out of a response's body.

export interface ServerEvent {
  name: string;
  data: string;
}

// Cuts text that comes in any pieces into events. Comments are left out.
export class EventReader {
  private rest = '';
  private name = '';
  private data: string[] = [];

  feed(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    this.rest += piece;
    let start = 0;
    for (;;) {
      const end = this.rest.indexOf('\n', start);
      if (end < 0) break;
      const line = this.rest.slice(start, this.rest[end - 1] === '\r' && end > start ? end - 1 : end);
      start = end + 1;
      if (line === '') {
        if (this.data.length > 0) events.push({ name: this.name || 'message', data: this.data.join('\n') });
        this.name = '';
        this.data = [];
      } else if (!line.startsWith(':')) {
        const colon = line.indexOf(':');
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
        if (field === 'event') this.name = value;
        if (field === 'data') this.data.push(value);
      }
    }
    this.rest = this.rest.slice(start);
    return events;
  }
}

export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const events = new EventReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* events.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

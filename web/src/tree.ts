// A chat: a tree of messages. Editing a question or asking for another answer adds a sibling;
// nothing is lost. What is shown is one path from the root, chosen at every fork.
//
// This is also the form in which chats are stored and exported. Texts that a search should find
// stand under "text".

export interface Attachment {
  name: string;
  text: string;
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
  done: boolean;
}

export interface ToolResult {
  call: string;
  name: string;
  text: string;
}

export interface Usage {
  input: number;
  cached: number;
  output: number;
  reasoning: number;
}

export type NodeState = 'running' | 'done' | 'stopped' | 'cut' | 'failed' | 'lost';

export interface Node {
  id: string;
  parent: string | null;
  role: 'user' | 'assistant' | 'tool';
  at: number;
  changed: number;
  text: string;
  attachments?: Attachment[];
  results?: ToolResult[]; // of a tool's node
  // Of an answer:
  thinking?: string;
  thinkingMs?: number;
  calls?: ToolCall[];
  state?: NodeState;
  response?: string; // the stored response it comes from
  error?: string;
  model?: string;
  usage?: Usage;
  firstMs?: number; // from the question to the first token
  speed?: number; // tokens a second, as the server measured it
}

export interface ChatSettings {
  system?: { text: string };
  effort?: string;
  sampling?: Record<string, number>;
  tools?: string;
}

export interface Content {
  format: 'strata-chat-1';
  settings: ChatSettings;
  nodes: Record<string, Node>;
  chosen: Record<string, string>; // parent ("" at the root) to the child that is shown
}

export function emptyContent(settings: ChatSettings): Content {
  return { format: 'strata-chat-1', settings: structuredClone(settings), nodes: {}, chosen: {} };
}

export function newId(): string {
  const random = crypto.getRandomValues(new Uint8Array(9));
  return btoa(String.fromCharCode(...random)).replaceAll('+', '-').replaceAll('/', '_');
}

export function childrenOf(content: Content, parent: string | null): Node[] {
  return Object.values(content.nodes)
    .filter((node) => node.parent === parent)
    .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
}

// From the root to the end of what is shown.
export function shownPath(content: Content): Node[] {
  const byParent = new Map<string, Node[]>();
  for (const node of Object.values(content.nodes)) {
    const key = node.parent ?? '';
    const list = byParent.get(key);
    if (list) list.push(node);
    else byParent.set(key, [node]);
  }
  const path: Node[] = [];
  const seen = new Set<string>();
  let key = '';
  for (;;) {
    const children = byParent.get(key)?.sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
    if (!children || children.length === 0) return path;
    const next = children.find((node) => node.id === content.chosen[key]) ?? children[children.length - 1]!;
    if (seen.has(next.id)) return path; // a file from outside may hold a ring
    seen.add(next.id);
    path.push(next);
    key = next.id;
  }
}

// From the root to this node.
export function pathTo(content: Content, id: string): Node[] {
  const path: Node[] = [];
  const seen = new Set<string>();
  for (let at: string | null = id; at !== null && !seen.has(at); ) {
    const node: Node | undefined = content.nodes[at];
    if (!node) break;
    seen.add(at);
    path.unshift(node);
    at = node.parent;
  }
  return path;
}

export function addNode(content: Content, node: Omit<Node, 'id' | 'at' | 'changed'>): Node {
  const now = Date.now();
  // Siblings are in the order of their times, also when two come within a millisecond.
  const last = childrenOf(content, node.parent).at(-1);
  const whole: Node = { ...node, id: newId(), at: last && last.at >= now ? last.at + 1 : now, changed: now };
  content.nodes[whole.id] = whole;
  content.chosen[node.parent ?? ''] = whole.id;
  return whole;
}

export function choose(content: Content, node: Node): void {
  content.chosen[node.parent ?? ''] = node.id;
}

export function titleOf(content: Content): string {
  const first = shownPath(content).find((node) => node.role === 'user');
  const text = (first?.text || first?.attachments?.[0]?.name || '').replace(/\s+/g, ' ').trim();
  if (text === '') return 'New chat';
  return text.length > 60 ? `${text.slice(0, 59).trimEnd()}…` : text;
}

const settled = (node: Node) => node.state !== 'running';

function newer(ours: Node, theirs: Node): Node {
  if (settled(ours) !== settled(theirs)) return settled(ours) ? ours : theirs;
  return theirs.changed > ours.changed ? theirs : ours;
}

// Two tabs have gone on from the same chat: all messages of both, and what this tab shows.
export function merge(ours: Content, theirs: Content): Content {
  const nodes: Record<string, Node> = { ...theirs.nodes };
  for (const node of Object.values(ours.nodes)) {
    const other = nodes[node.id];
    nodes[node.id] = other ? newer(node, other) : node;
  }
  return { format: 'strata-chat-1', settings: ours.settings, nodes, chosen: { ...theirs.chosen, ...ours.chosen } };
}

function record(value: unknown): Record<string, unknown> | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;
}
const string = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isFinite(value) ? value : undefined;
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

function readNode(id: string, value: unknown): Node | undefined {
  const from = record(value);
  const role = from?.role;
  if (!from || (role !== 'user' && role !== 'assistant' && role !== 'tool')) return undefined;
  const node: Node = {
    id,
    parent: typeof from.parent === 'string' ? from.parent : null,
    role,
    at: number(from.at) ?? 0,
    changed: number(from.changed) ?? 0,
    text: string(from.text),
  };
  const attachments = list(from.attachments).flatMap((one) => {
    const file = record(one);
    return file ? [{ name: string(file.name), text: string(file.text) }] : [];
  });
  if (attachments.length > 0) node.attachments = attachments;
  const results = list(from.results).flatMap((one) => {
    const result = record(one);
    return result ? [{ call: string(result.call), name: string(result.name), text: string(result.text) }] : [];
  });
  if (results.length > 0) node.results = results;
  const calls = list(from.calls).flatMap((one) => {
    const call = record(one);
    return call
      ? [{ id: string(call.id), name: string(call.name), arguments: string(call.arguments), done: call.done === true }]
      : [];
  });
  if (calls.length > 0) node.calls = calls;
  for (const key of ['thinking', 'response', 'error', 'model'] as const) {
    if (typeof from[key] === 'string') node[key] = from[key];
  }
  for (const key of ['thinkingMs', 'firstMs', 'speed'] as const) {
    const value = number(from[key]);
    if (value !== undefined) node[key] = value;
  }
  const states: NodeState[] = ['running', 'done', 'stopped', 'cut', 'failed', 'lost'];
  if (role === 'assistant') node.state = states.find((state) => state === from.state) ?? 'done';
  const usage = record(from.usage);
  if (usage) {
    node.usage = {
      input: number(usage.input) ?? 0,
      cached: number(usage.cached) ?? 0,
      output: number(usage.output) ?? 0,
      reasoning: number(usage.reasoning) ?? 0,
    };
  }
  return node;
}

export function readSettings(value: unknown): ChatSettings {
  const from = record(value) ?? {};
  const settings: ChatSettings = {};
  const system = record(from.system);
  if (system && string(system.text) !== '') settings.system = { text: string(system.text) };
  if (string(from.effort) !== '') settings.effort = string(from.effort);
  if (string(from.tools) !== '') settings.tools = string(from.tools);
  const sampling: Record<string, number> = {};
  for (const [key, one] of Object.entries(record(from.sampling) ?? {})) {
    const value = number(one);
    if (value !== undefined) sampling[key] = value;
  }
  if (Object.keys(sampling).length > 0) settings.sampling = sampling;
  return settings;
}

// What came from a file or the server, if it is a chat: only members that are known, each of its
// type, parents that exist.
export function readContent(value: unknown): Content | undefined {
  const from = record(value);
  const given = record(from?.nodes);
  if (!from || from.format !== 'strata-chat-1' || !given) return undefined;
  const content = emptyContent(readSettings(from.settings));
  for (const [id, one] of Object.entries(given)) {
    const node = id === '__proto__' ? undefined : readNode(id, one);
    if (node) content.nodes[id] = node;
  }
  for (const node of Object.values(content.nodes)) {
    if (node.parent !== null && !Object.hasOwn(content.nodes, node.parent)) node.parent = null;
  }
  for (const [parent, child] of Object.entries(record(from.chosen) ?? {})) {
    if (typeof child === 'string' && Object.hasOwn(content.nodes, child)) content.chosen[parent] = child;
  }
  return content;
}

// The parts of the app that need no browser.
import assert from 'node:assert/strict';
import { webcrypto } from 'node:crypto';
import { test } from 'node:test';
import { inputOf, questionText, requestOf } from '../src/answer';
import { bytes, duration, short } from '../src/format';
import { EventReader } from '../src/sse';
import { snippetOf, textsOf } from '../src/store';
import { readMetrics } from '../src/telemetry';
import { addNode, choose, emptyContent, merge, pathTo, readContent, shownPath, titleOf, type Node } from '../src/tree';

// Node 18 has it under another name than browsers.
if (!('crypto' in globalThis)) Object.defineProperty(globalThis, 'crypto', { value: webcrypto });

const talk = () => {
  const content = emptyContent({});
  const question = addNode(content, { parent: null, role: 'user', text: 'one?' });
  const answer = addNode(content, { parent: question.id, role: 'assistant', text: 'one.', state: 'done' });
  return { content, question, answer };
};
const texts = (nodes: Node[]) => nodes.map((node) => node.text);

test('events come out the same however the bytes are cut', () => {
  const text = ': hello\r\nevent: a\ndata: 1\ndata: 2\n\n\ndata:3\r\n\r\nevent: lost\n\ndata: {"x":"\u00e9"}\n\n';
  const whole = new EventReader().feed(text);
  assert.deepEqual(whole, [
    { name: 'a', data: '1\n2' },
    { name: 'message', data: '3' },
    { name: 'message', data: '{"x":"\u00e9"}' },
  ]);
  for (let size = 1; size < 9; size += 1) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...reader.feed(text.slice(at, at + size)));
    assert.deepEqual(events, whole);
  }
});

test('a sibling is shown, the other one stays and can be chosen', () => {
  const { content, question, answer } = talk();
  const other = addNode(content, { parent: question.id, role: 'assistant', text: 'uno.', state: 'done' });
  assert.deepEqual(texts(shownPath(content)), ['one?', 'uno.']);
  addNode(content, { parent: other.id, role: 'user', text: 'due?' });
  choose(content, answer);
  assert.deepEqual(texts(shownPath(content)), ['one?', 'one.']);
  choose(content, other);
  assert.deepEqual(texts(shownPath(content)), ['one?', 'uno.', 'due?']);
  const edited = addNode(content, { parent: null, role: 'user', text: 'two?' });
  assert.deepEqual(texts(shownPath(content)), ['two?']);
  assert.deepEqual(pathTo(content, edited.id), [edited]);
  assert.equal(titleOf(content), 'two?');
});

test('two tabs that went on from one chat lose nothing', () => {
  const { content, answer } = talk();
  const theirs = structuredClone(content);
  const mine = addNode(content, { parent: answer.id, role: 'user', text: 'mine?' });
  const his = addNode(theirs, { parent: answer.id, role: 'user', text: 'his?' });
  const both = merge(content, theirs);
  assert.deepEqual(Object.keys(both.nodes).sort(), [...Object.keys(content.nodes), his.id].sort());
  assert.equal(shownPath(both).at(-1)?.id, mine.id);
});

test('of one answer the ended one counts, else the newer', () => {
  const { content, answer } = talk();
  const theirs = structuredClone(content);
  answer.state = 'running';
  answer.changed += 1000;
  assert.equal(merge(content, theirs).nodes[answer.id]?.state, 'done');
  answer.state = 'done';
  answer.text = 'newer';
  assert.equal(merge(content, theirs).nodes[answer.id]?.text, 'newer');
});

test('a chat survives writing and reading', () => {
  const { content } = talk();
  content.settings = { system: { text: 's' }, effort: 'low', sampling: { top_k: 3 }, tools: '[]' };
  assert.deepEqual(readContent(JSON.parse(JSON.stringify(content))), content);
});

test('what is no chat is refused, what is wrong in one left out', () => {
  for (const bad of [null, 5, [], {}, { format: 'strata-chat-1' }, { format: 'other', nodes: {} }]) {
    assert.equal(readContent(bad), undefined);
  }
  const read = readContent({
    format: 'strata-chat-1',
    settings: { sampling: { top_k: 'x' }, system: 5 },
    nodes: {
      a: { role: 'user', text: 5, parent: 'gone', attachments: 'x', at: 'y' },
      b: { role: 'evil', text: 'no' },
      c: { role: 'assistant', parent: 'c', state: 'weird', calls: [5, { name: 'n' }] },
    },
    chosen: { '': 'nowhere' },
  });
  assert.ok(read);
  assert.deepEqual(Object.keys(read.nodes), ['a', 'c']);
  assert.equal(read.nodes.a?.parent, null);
  assert.equal(read.nodes.c?.state, 'done');
  assert.deepEqual(read.settings, {});
  // A ring of parents ends, too.
  assert.deepEqual(shownPath(read).length, 1);
  assert.equal(pathTo(read, 'c').length, 1);
});

test('names of the language are no nodes', () => {
  const read = readContent(JSON.parse('{"format":"strata-chat-1","nodes":{"__proto__":{"role":"user","text":"x"}}}'));
  assert.ok(read);
  assert.deepEqual(Object.keys(read.nodes), []);
  assert.equal(({} as Record<string, unknown>).role, undefined);
});

test('a conversation becomes items, an unfinished call does not', () => {
  const { content, answer } = talk();
  answer.thinking = 'hm';
  answer.calls = [
    { id: 'c1', name: 'f', arguments: '{}', done: true },
    { id: 'c2', name: 'g', arguments: '{', done: false },
  ];
  const result = addNode(content, {
    parent: answer.id, role: 'tool', text: '', results: [{ call: 'c1', name: 'f', text: '5' }],
  });
  const items = inputOf(pathTo(content, result.id)) as { type: string }[];
  assert.deepEqual(
    items.map((item) => item.type),
    ['message', 'reasoning', 'message', 'function_call', 'function_call_output'],
  );
  const request = requestOf(pathTo(content, result.id), { effort: 'low', sampling: { top_k: 2 } });
  assert.deepEqual(request.reasoning, { effort: 'low' });
  assert.equal(request.top_k, 2);
  assert.equal(request.background, true);
});

test('a file cannot break out of its fence', () => {
  const node = { text: 'look', attachments: [{ name: 'a.md', text: '```\nx\n```' }] } as Node;
  assert.equal(questionText(node), 'look\n\na.md\n````\n```\nx\n```\n````');
});

test('search in the browser wants all words, in any text', () => {
  const found = textsOf({ nodes: { a: { text: 'The red fox', thinking: 'blue' } }, list: [{ text: 'jumps' }] });
  assert.deepEqual(found, ['The red fox', 'jumps']);
  assert.equal(snippetOf(found, 'JUMPS fox'), 'jumps');
  assert.equal(snippetOf(found, 'fox blue'), undefined);
});

test('metrics are read with their labels', () => {
  const values = readMetrics('# HELP a x\na 1\nb{t="x y"} 2.5\nc NaN\n');
  assert.equal(values.get('a'), 1);
  assert.equal(values.get('b{t="x y"}'), 2.5);
  assert.equal(values.size, 2);
});

test('numbers as text', () => {
  assert.equal(bytes(0), '0 B');
  assert.equal(bytes(1536), '1.50 KiB');
  assert.equal(bytes(5 * 2 ** 30), '5.00 GiB');
  assert.equal(short(1234.5), '1,235');
  assert.equal(short(0.1234), '0.12');
  assert.equal(duration(999), '999 ms');
  assert.equal(duration(61_000), '1 min 1 s');
});

// What the scripted engine says to the web app's tests, and chats that are hard to show.

const kStory = 'Once upon a time a slow fox walked over seven hills, and each hill was higher than the one before it, until it stood on the last and saw the sea.';

export const kExpected = { slow: kStory };

const think = (thought, answer) => `${thought}\n</think>\n\n${answer}`;

const kHostile = [
  '<script>window.owned = 1</script>',
  '<img src=x onerror="window.owned = 2"> <img src="https://evil.example/pixel.png">',
  '<svg onload="window.owned = 3"><iframe src="https://evil.example/"></iframe>',
  '<style>body { display: none }</style><base href="https://evil.example/">',
  '<form action="https://evil.example/"><input name=x autofocus onfocus="window.owned = 4"></form>',
  '[a](javascript:window.owned=5) [b](data:text/html,<script>window.owned=6</script>) [c](vbscript:x)',
  '[d](<javascript:window.owned=7>) [e]( java\tscript:window.owned=8 ) <javascript:window.owned=9>',
  '![pixel](https://evil.example/track.png) ![bad](javascript:window.owned=10)',
  '[good](https://example.org/ "title")',
  '[form]: https://evil.example/ "x" onmouseover="window.owned=11"',
  '`<b onclick=window.owned=12>`',
  '```html"onload="window.owned=13\n<script>window.owned = 14</script>\n```',
  '```python\n</code></pre><script>window.owned = 15</script>\n```',
  '$\\href{javascript:window.owned=16}{x}$ $\\includegraphics{https://evil.example/a.png}$ $\\def\\a{\\a\\a}\\a$',
  '$$\\class{x" onclick="window.owned=17}{y} <img src=x onerror=window.owned=18>$$',
  '| a | b |\n| - | - |\n| <img src=x onerror=window.owned=19> | [x](javascript:alert(1)) |',
  '> > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > > deep',
  '&lt;script&gt;window.owned = 20&lt;/script&gt; &#60;img src=x onerror=window.owned=21&#62;',
  '\u202eright to left\u202c and \u0000 and \ufffd',
  'the end',
].join('\n\n');

const kMarkdown = [
  '## Title\n\nSome **bold** and *slanted* words, `code`, a [link](https://example.org/) and what costs $5 and $6.',
  '- one\n- two\n  1. inner\n  2. list\n\n> a quotation',
  '```python\ndef f(x):\n    return x + 1  # more\n```',
  '| head | other |\n| --- | --- |\n| cell | 1 |\n| next | 2 |',
  'In a line $a^2 + b^2 = c^2$ and alone:\n\n$$\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}$$',
].join('\n\n');

// The first one whose text stands anywhere in the prompt, earlier turns included, is played.
export const scripts = [
  { match: 'hello there', piece: 3, pace_ms: 40, text: think('The user greets me.', 'Hello to you.') },
  { match: 'rain-4711', text: think('Wet.', 'It rains.') },
  {
    match: 'use the tool',
    piece: 5,
    text: think('I need the weather.', '<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>'),
  },
  { match: 'endless please', piece: 5, pace_ms: 20, text: `</think>\n\n${'word '.repeat(4000)}` },
  { match: 'count to three', piece: 1, pace_ms: 5, text: '</think>\n\n1, 2, 3.' },
  { match: 'pick a number', text: '</think>\n\nOne.' },
  { match: 'slow story', piece: 3, pace_ms: 70, text: think('A story.', kStory) },
  { match: 'hostile one', piece: 17, text: think('<img src=x onerror="window.owned = 30">', kHostile) },
  { match: 'all of markdown', piece: 9, text: think('Everything.', kMarkdown) },
  { match: 'gnu-77', text: '</think>\n\nI have read the file.' },
  { match: 'break it', finish: 'error', error: 'it broke', text: '</think>\n\nabc' },
  { match: 'system-marker-9', text: 'The system prompt was read.' },
  { text: '</think>\n\nfine' },
];

function chatOf(text) {
  return {
    format: 'strata-chat-1',
    settings: {},
    nodes: {
      q: { parent: null, role: 'user', at: 1, changed: 1, text: 'show it' },
      a: { parent: 'q', role: 'assistant', at: 2, changed: 2, text, state: 'done' },
    },
    chosen: {},
  };
}

// By name, chats whose answer is large or deep.
export function hostileChats() {
  const row = `|${' <img src=x onerror=window.owned=1> |'.repeat(12)}`;
  return {
    'a line of a million characters': chatOf('x'.repeat(1_000_000)),
    'a million characters in words': chatOf('lorem ipsum '.repeat(83_000)),
    'a table of four hundred rows': chatOf(`${'| a '.repeat(12)}|\n${'| - '.repeat(12)}|\n${`${row}\n`.repeat(400)}`),
    'a code block of a hundred thousand characters': chatOf(`\`\`\`js\n${'let a = "x"; '.repeat(8000)}\n\`\`\``),
    'brackets without end': chatOf(`${'['.repeat(50_000)}${'*a '.repeat(20_000)}`),
    'quotations in quotations': chatOf(`${'> '.repeat(3000)}x\n\nthe rest of the answer stands here, and it can still be read`),
    'many small paragraphs': chatOf('a paragraph\n\n'.repeat(12_000)),
    'many formulas': chatOf('$x_1^2$ and text '.repeat(800)),
  };
}

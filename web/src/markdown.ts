// What a model writes, as a document that can do nothing: Markdown without HTML, then sanitised
// against a list of what may be there. Pictures become links: no answer makes the browser ask
// another host for anything.
import DOMPurify from 'dompurify';
import MarkdownIt from 'markdown-it';

// A longer answer is shown as plain text: reading it must not hold up the page.
export const kMostMarkdown = 200_000;
const kMostCode = 40_000; // coloured
const kMostMath = 4_000;
const kTogether = 4_000;

const markdown = new MarkdownIt({ html: false, linkify: false, breaks: false, maxNesting: 24 });

// $$...$$ and \[...\] on lines of their own; \(...\) and $...$ in text. A dollar before a digit or
// beside a space is money.
markdown.block.ruler.before(
  'fence',
  'math_block',
  (state, startLine, endLine, silent) => {
    const line = (n: number) => state.src.slice((state.bMarks[n] ?? 0) + (state.tShift[n] ?? 0), state.eMarks[n]);
    const first = line(startLine);
    const open = first.startsWith('$$') ? '$$' : first.startsWith('\\[') ? '\\[' : '';
    if (open === '') return false;
    const close = open === '$$' ? '$$' : '\\]';
    const parts: string[] = [];
    for (let n = startLine; n < endLine; n += 1) {
      const text = n === startLine ? first.slice(2) : line(n);
      const end = text.trimEnd();
      if (n > startLine && text.trim() === '' && open === '$$') return false;
      if (end.endsWith(close) && (n > startLine || end.length >= 2)) {
        parts.push(end.slice(0, -2));
        if (silent) return true;
        const token = state.push('math_block', 'div', 0);
        token.content = parts.join('\n').trim();
        token.map = [startLine, n + 1];
        state.line = n + 1;
        return true;
      }
      parts.push(text);
    }
    return false;
  },
  { alt: ['paragraph', 'reference', 'blockquote', 'list'] },
);

markdown.inline.ruler.before('escape', 'math_inline', (state, silent) => {
  const { src, pos } = state;
  let open = 1;
  let end = -1;
  if (src.startsWith('\\(', pos)) {
    open = 2;
    end = src.indexOf('\\)', pos + 2);
  } else if (src[pos] === '$') {
    if (src[pos + 1] === '$') {
      open = 2;
      end = src.indexOf('$$', pos + 2);
    } else {
      if (/[\s\d]/.test(src[pos + 1] ?? ' ')) return false;
      end = src.indexOf('$', pos + 1);
      while (end > 0 && src[end - 1] === '\\') end = src.indexOf('$', end + 1);
      if (end < 0 || /\s/.test(src[end - 1] ?? ' ') || /\d/.test(src[end + 1] ?? '')) return false;
    }
  } else {
    return false;
  }
  if (end < 0 || end === pos + open || end - pos > kMostMath || src.slice(pos, end).includes('\n\n')) return false;
  if (!silent) state.push('math_inline', 'span', 0).content = src.slice(pos + open, end);
  state.pos = end + (src[pos] === '$' && open === 1 ? 1 : 2);
  return true;
});

const escapeHtml = (text: string) => markdown.utils.escapeHtml(text);
const rules = markdown.renderer.rules;
rules.math_block = (tokens, at) => `<div class="math block">${escapeHtml(tokens[at]?.content ?? '')}</div>\n`;
rules.math_inline = (tokens, at) => `<span class="math">${escapeHtml(tokens[at]?.content ?? '')}</span>`;
rules.image = (tokens, at) => {
  const token = tokens[at];
  const address = String(token?.attrGet('src') ?? '');
  const label = token?.content || address;
  return `<a href="${escapeHtml(address)}">Picture: ${escapeHtml(label)}</a>`;
};
rules.fence = (tokens, at) => {
  const token = tokens[at];
  const language = (token?.info ?? '').trim().split(/\s+/)[0] ?? '';
  const name = /^[\w+#.-]{1,24}$/.test(language) ? language : '';
  return `<pre data-language="${escapeHtml(name)}"><code>${escapeHtml(token?.content ?? '')}</code></pre>\n`;
};
rules.code_block = (tokens, at) => `<pre data-language=""><code>${escapeHtml(tokens[at]?.content ?? '')}</code></pre>\n`;

const kAllowed = {
  ALLOWED_TAGS: [
    'a', 'blockquote', 'br', 'code', 'div', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre', 's',
    'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: ['href', 'class', 'data-language', 'start', 'title'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
} as const;

interface Block {
  source: string;
  nodes: ChildNode[];
  settled: boolean; // closed: what stands in it will not change
}

// A view of a text that grows. Only the last block is read again; those before it are closed.
export class MarkdownView {
  private blocks: Block[] = [];
  private settledLength = 0; // of the text, in closed blocks
  private text = '';
  private env: Record<string, unknown> = {};
  private plain = false;

  constructor(
    private readonly root: HTMLElement,
    private readonly copied: (what: string) => void,
  ) {}

  // `final`: nothing follows.
  update(text: string, final: boolean): void {
    if (text === this.text && !final) return;
    if (text.length > kMostMarkdown) return this.updatePlain(text);
    if (this.plain || !text.startsWith(this.text.slice(0, this.settledLength))) this.clear();
    this.text = text;
    const rest = text.slice(this.settledLength);
    const lines = lineStarts(rest);
    const tokens = markdown.parse(rest, this.env);
    const groups = joined(groupsOf(tokens), lines);
    let settledUntil = 0;
    const kept = this.blocks.filter((block) => block.settled);
    const open = this.blocks.filter((block) => !block.settled);
    groups.forEach((group, index) => {
      const start = lines[group.start] ?? rest.length;
      const end = lines[groups[index + 1]?.start ?? lines.length] ?? rest.length;
      const source = rest.slice(start, end);
      const last = index === groups.length - 1;
      const settled = final || !last;
      const before = open.shift();
      const after = kept.at(-1)?.nodes.at(-1) ?? null;
      let block: Block;
      if (before?.source === source) {
        block = before;
        block.settled = settled;
      } else {
        before?.nodes.forEach((node) => node.remove());
        block = { source, settled, nodes: this.render(tokens.slice(group.from, group.to), after) };
      }
      if (settled) {
        settledUntil = end;
        this.finishBlock(block);
      }
      kept.push(block);
    });
    for (const block of open) block.nodes.forEach((node) => node.remove());
    this.blocks = kept;
    this.settledLength += settledUntil;
  }

  private clear(): void {
    this.root.replaceChildren();
    this.blocks = [];
    this.settledLength = 0;
    this.text = '';
    this.env = {};
    this.plain = false;
  }

  private render(tokens: Token[], after: ChildNode | null): ChildNode[] {
    const html = markdown.renderer.render(tokens, markdown.options, this.env);
    const fragment = DOMPurify.sanitize(html, { ...kAllowed, ALLOWED_TAGS: [...kAllowed.ALLOWED_TAGS], ALLOWED_ATTR: [...kAllowed.ALLOWED_ATTR] });
    for (const link of fragment.querySelectorAll('a')) {
      link.target = '_blank';
      link.rel = 'noopener noreferrer nofollow';
    }
    for (const table of fragment.querySelectorAll('table')) scrollable(table, 'Table');
    for (const pre of fragment.querySelectorAll('pre')) this.dressCode(pre);
    const nodes = [...fragment.childNodes];
    if (after) after.after(fragment);
    else this.root.prepend(fragment);
    return nodes;
  }

  private dressCode(pre: HTMLPreElement): void {
    const frame = document.createElement('div');
    frame.className = 'code';
    const bar = document.createElement('div');
    bar.className = 'code-bar';
    const label = document.createElement('span');
    label.textContent = pre.dataset.language || 'text';
    const copy = document.createElement('button');
    copy.type = 'button';
    copy.textContent = 'Copy';
    copy.setAttribute('aria-label', `Copy the ${pre.dataset.language || 'text'} block`);
    copy.addEventListener('click', () => {
      void copyText(pre.textContent ?? '').then((good) => {
        copy.textContent = good ? 'Copied' : 'Not copied';
        this.copied(good ? 'Copied.' : 'The browser does not allow copying.');
        setTimeout(() => (copy.textContent = 'Copy'), 1500);
      });
    });
    bar.append(label, copy);
    pre.tabIndex = 0;
    pre.setAttribute('role', 'region');
    pre.setAttribute('aria-label', `Code${pre.dataset.language ? `, ${pre.dataset.language}` : ''}`);
    pre.replaceWith(frame);
    frame.append(bar, pre);
  }

  // Colours and mathematics, when the block will not change any more.
  private finishBlock(block: Block): void {
    for (const node of block.nodes) {
      if (!(node instanceof HTMLElement)) continue;
      for (const code of node.querySelectorAll<HTMLElement>('pre[data-language] > code')) {
        const language = code.parentElement?.dataset.language ?? '';
        const text = code.textContent ?? '';
        if (language === '' || text.length > kMostCode || code.dataset.done) continue;
        code.dataset.done = 'yes';
        void import('./highlight').then(({ highlight }) => {
          const html = highlight(text, language);
          if (html !== undefined) {
            code.replaceChildren(
              DOMPurify.sanitize(html, { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], RETURN_DOM_FRAGMENT: true }),
            );
          }
        });
      }
      const spots = [...node.querySelectorAll<HTMLElement>('.math')];
      if (node.classList.contains('math')) spots.push(node);
      if (spots.length === 0) continue;
      void import('./math').then(({ renderMath }) => {
        for (const spot of spots) if (!spot.dataset.done) renderMath(spot);
      });
    }
  }

  // Very long text in pieces that the browser lays out when they come into view.
  private updatePlain(text: string): void {
    if (!this.plain) {
      this.clear();
      this.plain = true;
      this.root.append(note(`This answer is long (${Math.round(text.length / 1000).toLocaleString('en-US')} thousand characters); it is shown as plain text.`));
    }
    const piece = 4000;
    let box = this.root.lastElementChild;
    let at = this.text.length;
    if (!text.startsWith(this.text)) {
      this.plain = false;
      return this.updatePlain(text);
    }
    const most = 500;
    while (at < text.length) {
      if (this.root.childElementCount > most) {
        if (!this.root.querySelector('.rest-note')) {
          const rest = note('The rest is not shown. “Copy” has all of it.');
          rest.classList.add('rest-note');
          this.root.append(rest);
        }
        break;
      }
      const room = box?.className === 'plain' ? piece - (box.textContent?.length ?? 0) : 0;
      if (room <= 0) {
        box = document.createElement('div');
        box.className = 'plain';
        this.root.append(box);
        continue;
      }
      box!.append(text.slice(at, at + room));
      at += room;
    }
    this.text = text;
  }
}

type Token = ReturnType<typeof markdown.parse>[number];

// Tokens of blocks at the outermost level, with the line where they begin.
interface Group {
  from: number;
  to: number;
  start: number;
}

function groupsOf(tokens: Token[]): Group[] {
  const groups: Group[] = [];
  let from = 0;
  let depth = 0;
  tokens.forEach((token, index) => {
    depth += token.nesting;
    if (depth !== 0) return;
    groups.push({ from, to: index + 1, start: tokens[from]?.map?.[0] ?? 0 });
    from = index + 1;
  });
  return groups;
}

// Small blocks that are closed are drawn together: thousands of paragraphs are not thousands of
// documents. The last one stays alone, it may still grow.
function joined(groups: Group[], lines: number[]): Group[] {
  const kept: Group[] = [];
  const place = (group: Group) => lines[group.start] ?? 0;
  groups.forEach((group, index) => {
    const open = kept.at(-1);
    if (open && index < groups.length - 1 && place(group) - place(open) < kTogether) open.to = group.to;
    else kept.push(group);
  });
  return kept;
}

function lineStarts(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return starts;
}

function note(text: string): HTMLElement {
  const box = document.createElement('p');
  box.className = 'note';
  box.textContent = text;
  return box;
}

function scrollable(element: HTMLElement, label: string): void {
  const box = document.createElement('div');
  box.className = 'scroll';
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', label);
  element.replaceWith(box);
  box.append(element);
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS on another machine there is no clipboard; the old way still works there.
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'off-screen';
    document.body.append(area);
    area.select();
    const good = document.execCommand('copy');
    area.remove();
    return good;
  }
}

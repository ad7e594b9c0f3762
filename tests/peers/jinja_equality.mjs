// The same templates and conversations as jinja_equality.py, with npm's @huggingface/jinja. Where it
// differs from Jinja2 itself, Jinja2 is right, and Strata must be as Jinja2 is. Each such place needs
// a reason of the lists below; a reason that explains nothing any more is an error, too.
import { execFileSync } from 'node:child_process';
import { Template } from '@huggingface/jinja';

// npm's package refuses what Jinja2 renders: by its message.
const LACKS = [
  ['filters on strings', /^Unknown StringValue filter: (d|e|truncate|selectattr)\b/],
  ['filters on lists', /^Unknown ArrayValue filter: (groupby|reject|select|trim|upper)\b/],
  ['string of a dict', /^Unknown ObjectValue filter: string/],
  ['filters on nothing and on what is undefined', /^Cannot apply filter "\w+" to type/],
  ['repetition and % of strings', /^Unknown operator "[*%]" between StringValue/],
  ['~ with what is undefined', /^Cannot perform operation ~ on undefined/],
  ['map with a filter', /^`map` expressions without `attribute`/],
  ['selectattr on pairs', /^`selectattr` can only be applied to array of objects/],
  ['numbers as keys of a dict', /^Object keys must be strings/],
  ['with blocks', /^Unknown statement type: with/],
  ['chains in filter blocks', /^Parser Error: Expected closing statement token. Pipe/],
  ['loops over strings or what is undefined', /^Expected iterable or object type in for loop/],
  ['functions such as dict()', /^Cannot call something that is not a function/],
];

// npm's package renders what Jinja2 refuses: by Jinja2's message.
const LENIENT = [
  ['text + a list', /can only concatenate (str|list)/],
  ['members of what is undefined', /has no element|has no attribute|is undefined/],
  ['JSON of what is undefined', /Undefined is not JSON serializable/],
];

// Both render, with another text: by the place where the texts part.
const PRINTED = ['[', '{', "'", 'N'];
const TEXTS = [
  ['JavaScript has one kind of number', ({ label }) => label.startsWith('numbers')],
  ['a generation block keeps the blanks and tags around it',
    ({ source }) => /\bgeneration\b/.test(source)],
  ['an iteration that ends in break or continue loses its text',
    ({ source }) => /\{%-?\s*(break|continue)/.test(source)],
  ["'' equals false", ({ source, label }) =>
    /system_message != false/.test(source) && ['empty contents', 'spaces only'].includes(label)],
  ['lists, dicts and none print as in Python',
    ({ text, expected, at }) => PRINTED.includes(expected[at]) && text[at] !== expected[at]],
];

function render(source, context) {
  try {
    return { text: new Template(source).render(structuredClone(context)) };
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
}

const firstDifference = (a, b) => {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return at;
};

// The entry of the lists that explains the difference, if one does.
function reasonOf(place, npm, expected) {
  if (npm.error !== undefined) return LACKS.find(([, pattern]) => pattern.test(npm.error));
  if (expected.error !== undefined) {
    return LENIENT.find(([, pattern]) => pattern.test(expected.error));
  }
  const at = firstDifference(npm.text, expected.text);
  return TEXTS.find(([, holds]) => holds({ ...place, text: npm.text, expected: expected.text, at }));
}

const python = process.env.STRATA_PYTHON ?? '.venv/bin/python';
const dump = JSON.parse(
  execFileSync(python, ['tests/peers/jinja_equality.py', '--dump'], { maxBuffer: 1 << 30 }),
);
const used = new Map();
const problems = [];
let equal = 0;
for (const [name, source] of Object.entries(dump.templates)) {
  Object.entries(dump.conversations).forEach(([label, conversation], i) => {
    const npm = render(source, conversation);
    const ours = dump.strata[name][i];
    if (npm.text === ours.text) {
      equal++;
      return;
    }
    const expected = dump.jinja2[name][i];
    const reason = reasonOf({ source, label }, npm, expected);
    if (reason) used.set(reason, (used.get(reason) ?? 0) + 1);
    if (!reason || ours.text !== expected.text) {
      problems.push(`  ${name} / ${label}: npm ${JSON.stringify(npm).slice(0, 200)}, ` +
        `Jinja2 ${JSON.stringify(expected).slice(0, 200)}`);
    }
  });
}
const total = Object.keys(dump.templates).length * Object.keys(dump.conversations).length;
console.log(`jinja: npm's package equals Strata in ${equal} of ${total} renderings; where not:`);
for (const [list, title] of [[LACKS, 'it refuses'], [LENIENT, 'it renders in spite of'],
  [TEXTS, 'it differs because']]) {
  for (const reason of list) {
    const count = used.get(reason) ?? 0;
    console.log(`  ${String(count).padStart(5)} ${title}: ${reason[0]}`);
    if (count === 0) problems.push(`  the reason '${reason[0]}' explains nothing any more`);
  }
}
console.log(`${problems.length} problems`);
console.log(problems.slice(0, 40).join('\n'));
process.exit(problems.length > 0 || equal < total / 2 ? 1 : 0);

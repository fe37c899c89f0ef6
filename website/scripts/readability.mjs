// Checks that the pages people wrote are easy to read: Flesch reading ease of at least 50, and 18 words a sentence in the mean. With
// `--list` it prints each page's figures.
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';

const LEAST_EASE = 50;
const MOST_WORDS = 18;
const docs = resolve(import.meta.dirname, '../src/content/docs');
const WRITTEN = /^(index|(start|guides|run|watch|moving|develop)\/.*|measure\/method|reference\/templates)\.md$/;

/** The sentences of a page: no front matter, code, tables or headings. What a name in code says is one word. */
function sentences(markdown) {
  const prose = markdown
    .replace(/^---\n[\s\S]*?\n---\n/, '')
    .replace(/^( *)```[\s\S]*?^\1```$/gm, '\n\n')
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/^\s*\|.*$/gm, '\n')
    .replace(/^#.*$/gm, '\n')
    .replace(/^:::.*$/gm, '\n')
    .replace(/^\s*(?:[-*]|\d+\.)\s+/gm, '\n\n')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/`[^`]*`/g, 'name')
    .replace(/<[^>]*>/g, '');
  return prose.split(/\n\s*\n|[.!?](?=\s|$)/).map((text) => text.match(/[A-Za-z][A-Za-z'’-]*/g) ?? []).filter((words) => words.length);
}

/** Syllables of an English word, by its groups of vowels. */
function syllables(word) {
  const plain = word.toLowerCase().replace(/[^a-z]/g, '').replace(/(?:[^laeiouy]es|[^aeiouytd]ed|[^aeiouyl]e)$/, (end) => end[0]);
  return Math.max(1, (plain.match(/[aeiouy]+/g) ?? []).length);
}

const wrong = [];
for (const name of readdirSync(docs, { recursive: true }).filter((name) => WRITTEN.test(name)).sort()) {
  const read = sentences(readFileSync(join(docs, name), 'utf8'));
  const words = read.flat();
  const length = words.length / read.length;
  const ease = 206.835 - 1.015 * length - (84.6 * words.reduce((sum, word) => sum + syllables(word), 0)) / words.length;
  const line = `${name}: reading ease ${ease.toFixed(0)}, ${length.toFixed(1)} words a sentence`;
  if (process.argv.includes('--list')) console.log(line);
  if (ease < LEAST_EASE || length > MOST_WORDS) wrong.push(line);
}
wrong.forEach((line) => console.error(line));
console.log(`${wrong.length} pages are harder to read than ${LEAST_EASE} or have more than ${MOST_WORDS} words a sentence`);
process.exitCode = wrong.length ? 1 : 0;

// Checks the built site: every internal link and anchor leads somewhere, nothing is loaded from another origin, images have sizes, and
// links say where they lead.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { others } from './src/versions.mjs';

const dist = resolve(import.meta.dirname, 'dist');
const pages = readdirSync(dist, { recursive: true }).filter((name) => name.endsWith('.html')).sort();
const texts = new Map(pages.map((name) => [join(dist, name), readFileSync(join(dist, name), 'utf8')]));
const ids = new Map([...texts].map(([path, text]) => [path, new Set([...text.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id))]));
const wrong = [];
// What says nothing to readers who hear links without the sentence around them.
const VAGUE = new Set(['here', 'more', 'this', 'this page', 'link', 'read more', 'learn more', 'click here']);
let count = 0;

function target(page, link) {
  const path = decodeURIComponent(link.split(/[?#]/)[0]);
  if (!path) return page;
  const whole = path.startsWith('/') ? join(dist, path) : resolve(dirname(page), path);
  return existsSync(whole) && statSync(whole).isDirectory() ? join(whole, 'index.html') : whole;
}

for (const [page, text] of texts) {
  const name = relative(dist, page);
  for (const [image] of text.matchAll(/<img\b[^>]*>/g)) {
    if (!/\swidth="\d+"/.test(image) || !/\sheight="\d+"/.test(image)) wrong.push(`${name}: no size: ${image}`);
  }
  for (const [, label] of text.matchAll(/<a\b[^>]*>([^<]*)<\/a>/g)) {
    if (VAGUE.has(label.trim().toLowerCase())) wrong.push(`${name}: a link named "${label.trim()}"`);
  }
  for (const [, tag, attribute, link] of text.matchAll(/<(\w+)[^>]*?\s(href|src)="([^"]*)"/g)) {
    if (/^(mailto:|data:|javascript:)/.test(link)) continue;
    if (/^(https?:)?\/\//.test(link)) {
      if (tag !== 'a') wrong.push(`${name}: <${tag} ${attribute}> loads ${link}`);
      continue;
    }
    const file = target(page, link);
    // The sites of other versions stand in folders beside this one.
    if (others.some((version) => relative(dist, file) === `../${version}/index.html`)) continue;
    count += 1;
    const id = decodeURIComponent(link.split('#')[1] ?? '');
    if (!existsSync(file)) wrong.push(`${name}: no page ${link}`);
    else if (id && id !== '_top' && ids.has(file) && !ids.get(file).has(id)) wrong.push(`${name}: no anchor ${link}`);
  }
}
wrong.forEach((line) => console.error(line));
console.log(`${pages.length} pages, ${count} internal links, ${wrong.length} wrong`);
process.exitCode = wrong.length ? 1 : 0;

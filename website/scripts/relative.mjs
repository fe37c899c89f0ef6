// Makes the links of the built pages relative, so that the site works below any path and pages open from a folder.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

const dist = resolve(import.meta.dirname, '../dist');
const files = readdirSync(dist, { recursive: true }).filter((name) => name.endsWith('.html'));
for (const name of files) {
  const path = join(dist, name);
  const up = relative(dirname(path), dist) || '.';
  const text = readFileSync(path, 'utf8').replace(/(\s(?:href|src)=")\/(?!\/)([^"#?]*)/g, (_, start, target) => {
    const page = target === '' || target.endsWith('/') ? `${target}index.html` : target;
    return `${start}${up}/${page}`;
  });
  writeFileSync(path, text);
}
console.log(`${files.length} pages with relative links`);

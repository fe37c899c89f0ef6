// The YAML examples of the pages, and a folder with the files that they name.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const here = import.meta.dirname;
const docs = resolve(here, '../src/content/docs');

/** The program that a script is called with. */
export const program = resolve(process.argv[2] ?? resolve(here, '../../target/debug/ferrum-edge'));

/** The environment that examples refer to. */
export const env = { PATH: process.env.PATH, REDIS_PASSWORD: 'secret', OIDC_SECRET: 'secret' };

/** Each YAML block of each page: the page, its line, its mark, the file in `specs/` that is the same, and its text. */
export function examples() {
  const pages = readdirSync(docs, { recursive: true }).filter((name) => /\.mdx?$/.test(name)).sort();
  return pages.flatMap((page) => {
    const text = readFileSync(join(docs, page), 'utf8');
    const blocks = text.matchAll(/^```yaml *(.*)\n([\s\S]*?)^```/gm);
    return [...blocks].map((found) => ({
      page, mark: found[1].replace(/ spec=.*/, ''), spec: found[1].match(/ spec=([\w-]+)$/)?.[1], text: found[2], at: `${page}:${text.slice(0, found.index).split('\n').length + 1}`,
    }));
  });
}

/** A temporary folder with certificates, a site and whatever else examples name. */
export function folder() {
  const path = mkdtempSync(join(tmpdir(), 'ferrum-examples-'));
  const words = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90 -subj /CN=shop.test -addext subjectAltName=DNS:shop.test -keyout key.pem -out cert.pem';
  execFileSync('openssl', words.split(' '), { cwd: path, stdio: 'ignore' });
  writeFileSync(join(path, 'ca.pem'), readFileSync(join(path, 'cert.pem')));
  writeFileSync(join(path, 'eab'), 'c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=');
  writeFileSync(join(path, 'users.htpasswd'), 'ann:$2b$10$abcdefghijklmnopqrstuu23JPZtHcGhwXSF41f93o/7vBdDut3Xu\n');
  writeFileSync(join(path, 'shop.dict'), 'what pages have in common');
  for (const name of ['site/assets', 'uploads', 'acme', 'usage']) mkdirSync(join(path, name), { recursive: true });
  writeFileSync(join(path, 'site/index.html'), '<h1>Hello</h1>');
  writeFileSync(join(path, 'site/assets/numbers.txt'), '1 2 3 '.repeat(100));
  return path;
}

// Checks the YAML examples of the pages with `ferrum-edge check`.
//
//   npm run check:examples -- ../target/debug/ferrum-edge
//
// Each block is marked: `yaml complete` is a whole configuration, `yaml fragment=FRAME` is checked inside a frame below, and
// `yaml fragment` is not a configuration of the gateway.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';

const here = import.meta.dirname;
const docs = resolve(here, '../src/content/docs');
const program = resolve(process.argv[2] ?? resolve(here, '../../target/debug/ferrum-edge'));
const indent = (text, by) => text.replace(/^(?=.)/gm, ' '.repeat(by));
const SHOP = '  - {id: shop, listen_path: /shop, backend_host: 127.0.0.1, backend_port: 3000}\n';

const FRAMES = {
  file: (text) => (/^proxies:/m.test(text) ? text : `proxies:\n${SHOP}${text}`),
  proxy: (text) => `proxies:\n  - id: framed\n    backend_host: 127.0.0.1\n    backend_port: 3000\n${/^(listen_path|hosts):/m.test(text) ? '' : '    listen_path: /framed\n'}${indent(text, 4)}`,
  upstream: (text) => `proxies:\n  - {id: shop, listen_path: /, upstream_id: shop}\nupstreams:\n  - id: shop\n${/^targets:/m.test(text) ? '' : '    targets: [{host: 127.0.0.1, port: 3000}]\n'}${indent(text, 4)}`,
  gateway: (text) => `gateway:\n${indent(text, 2)}proxies:\n${SHOP}`,
  plugins: (text) => `proxies:\n${SHOP}plugin_configs:\n${indent(text, 2)}`,
  acme: (text) => `gateway:\n  acme:\n    accept_terms: true\n    storage: acme\n${indent(text, 4)}  tls: {certificates: [{acme: [shop.test]}]}\nproxies:\n${SHOP}`,
};

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'ferrum-examples-'));
  const words = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=shop.test -addext subjectAltName=DNS:shop.test -keyout key.pem -out cert.pem';
  execFileSync('openssl', words.split(' '), { cwd: path, stdio: 'ignore' });
  writeFileSync(join(path, 'ca.pem'), readFileSync(join(path, 'cert.pem')));
  writeFileSync(join(path, 'eab'), 'c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=');
  writeFileSync(join(path, 'shop.dict'), 'what pages have in common');
  for (const name of ['site/assets', 'uploads', 'acme', 'usage']) mkdirSync(join(path, name), { recursive: true });
  writeFileSync(join(path, 'site/index.html'), '<h1>Hello</h1>');
  return path;
}

const files = readdirSync(docs, { recursive: true }).filter((name) => /\.mdx?$/.test(name)).sort();
const work = folder();
const env = { PATH: process.env.PATH, REDIS_PASSWORD: 'secret', OIDC_SECRET: 'secret' };
const counts = { complete: 0, framed: 0, fragment: 0, elsewhere: 0, wrong: 0 };

for (const name of files) {
  const text = readFileSync(join(docs, name), 'utf8');
  for (const [, mark, block] of text.matchAll(/^```yaml *(.*)\n([\s\S]*?)^```/gm)) {
    const at = `${relative(docs, join(docs, name))}:${text.slice(0, text.indexOf(block)).split('\n').length}`;
    const frame = mark.match(/^fragment=(\w+)$/)?.[1];
    if (mark === 'fragment') {
      counts.fragment += 1;
    } else if (mark !== 'complete' && !FRAMES[frame]) {
      counts.wrong += 1;
      console.error(`${at}: the mark is ${JSON.stringify(mark)}, not \`complete\`, \`fragment\` or \`fragment=${Object.keys(FRAMES).join('|')}\``);
    } else {
      writeFileSync(join(work, 'ferrum.yaml'), frame ? FRAMES[frame](block) : block);
      const result = spawnSync(program, ['check', '--spec', 'ferrum.yaml'], { cwd: work, env, encoding: 'utf8' });
      if (/No such file/.test(result.stderr + result.stdout) && name.startsWith('reference/plugins')) {
        counts.elsewhere += 1;
      } else if (result.status !== 0) {
        counts.wrong += 1;
        console.error(`${at}:\n${indent(result.stdout + result.stderr, 2)}`);
      } else counts[frame ? 'framed' : 'complete'] += 1;
    }
  }
}
rmSync(work, { recursive: true, force: true });
console.log(Object.entries(counts).map(([key, value]) => `${key}: ${value}`).join(', '));
process.exitCode = counts.wrong ? 1 : 0;

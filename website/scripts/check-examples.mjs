// Checks the YAML examples of the pages with `ferrum-edge check`.
//
//   npm run check:examples -- ../target/debug/ferrum-edge
//
// Each block is marked: `yaml complete` is a whole configuration, `yaml fragment=FRAME` is checked inside a frame below, and
// `yaml fragment` is not a configuration of the gateway. `yaml complete spec=NAME` is also the file specs/NAME.yaml.
import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { env, examples, folder, program } from './examples.mjs';

const indent = (text, by) => text.replace(/^(?=.)/gm, ' '.repeat(by));
const SHOP = '  - {id: shop, listen_path: /shop, backend_host: 127.0.0.1, backend_port: 3000}\n';

const FRAMES = {
  file: (text) => (/^proxies:/m.test(text) ? text : `proxies:\n${SHOP}${text}`),
  proxy: (text) => `proxies:\n  - id: framed\n    backend_host: 127.0.0.1\n    backend_port: 3000\n${/^(listen_path|hosts):/m.test(text) ? '' : '    listen_path: /framed\n'}${indent(text, 4)}`,
  upstream: (text) => `proxies:\n  - {id: shop, listen_path: /, upstream_id: shop}\nupstreams:\n  - id: shop\n${/^targets:/m.test(text) ? '' : '    targets: [{host: 127.0.0.1, port: 3000}]\n'}${indent(text, 4)}`,
  gateway: (text) => `gateway:\n${indent(text, 2)}proxies:\n${SHOP}`,
  plugins: (text) => `proxies:\n${SHOP}plugin_configs:\n${indent(text, 2)}`,
  site: (text) => `proxies:\n  - {id: api, listen_path: /api, backend_host: 127.0.0.1, backend_port: 3000}\n  - {id: site, listen_path: /, backend_host: 127.0.0.1, backend_port: 3000}\nplugin_configs:\n${indent(text, 2)}`,
  acme: (text) => `gateway:\n  acme:\n    accept_terms: true\n    storage: acme\n${indent(text, 4)}  tls: {certificates: [{acme: [shop.test]}]}\nproxies:\n${SHOP}`,
};

const specs = resolve(import.meta.dirname, '../../specs');
const work = folder();
const counts = { complete: 0, framed: 0, fragment: 0, elsewhere: 0, wrong: 0 };

for (const { page, at, mark, spec, text } of examples()) {
  if (spec && readFileSync(join(specs, `${spec}.yaml`), 'utf8').replace(/^# .*\n/, '') !== text) {
    counts.wrong += 1;
    console.error(`${at}: differs from specs/${spec}.yaml, below its first line`);
  }
  const frame = mark.match(/^fragment=(\w+)$/)?.[1];
  if (mark === 'fragment') {
    counts.fragment += 1;
  } else if (mark !== 'complete' && !FRAMES[frame]) {
    counts.wrong += 1;
    console.error(`${at}: the mark is ${JSON.stringify(mark)}, not \`complete\`, \`fragment\` or \`fragment=${Object.keys(FRAMES).join('|')}\``);
  } else {
    writeFileSync(join(work, 'ferrum.yaml'), frame ? FRAMES[frame](text) : text);
    // The examples of plugins are the program's own: they may name files of other machines, and leave a CA out.
    const isPlugin = page.startsWith('reference/plugins');
    const flags = isPlugin ? [] : ['--deny-warnings'];
    const result = spawnSync(program, ['check', ...flags, '--spec', 'ferrum.yaml'], { cwd: work, env, encoding: 'utf8' });
    const output = result.stdout + result.stderr;
    if (isPlugin && /No such file/.test(output)) counts.elsewhere += 1;
    else if (result.status === 0) counts[frame ? 'framed' : 'complete'] += 1;
    else {
      counts.wrong += 1;
      console.error(`${at}:\n${indent(output, 2)}`);
    }
  }
}
rmSync(work, { recursive: true, force: true });
console.log(Object.entries(counts).map(([key, value]) => `${key}: ${value}`).join(', '));
process.exitCode = counts.wrong ? 1 : 0;

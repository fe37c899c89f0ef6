// Collects what the reference pages show, from the program and from its sources, into data/reference/*.json.
//
//   npm run reference -- ../target/debug/ferrum-edge           # writes the files
//   npm run reference -- ../target/debug/ferrum-edge --check   # exit code 1 if a file is out of date
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';

const root = resolve(import.meta.dirname, '../..');
const out = resolve(import.meta.dirname, '../data/reference');
const args = process.argv.slice(2);
const isCheck = args.includes('--check');
const program = resolve(args.find((arg) => !arg.startsWith('--')) ?? join(root, 'target/debug/ferrum-edge'));
const run = (...words) => execFileSync(program, words, { encoding: 'utf8', maxBuffer: 1 << 26 });
const source = (path) => readFileSync(join(root, path), 'utf8');

/** Drops what no page shows: null defaults and the dialect's address. */
function lean(value) {
  if (Array.isArray(value)) return value.map(lean);
  if (value === null || typeof value !== 'object') return value;
  const kept = Object.entries(value).filter(([key, v]) => key !== '$schema' && !(key === 'default' && v === null));
  return Object.fromEntries(kept.map(([key, v]) => [key, lean(v)]));
}

/** The definitions that a plugin's schema shares with the file's schema are kept once, there. */
function withoutShared(schema, shared) {
  const defs = Object.entries(schema.$defs ?? {}).filter(
    ([name, def]) => JSON.stringify(def) !== JSON.stringify(shared[name]),
  );
  return { ...schema, $defs: Object.fromEntries(defs) };
}

function plugins(schema) {
  const runsFor = {};
  for (const part of run('plugins', '--output', 'markdown').split('\n## ').slice(1)) {
    runsFor[part.split('\n')[0]] = part.match(/^Runs for (.*)$/m)?.[1] ?? '';
  }
  return JSON.parse(run('plugins', '--output', 'json')).map((plugin) => ({
    ...plugin,
    schema: withoutShared(lean(plugin.schema), schema.$defs),
    runsFor: runsFor[plugin.name],
    reasons: reasons(plugin.name),
  }));
}

/** The crates of plugins. In the first, plugins lie in the folders of their families. */
const ROOMS = ['src', 'auth/src', 'cache/src', 'common/src', 'scripting/src'].map((room) => join(root, 'gateway-plugins', room));

/** The Rust files of all plugins, with the plugin or module that each belongs to. */
function moduleFiles() {
  return ROOMS.flatMap((room, index) =>
    rustFiles(room).map((path) => {
      const parts = path.slice(room.length + 1).split('/');
      return { path, module: (index === 0 && parts.length > 1 ? parts[1] : parts[0]).replace(/\.rs$/, '') };
    }),
  );
}

/** The words in `error.type` and `code` that a plugin gives its own answers. */
function reasons(plugin) {
  const words = new Set();
  for (const { path, module } of moduleFiles()) {
    if (module !== plugin || /\/tests?(\/|\.rs|_)/.test(path)) continue;
    const text = readFileSync(path, 'utf8').split('#[cfg(test)]\nmod')[0];
    for (const [, word] of text.matchAll(/\.reason\(\s*"([a-z_0-9]+)"/g)) words.add(word);
  }
  return [...words].sort();
}

function rustFiles(folder) {
  return readdirSync(folder)
    .sort()
    .flatMap((name) => {
      const path = join(folder, name);
      if (statSync(path).isDirectory()) return rustFiles(path);
      return name.endsWith('.rs') ? [path] : [];
    });
}

const unquote = (text) => JSON.parse(`"${text}"`);
const doc = (lines) => lines.replace(/^\s*\/\/\/ ?/gm, '').replace(/\s+/g, ' ').trim();

function errors() {
  const text = source('gateway-core/src/http/reply.rs');
  const [, body] = text.match(/pub enum Cause \{([\s\S]*?)\n\}/);
  const meanings = Object.fromEntries(
    [...body.matchAll(/((?:\s*\/\/\/.*\n)+)\s*(\w+),/g)].map(([, lines, name]) => [name, doc(lines)]),
  );
  const rows = text.matchAll(/Self::(\w+) => row\((\d+), (\d+), "([^"]*)", "([^"]*)", "([^"]*)"\)/g);
  return [...rows].map(([, name, status, grpc, proxyStatus, code, title]) => ({
    code, status: +status, grpc: +grpc, proxyStatus, title, meaning: meanings[name],
  }));
}

/** The words of the table of reasons that are no cause's, with the theme they stand below. */
function words() {
  const found = [];
  let theme = '';
  for (const line of source('gateway-core/src/reason.rs').split('\n')) {
    theme = line.match(/^ {4}\/\/ ([^.]+)\.$/)?.[1] ?? theme;
    const row = line.match(/^ {4}row\("([a-z_]+)", "((?:[^"\\]|\\.)*)", "([^"]*)"\),$/);
    if (row) found.push({ code: row[1], meaning: unquote(row[2]), setting: row[3], theme });
  }
  return found;
}

function warnings() {
  const text = source('gateway-core/config/src/warning/codes.rs');
  const rows = text.matchAll(/\(\s*"([a-z_]+)",\s*"((?:[^"\\]|\\.)*)",?\s*\)/g);
  return [...rows].map(([, code, meaning]) => ({ code, meaning: unquote(meaning) }));
}

function metrics() {
  const text = source('gateway-core/src/metrics/names.rs');
  const rows = text.matchAll(/((?:\s*\/\/\/.*\n)+)\s*[A-Z_]+: (\w+) = "([^"]+)";/g);
  return [...rows].map(([, lines, kind, name]) => ({ name, kind, meaning: doc(lines) }));
}

/** Metrics that plugins register, with the module that does. */
function pluginMetrics() {
  const found = [];
  for (const { path, module } of moduleFiles()) {
    const rows = readFileSync(path, 'utf8').matchAll(
      /Metric::(counter|gauge|histogram)\(\s*"(ferrum_\w+)",\s*"((?:[^"\\]|\\[\s\S])*)",?\s*\)/g,
    );
    for (const [, kind, name, help] of rows) {
      found.push({ name, kind, meaning: help.replace(/\\\n\s*/g, '').replace(/\\"/g, '"'), module });
    }
  }
  if (!found.length) throw new Error('no metric of a plugin was found: has the way to declare them changed?');
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function fields() {
  const [, body] = source('gateway-core/config/src/model/log.rs').match(/pub const LOG_FIELDS: &\[&str\] = &\[([\s\S]*?)\];/);
  return [...body.matchAll(/"([^"]+)"/g)].map(([, name]) => name);
}

function settings() {
  const found = [];
  for (const line of run('settings').split('\n')) {
    const head = line.match(/^(\w+)(?: \((.+)\))?$/);
    if (head) found.push({ name: head[1], setting: head[2] ?? '', meaning: '' });
    else if (line.trim()) found.at(-1).meaning = `${found.at(-1).meaning} ${line.trim()}`.trim();
  }
  return found;
}

/** Every command's own help, subcommands included. */
function commands(path = []) {
  const own = basename(program);
  const help = run(...path, '--help').replaceAll(`Usage: ${own}`, 'Usage: ferrum-edge').trimEnd();
  const section = help.match(/\nCommands:\n([\s\S]*?)(?:\n\n|$)/)?.[1] ?? '';
  const names = [...section.matchAll(/^ {2}([a-z][a-z-]*) /gm)].map(([, name]) => name).filter((name) => name !== 'help');
  const page = path.length === 0 ? [] : [{ name: path.join(' '), help: help.replace(/ +$/gm, '') }];
  return [...page, ...names.flatMap((name) => commands([...path, name]))];
}

const freePort = () =>
  new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });

/** The calls of the admin API, as a gateway in database mode describes them. */
async function api() {
  const folder = mkdtempSync(join(tmpdir(), 'ferrum-reference-'));
  const port = await freePort();
  const token = 'reference-pages-only-0123456789abcdef';
  writeFileSync(join(folder, 'g.yaml'), `gateway: {http: off, https: off, admin: 127.0.0.1:${port}}\n`);
  const gateway = spawn(program, ['run', '--mode', 'database', '--db-url', 'sqlite:./g.db', '--spec', 'g.yaml'], {
    cwd: folder, env: { PATH: process.env.PATH, FERRUM_ADMIN_TOKEN: token }, stdio: 'ignore',
  });
  try {
    for (let tries = 0; ; tries += 1) {
      try {
        const url = `http://127.0.0.1:${port}/v1/openapi.json`;
        const response = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
        return brief(await response.json());
      } catch (error) {
        if (tries > 100) throw error;
        await new Promise((done) => setTimeout(done, 100));
      }
    }
  } finally {
    gateway.kill('SIGTERM');
    await new Promise((done) => gateway.once('exit', done));
    rmSync(folder, { recursive: true, force: true });
  }
}

function brief(document) {
  const calls = [];
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      if (!call.summary) continue;
      const parameters = (call.parameters ?? methods.parameters ?? []).map((parameter) => {
        const { name, in: place, required, description } = resolveIn(document, parameter);
        return { name, place, required: Boolean(required), meaning: description ?? '' };
      });
      const answers = Object.entries(call.responses ?? {}).map(([status, answer]) => ({
        status, meaning: resolveIn(document, answer).description ?? '',
      }));
      calls.push({ method: method.toUpperCase(), path, summary: call.summary, meaning: call.description ?? '', parameters, answers });
    }
  }
  return calls;
}

const resolveIn = (document, value) =>
  value.$ref ? value.$ref.slice(2).split('/').reduce((at, key) => at[key], document) : value;

const schema = lean(JSON.parse(run('schema')));
const files = {
  schema,
  plugins: plugins(schema),
  settings: settings(),
  commands: commands(),
  api: await api(),
  errors: errors(),
  reasons: words(),
  warnings: warnings(),
  metrics: metrics(),
  pluginMetrics: pluginMetrics(),
  fields: fields(),
};
let stale = 0;
for (const [name, value] of Object.entries(files)) {
  const path = join(out, `${name}.json`);
  const text = `${JSON.stringify(value, null, 1)}\n`;
  if (!isCheck) writeFileSync(path, text);
  else if (readFileSync(path, 'utf8') !== text) {
    stale += 1;
    console.error(`data/reference/${name}.json is out of date: run \`npm run reference -- PROGRAM\``);
  }
  console.log(`${name}: ${Array.isArray(value) ? value.length : Object.keys(value.$defs).length}`);
}
process.exitCode = stale ? 1 : 0;

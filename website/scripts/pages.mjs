// Writes the reference pages from data/reference/*.json and data/remedies.json into src/content/docs/reference.
// An error code or a warning without a remedy, or a remedy without its code, stops the build.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const here = import.meta.dirname;
const read = (name) => JSON.parse(readFileSync(resolve(here, '../data', `${name}.json`), 'utf8'));
const current = readFileSync(resolve(here, '../../Cargo.toml'), 'utf8').match(/^version = "([^"]+)"/m)[1];
const pagesFolder = resolve(here, '../src/content/docs');
const docs = join(pagesFolder, 'reference');
const reference = (name) => read(`reference/${name}`);
const schema = reference('schema');

function page(path, ...rest) {
  writePage(`reference/${path}`, ...rest);
}

function writePage(path, title, description, order, body, label = title) {
  const head = { title, description, editUrl: false, sidebar: { order, label }, tableOfContents: { maxHeadingLevel: 3 } };
  const yaml = Object.entries(head).map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join('\n');
  const file = join(pagesFolder, `${path}.md`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `---\n${yaml}\n---\n\n${body.trim()}\n`);
}

/** Text for a table's cell: nothing in it may end the cell or begin an element. */
const cell = (text) =>
  text.split(/(`[^`]*`)/).map((part, n) => (n % 2 ? part : part.replace(/</g, '&lt;').replace(/\*/g, '\\*')))
    .join('').replace(/\|/g, '\\|').replace(/\s+/g, ' ').trim();
const row = (...cells) => `| ${cells.join(' | ')} |`;
const table = (heads, rows) => [row(...heads), row(...heads.map(() => '---')), ...rows].join('\n');
const plain = (name) => name.replace(/\d+$/, '');
const anchor = (name) => plain(name).replace(/([a-z0-9])([A-Z])/g, '$1-$2').toLowerCase();
const heading = (name) => plain(name).replace(/([a-z0-9])([A-Z])/g, '$1 $2').replace(/ (\w)/g, (_, c) => ` ${c.toLowerCase()}`);

const refName = (node) => node.$ref?.slice('#/$defs/'.length);
const variants = (node) => (node.anyOf ?? node.oneOf ?? []).filter((part) => part.type !== 'null');

/** What a setting's value is, in a word or two; links go to the definition's own section. */
function type(node, link) {
  const name = refName(node);
  if (name) return link(name);
  const parts = variants(node);
  if (parts.length) return [...new Set(parts.map((part) => type(part, link)))].join(' or ');
  if (node.const !== undefined) return `\`${node.const}\``;
  if (node.enum) return node.enum.map((value) => `\`${value}\``).join(', ');
  const types = [node.type ?? []].flat().filter((t) => t !== 'null');
  if (node.format === 'duration') return 'duration';
  if (node.format === 'secret') return 'string (secret)';
  if (node.format === 'bytes' || node.format === 'size') return 'size';
  if (types.includes('array')) return `list of ${node.items ? type(node.items, link) : 'values'}`;
  if (types.includes('object')) {
    const keys = Object.keys(node.properties ?? {});
    if (keys.length) return keys.map((key) => `\`${key}: …\``).join(', ');
    const inner = node.additionalProperties;
    return inner && inner !== true ? `map of ${type(inner, link)}` : 'map';
  }
  return types.join(' or ') || 'any';
}

/** A bound as people write it: `1ms`, `1d`, `64KiB`. */
function bound(node, value) {
  const units = {
    duration: [['d', 86400], ['h', 3600], ['m', 60], ['s', 1], ['ms', 0.001]],
    size: [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]],
  }[node.format];
  const fits = units?.find(([, scale]) => value >= scale && Number.isInteger(Math.round((value / scale) * 1e6) / 1e6));
  return fits ? `${Math.round(value / fits[1])}${fits[0]}` : value;
}

function range(node) {
  const { minimum, maximum } = node;
  const least = minimum && Math.abs(minimum) < 1e15 ? bound(node, minimum) : minimum;
  const most = maximum && Math.abs(maximum) < 1e15 ? bound(node, maximum) : maximum;
  const open = (value) => value === undefined || (typeof value === 'number' && Math.abs(value) > 1e15);
  if (open(most)) return least ? `, at least ${least}` : '';
  return open(least) ? `, at most ${most}` : `, ${least} to ${most}`;
}

/** The release in which a setting appeared, where it is not the first one. */
function since(node) {
  if (!node.since) return '';
  if (node.since.localeCompare(current, 'en', { numeric: true }) > 0) throw new Error(`since ${node.since}: this is ${current}`);
  return `, since ${node.since}`;
}

/** The description without the sentence about the default, and that sentence's contents. */
function split(description = '', isRequired = false) {
  const text = description.replace(/\s+/g, ' ').trim();
  const found = text.match(/(?:^|\s)Default:? ((?:`[^`]*`|[^`])*?)\.(?=\s|$)/);
  const rest = found ? text.replace(found[0], ' ').replace(/\s+/g, ' ').trim() : text;
  return { meaning: rest, standard: found ? found[1] : isRequired || / ?Required\.$/.test(text) ? 'required' : '' };
}

/** A name that may be broken after its underscores, with an anchor of its own. */
const optionName = (name, id) => `<code id="${id}">${name.replace(/_/g, '_<wbr>')}</code>`;

/** A word with an anchor of its own, and a note below it. */
const named = (name, note) => `${optionName(name, name)}${note ? `<br><small>${note}</small>` : ''}`;

function options(def, link, prefix = 'option') {
  const rows = Object.entries(def.properties ?? {}).map(([name, node]) => {
    const { meaning, standard } = split(node.description, def.required?.includes(name));
    const kind = `<small>${cell(type(node, link) + range(node) + since(node))}</small>`;
    return row(`${optionName(name, `${prefix}-${name}`)}<br>${kind}`, cell(standard), cell(meaning));
  });
  return rows.length ? table(['option and type', 'default', 'meaning'], rows) : '';
}

/** The allowed words of a definition, or the forms it may have. */
function words(def, link) {
  const parts = variants(def);
  if (def.enum) return `One of ${type(def, link)}.`;
  if (!parts.length || def.properties) return '';
  return table(['value', 'meaning'], parts.map((part) => row(cell(type(part, link)), cell(part.description ?? ''))));
}

/** The names of the definitions that one uses, in the order in which they appear. */
function used(node, defs, seen = [], skip = () => false) {
  if (Array.isArray(node)) node.forEach((part) => used(part, defs, seen, skip));
  else if (node && typeof node === 'object') {
    const name = refName(node);
    if (name && defs[name] && !seen.includes(name) && !skip(name)) {
      seen.push(name);
      used(defs[name], defs, seen, skip);
    }
    Object.values(node).forEach((part) => used(part, defs, seen, skip));
  }
  return seen;
}

const CONDITION = used(schema.$defs.Condition, schema.$defs, ['Condition']);

function sections(names, defs, link, level = '##') {
  return names.map((name) => {
    const def = defs[name];
    return [`${level} ${heading(name)}`, cell(def.description ?? '').replace(/\\\|/g, '|'), words(def, link), options(def, link, anchor(name))]
      .filter(Boolean).join('\n\n');
  });
}

function linkFor(own) {
  return (name) => {
    if (own.includes(name)) return `[${heading(name)}](#${anchor(name)})`;
    if (CONDITION.includes(name)) return `[${heading(name)}](/reference/conditions/#${anchor(name)})`;
    return heading(name);
  };
}

function configuration() {
  const pages = [
    ['gateway', 'Gateway', 'gateway', 'Settings of the gateway as a whole: listeners, TLS, limits, timeouts, logs and metrics.'],
    ['proxies', 'Proxy', 'proxies', 'A proxy takes the requests or connections that match it and sends them to targets.'],
    ['upstreams', 'Upstream', 'upstreams', 'An upstream is a named group of targets with its balancing and its health checks.'],
    ['consumers', 'Consumer', 'consumers', 'A consumer is a caller that the gateway can recognise.'],
    ['plugin-configs', 'PluginConfig', 'plugin_configs', 'A plugin config runs one plugin in one place.'],
  ];
  pages.forEach(([path, name, key, summary], n) => {
    const names = used(schema.$defs[name], schema.$defs, [name], (other) => CONDITION.includes(other));
    const link = linkFor(names);
    const note = 'Durations and sizes take units: `5s`, `1m30s`, `500ms`, `10MiB`. A plain number counts seconds or bytes. What has no `since` is there since 0.1.0.';
    const body = [summary, note, options(schema.$defs[name], link), ...sections(names.slice(1), schema.$defs, link)];
    page(path, `Configuration: ${key}`, summary, n + 1, body.join('\n\n'), key);
  });
  const link = linkFor(CONDITION);
  const summary = 'One language says which requests are meant: in matches of proxies, in `when` of plugin configs, and in filters of logs.';
  const rule = 'All given conditions must hold. `all`, `any` and `not` combine them.';
  const example = '```yaml fragment=proxy\nmatches:\n  - {path: /items, methods: [POST], not: {clients: [10.0.0.0/8]}}\n```';
  page('conditions', 'Conditions', 'What a request can be matched by.', 6,
    [summary, rule, example, ...sections(CONDITION, schema.$defs, link)].join('\n\n'));
}

function plugins(list) {
  mkdirSync(join(docs, 'plugins'), { recursive: true });
  const index = list.map(({ name, family, summary }) => row(`[\`${name}\`](/reference/plugins/${name}/)`, cell(summary), family));
  const intro = 'Plugins run in this order. `before` and `after` of a plugin config change it.';
  page('plugins/index', 'Plugins', 'All plugins, in the order in which they run.', 0, `${intro}\n\n${table(['plugin', 'what it does', 'family'], index)}`, 'All plugins');
  list.forEach((plugin, n) => {
    const defs = plugin.schema.$defs ?? {};
    const names = used(plugin.schema.properties, defs, [], (name) => CONDITION.includes(name) && !defs[name]);
    const link = linkFor(names);
    const mine = reference('pluginMetrics').filter(({ module }) => module === plugin.name);
    const actions = Object.entries(plugin.actions ?? {}).map(([name, action]) => row(`\`${name}\``, cell(typeof action === 'string' ? action : (action.summary ?? action.description ?? ''))));
    const body = [
      plugin.summary,
      plugin.runsFor ? `**Runs for** ${plugin.runsFor}` : '',
      plugin.example ? `## Example\n\nThe first lines are requests and the statuses that they get. A test sends them.\n\n\`\`\`yaml complete\n${plugin.example.trim()}\n\`\`\`` : '',
      '## Options\n\nThese are keys of `config` in a [plugin config](/reference/plugin-configs/).',
      options(plugin.schema, link) || 'This plugin has no options.',
      ...sections(names, defs, link, '###'),
      actions.length ? `## Actions\n\n\`POST /v1/plugins/${plugin.name}/actions/NAME\` of the [admin API](/reference/admin-api/) starts one.\n\n${table(['action', 'what it does'], actions)}` : '',
      plugin.reasons.length ? `## Error codes\n\nThe plugin's own answers have one of these codes in \`code\` of the body and in \`reply.reason\` of the access record: ${plugin.reasons.map((word) => `\`${word}\``).join(', ')}. [Error codes](/reference/error-codes/) lists the gateway's own.` : '',
      mine.length ? `## Metrics\n\n${table(['metric', 'kind', 'meaning'], mine.map((m) => row(`\`${m.name}\``, m.kind, cell(m.meaning))))}` : '',
    ];
    page(`plugins/${plugin.name}`, plugin.name, plugin.summary, n + 1, body.filter(Boolean).join('\n\n'));
  });
}

/** Remedies by code; each code has one, and each belongs to a code. */
function remedies(kind, codes) {
  const known = read('remedies')[kind];
  const missing = codes.filter((code) => !known[code]);
  const extra = Object.keys(known).filter((code) => !codes.includes(code));
  if (missing.length || extra.length) {
    throw new Error(`data/remedies.json, ${kind}: without a remedy: ${missing}; without a code: ${extra}`);
  }
  const keys = new Set([...JSON.stringify(schema).matchAll(/"(\w+)":/g)].map(([, key]) => key));
  for (const { setting } of Object.values(known)) {
    const unknown = setting?.split('.').find((part) => !keys.has(part));
    if (unknown) throw new Error(`data/remedies.json, ${kind}: the schema has no setting ${unknown}`);
  }
  return known;
}

function errorCodes(list) {
  const errors = reference('errors');
  const known = remedies('errors', errors.map(({ code }) => code));
  const rows = errors.map(({ code, status, grpc, meaning }) =>
    row(`${named(code, `HTTP ${status}, gRPC ${grpc}`)}`, cell(meaning), `${cell(known[code].remedy)}${known[code].setting ? `<br><small>Setting: \`${known[code].setting}\`</small>` : ''}`));
  const names = new Set(list.map((plugin) => plugin.name));
  const shown = (setting) => {
    const [first, ...rest] = setting.split('.');
    return names.has(first) ? `[\`${first}\`](/reference/plugins/${first}/)${rest.length ? ` \`${rest.join('.')}\`` : ''}` : setting && `\`${setting}\``;
  };
  const reasons = reference('reasons');
  const themes = [...new Set(reasons.map(({ theme }) => theme))].flatMap((theme) => [
    `### ${theme}`,
    table(['code', 'meaning', 'setting'], reasons.filter((one) => one.theme === theme)
      .map(({ code, meaning, setting }) => row(named(code), cell(meaning), shown(setting)))),
  ]);
  const body = [
    'Each answer that the gateway makes itself has a code, which is the same word everywhere: in `code` and at the end of `type` of the JSON body (RFC 9457), in `error.type` and `reply.reason` of the access record, in `session.end` of a session, in the label `reason` of `ferrum_replies_total` and `ferrum_session_ends_total`, in `reason` of the program log, and in `logs` and `top`. gRPC clients get the gRPC status.',
    '`error.setting` of the access record names the setting that decided, `error.limit` its value where the gateway knows it, and `plugin_config.id` the plugin config that answered.',
    'Codes with the status 499 are recorded only: the client is gone.',
    '## Codes of the gateway',
    table(['code and status', 'meaning', 'what to do'], rows),
    '## Codes of plugins and sessions',
    'Plugins that are not part of the gateway may use further codes.',
    ...themes,
    '## Related\n\n- [Troubleshooting](/watch/troubleshooting/)\n- [Logs, metrics, traces](/watch/observe/)',
  ];
  page('error-codes', 'Error codes', 'What each error code means, which setting decides it, and what to do.', 20, body.join('\n\n'));
}

function warningCodes() {
  const warnings = reference('warnings');
  const known = remedies('warnings', warnings.map(({ code }) => code));
  const rows = warnings.map(({ code, meaning }) => row(named(code), cell(meaning), cell(known[code].remedy)));
  const body = [
    'A warning names a setting that is valid and probably a mistake. `check`, `run`, `reload` and `/v1/status` show warnings with their codes.',
    '`gateway.silence_warnings: [CODE]` hides a code. `check --deny-warnings` and `run --deny-warnings` fail if there is a warning.',
    table(['code', 'meaning', 'what to do'], rows),
  ];
  page('warnings', 'Warnings', 'Each warning code: its meaning, and what to do.', 21, body.join('\n\n'));
}

function observation(metrics) {
  const rows = metrics.map(({ name, kind, meaning }) => row(named(name, kind), cell(meaning)));
  const ofPlugins = reference('pluginMetrics').map(({ name, kind, meaning }) => row(named(name, kind), cell(meaning)));
  page('metrics', 'Metrics', 'All metrics of the gateway.', 22,
    `\`GET /metrics\` on the admin listener answers in the text format of Prometheus, in OpenMetrics with exemplars, or in protobuf with native histograms, by \`Accept\`. \n\n## Metrics of the gateway\n\n${table(['metric and kind', 'meaning'], rows)}\n\n## Metrics of plugins\n\n${table(['metric and kind', 'meaning'], ofPlugins)}`);
  const fields = reference('fields').map((name) => `- \`${name}\``).join('\n');
  page('log-fields', 'Access record fields', 'The fields of an access record.', 23,
    `An access record has these fields, where they apply. Plugins add fields under their own names, such as \`waf.rules\`; \`request_headers\` of a sink adds header fields.\n\n${fields}\n\nDurations are in seconds. \`error.type\` is an [error code](/reference/error-codes/); [Logs, metrics, traces](/watch/observe/) says how to read a record.`);
}

const EXITS = [[0, 'success'], [1, 'runtime failure'], [2, 'wrong usage'], [3, 'invalid configuration'], [4, '`diff` found differences'], [5, '`status` found an error'], [6, 'the change of `apply`, `sync` or `rollback` waits for an approval']];

function program() {
  const parts = reference('commands').map(({ name, help }) => `## ferrum-edge ${name}\n\n\`\`\`text\n${help}\n\`\`\``);
  page('commands', 'Commands', 'Every command with its arguments, and the exit codes.', 11,
    `## Exit codes\n\n${table(['code', 'meaning'], EXITS.map(([code, meaning]) => row(code, meaning)))}\n\nFlags override environment variables, environment variables override the file.\n\n${parts.join('\n\n')}`);
  const rows = reference('settings').map(({ name, setting, meaning }) => {
    const { meaning: rest, standard } = split(meaning);
    return row(named(name, /[ ]/.test(setting) ? setting : setting && `\`${setting}\``), cell(standard), cell(rest));
  });
  page('environment', 'Environment variables', 'Every environment variable that the gateway reads.', 10,
    `A variable overrides the file. With \`_FILE\` at its end, as in \`FERRUM_ADMIN_TOKEN_FILE\`, it names a file that contains the value. In the file, \`\${env:NAME}\` is replaced by a variable and \`\${file:PATH}\` by the text of a file; \`$\${env:\` is the text itself.\n\n${table(['variable and setting', 'default', 'meaning'], rows)}`);
}

function adminApi() {
  const calls = reference('api').map(({ method, path, summary, meaning, parameters, answers }) => {
    const given = parameters.map((p) => row(`\`${p.name}\``, p.place, p.required ? 'yes' : '', cell(p.meaning)));
    const statuses = answers.map((a) => row(a.status, cell(a.meaning)));
    return [
      `## ${method} ${path.replace(/[{}]/g, (c) => `\\${c}`)}`, cell(summary), cell(meaning),
      given.length ? table(['parameter', 'in', 'required', 'meaning'], given) : '',
      statuses.length ? table(['status', 'meaning'], statuses) : '',
    ].filter(Boolean).join('\n\n');
  });
  page('admin-api', 'Admin API', 'Every call of the admin API.', 12,
    `The API listens on \`gateway.admin\`, by default \`127.0.0.1:9000\`. Requests carry \`Authorization: Bearer TOKEN\`. \`GET /v1/openapi.json\` has the full description with all types; [Configuration from a database](/run/database/) explains how to use it.\n\n${calls.join('\n\n')}`);
}

const PROXIES = [['gateway', 'ferrum-edge'], ['nginx', 'nginx'], ['haproxy', 'HAProxy']];
const shown = (value, digits = 1) => (value === undefined ? '–' : value.toFixed(digits));

const median = (rows, id, subject) =>
  rows.find((r) => r.id === id && r.subject === subject && r.verdict.state === 'valid')?.summary.cpu_us_per_request?.median;

/** One test as bars, each in proportion to the largest of the test. */
function bar(label, values) {
  const most = Math.max(...values.map(([, value]) => value ?? 0));
  const lines = values.filter(([, value]) => value !== undefined).map(([name, value], n) => {
    const width = ((value / most) * 100).toFixed(1);
    return `<span>${name}</span><span class="bar${n === 0 && name === 'ferrum-edge' ? ' own' : ''}" style="width:${width}%"></span><span>${shown(value)}</span>`;
  });
  return `<p><strong>${label}</strong></p><div class="rows">${lines.map((line) => `<div>${line}</div>`).join('')}</div>`;
}

/** The figures of `compare`, from its result alone. A row that is not valid has its reason in place of figures. */
function results() {
  const { rows, machine, settings, notes, versions, finished, command, revision } = read('compare');
  const tests = [...new Map(rows.map(({ id, label }) => [id, label]))];
  const figure = (id, subject, pick) => {
    const found = rows.find((r) => r.id === id && r.subject === subject);
    if (!found) return '–';
    return found.verdict.state === 'valid' ? pick(found.summary) : found.verdict.state;
  };
  const compared = (pick) => table(['test', ...PROXIES.map(([, name]) => name)],
    tests.map(([id, label]) => row(cell(label), ...PROXIES.map(([subject]) => figure(id, subject, pick)))));
  const bars = tests.map(([id, label]) => bar(label, PROXIES.map(([subject, name]) => [name, median(rows, id, subject)]))).join('\n');
  const marked = rows.filter(({ marks }) => marks?.length).flatMap(({ marks }) => marks);
  const facts = [
    ['finished', finished], ['revision', revision.commit], ['machine', `${machine.cores} cores, ${machine.cpu}, ${machine.kernel}${machine.virtualised ? ', virtual' : ''}`],
    ...Object.entries(versions), ...Object.entries(settings), ['command', `\`${command.replace(/\/\S*\//g, '')}\``],
    ['marks', Object.entries(Object.groupBy?.(marked, (m) => m) ?? marked.reduce((all, m) => ({ ...all, [m]: [...(all[m] ?? []), m] }), {})).map(([m, all]) => `${m}: ${all.length} rows`).join(', ') || 'none'],
  ];
  const body = [
    'Made by `proto_bench compare` from `website/data/compare.json`. [Method](/measure/method/) says what the figures mean.',
    '## CPU time a request\n\nMicroseconds of one core, median of the slices, with the least and the largest slice. Less is better.',
    `<div class="bars" role="img" aria-label="The figures of the table below as bars">\n${bars}\n</div>`,
    compared(({ cpu_us_per_request: c }) => (c ? `${shown(c.median)} (${shown(c.min)} to ${shown(c.max)})` : '–')),
    '## Latency\n\n99th percentile in milliseconds. Generator and backend share a core, so the percentiles show the whole chain.',
    compared(({ p99_us: p }) => (p ? shown(p.median / 1000, 2) : '–')),
    '## Memory\n\nResident MiB at the end of the test.',
    compared(({ resident_bytes: b }) => (b ? shown(b.median / 1048576) : '–')),
    `## Conditions\n\n${table(['condition', 'value'], facts.map(([key, value]) => row(key, cell(String(value)))))}`,
    notes.map((note) => `- ${cell(note).replace(/\\\|/g, '|')}`).join('\n'),
  ];
  writePage('measure/results', 'Results', 'The gateway beside nginx and HAProxy.', 1, body.join('\n\n'));
}

/** A document at the root of the sources, as a page. */
function document(file, path, title, description, order) {
  const text = readFileSync(resolve(here, '../..', file), 'utf8').replace(/^# .*\n/, '');
  const local = text.replace(/\[([^\]]+)\]\((?!https?:|#|\/)[^)]*\)/g, '`$1`');
  writePage(path, title, description, order, local);
}

const metrics = reference('metrics');
const list = reference('plugins');
mkdirSync(docs, { recursive: true });
rmSync(join(docs, 'plugins'), { recursive: true, force: true });
configuration();
plugins(list);
errorCodes(list);
warningCodes();
observation(metrics);
program();
adminApi();
results();
document('proto_bench/README.md', 'measure/proto-bench', 'proto_bench', 'A tour of the load generator.', 3);
document('website/profile.md', 'measure/profile', 'Profile', 'What a request pays for, and what measuring has taught.', 4);
document('CHANGELOG.md', 'releases/changelog', 'Changelog', 'What each version contains.', 1);
document('SECURITY.md', 'releases/security', 'Security', 'The threat model, and how to report a vulnerability.', 2);

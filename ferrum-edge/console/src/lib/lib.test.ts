import { describe, expect, test } from 'vitest';
import { pathAt } from '../ui/code-editor';
import { matchesOf, withExclusion } from '../pages/firewall';
import { fallback } from '../pages/settings';
import { diffLines, merge } from './diff';
import { cliLine, curlLine } from './commands';
import { Echoes } from './echoes';
import { percentile, quoted, seconds, span } from './format';
import { inOrder, linesOf } from './match';
import { batchOf, judge, located } from './objects';
import { choices, initial, resolve, shapeAt, variantOf, variants, widget } from './schema';
import { idOf, troubleCount, troubles } from './status';
import { History, type Sample } from './traffic';
import { diagnostics, fromYaml, objectFromYaml, parts, placeOf, pointerOf, toYaml } from './yaml';

describe('differences', () => {
  const shown = (a: string, b: string) => diffLines(a, b).map(({ kind, text }) => ({ same: ' ', add: '+', remove: '-' })[kind] + text).join('|');

  test('lines in common stay', () => {
    expect(shown('a\nb\nc\n', 'a\nx\nc\n')).toBe(' a|-b|+x| c');
    expect(shown('', 'a\n')).toBe('+a');
    expect(shown('a\n', '')).toBe('-a');
    expect(shown('a\nb\n', 'a\nb\n')).toBe(' a| b');
    expect(shown('a\nb\nc\nd\n', 'b\nd\ne\n')).toBe('-a| b|-c| d|+e');
  });

  test('what is applied to the one makes the other, whatever they are', () => {
    let seed = 7;
    const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    for (let round = 0; round < 300; round += 1) {
      const text = () => Array.from({ length: random(12) }, () => 'abc'[random(3)]).join('\n');
      const [a, b] = [text(), text()];
      const lines = diffLines(a, b);
      const side = (gone: string) => lines.filter((line) => line.kind !== gone).map((line) => line.text).join('\n');
      expect(side('add')).toBe(a);
      expect(side('remove')).toBe(b);
    }
  });

  test('changes of two people combine, and fields that both changed are named', () => {
    const base = { a: 1, b: { c: 2, d: 3 }, e: [1] };
    expect(merge(base, { ...base, a: 9 }, { ...base, b: { c: 2, d: 4 } })).toEqual({ value: { a: 9, b: { c: 2, d: 4 }, e: [1] }, conflicts: [] });
    expect(merge(base, { ...base, b: { c: 5, d: 3 } }, { ...base, b: { c: 6, d: 3 } })).toEqual({ value: { a: 1, b: { c: 5, d: 3 }, e: [1] }, conflicts: ['/b/c'] });
    expect(merge(base, { ...base, e: [1, 2] }, { ...base, e: [3] }).conflicts).toEqual(['/e']);
    const { b: _, ...less } = base;
    expect(merge(base, less, { ...base, a: 2 }).value).toEqual({ a: 2, e: [1] });
  });
});

describe('YAML', () => {
  test('objects survive the way there and back', () => {
    const object = { id: 'a', n: 1, yes: 'yes', no: false, list: ['a: b', '#', '- x', '1', ''], deep: { '~/x': null } };
    expect(fromYaml(toYaml(object))).toEqual({ value: object, errors: [] });
  });

  test('errors and duplicate keys are found where they are', () => {
    expect(fromYaml('a: [1').errors).toHaveLength(1);
    expect(fromYaml('a: 1\na: 2\n').errors[0]!.from).toBeGreaterThan(0);
    expect(fromYaml(Array.from({ length: 40 }, (_, n) => `a${n}: &a${n} [${n ? `*a${n - 1}, *a${n - 1}` : 'x'}]`).join('\n')).errors.length).toBeGreaterThan(0);
  });

  test('pointers have a place', () => {
    const text = 'id: shop\nconfig:\n  limits:\n    - rate: 5\n      per: 1m\n';
    expect(text.slice(placeOf(text, '/config/limits/0/rate').from).startsWith('rate: 5')).toBe(true);
    expect(text.slice(placeOf(text, '/config/nothing').from).startsWith('config')).toBe(true);
    expect(diagnostics(text, [{ pointer: '/id', detail: 'bad', remedy: 'good' }])[0]).toMatchObject({ from: 0, to: 2, message: 'bad (good)' });
    expect(parts(pointerOf(['a/b', '~', 0]))).toEqual(['a/b', '~', '0']);
  });

  test('completion knows where the cursor stands', () => {
    const text = 'id: x\nconfig:\n  limits:\n    - rate: 1\n      \n  limit_by: a\n';
    expect(pathAt(text, 4)).toEqual(['config', 'limits', 0]);
    expect(pathAt(text, 5)).toEqual(['config']);
    expect(pathAt(text, 0)).toEqual([]);
  });
});

describe('schemas', () => {
  const root = {
    $defs: {
      Mode: { oneOf: [{ const: 'on', type: 'string', description: 'On.' }, { const: 'off', type: 'string' }] },
      Limit: { type: 'object', required: ['rate'], properties: { rate: { type: 'integer', minimum: 1 }, mode: { $ref: '#/$defs/Mode' } } },
      Match: { anyOf: [{ type: 'string' }, { type: 'object', additionalProperties: false, properties: { exact: { type: 'string' } } }] },
    },
  };
  const shape = (schema: any) => ({ schema, root });

  test('fields have the control that fits', () => {
    expect(widget(shape({ type: ['string', 'null'] }))).toBe('text');
    expect(widget(shape({ type: ['boolean', 'null'] }))).toBe('switch');
    expect(widget(shape({ type: ['integer', 'string', 'null'], format: 'duration' }))).toBe('text');
    expect(widget(shape({ anyOf: [{ $ref: '#/$defs/Mode' }, { type: 'null' }] }))).toBe('choice');
    expect(widget(shape({ type: 'array', items: { type: 'string' } }))).toBe('texts');
    expect(widget(shape({ type: 'array', items: { $ref: '#/$defs/Limit' } }))).toBe('list');
    expect(widget(shape({ $ref: '#/$defs/Limit' }))).toBe('object');
    expect(widget(shape({ type: 'object', additionalProperties: { type: 'string' } }))).toBe('map');
    expect(widget(shape({ $ref: '#/$defs/Match' }))).toBe('variants');
    expect(widget(shape({}))).toBe('any');
  });

  test('values, variants and beginnings', () => {
    expect(choices(shape({ $ref: '#/$defs/Mode' }))).toEqual([{ value: 'on', meaning: 'On.' }, { value: 'off', meaning: '' }]);
    expect(variants(shape({ $ref: '#/$defs/Match' }))).toHaveLength(2);
    expect([variantOf(shape({ $ref: '#/$defs/Match' }), 'x'), variantOf(shape({ $ref: '#/$defs/Match' }), { exact: 'x' })]).toEqual([0, 1]);
    expect(initial(shape({ type: 'array', items: { $ref: '#/$defs/Limit' } }))).toEqual([{ rate: 1 }]);
    expect(resolve(shape({ $ref: '#/$defs/Limit', description: 'mine' })).schema.description).toBe('mine');
    expect(shapeAt(shape({ properties: { limits: { type: 'array', items: { $ref: '#/$defs/Limit' } } } }), ['limits', 0])!.schema.properties.rate).toBeDefined();
    expect(shapeAt(shape({ properties: {} }), ['a', 'b'])).toBeNull();
  });

  test('a schema that refers to itself ends', () => {
    const loop = { $defs: { A: { $ref: '#/$defs/A' } } };
    expect(widget({ schema: { $ref: '#/$defs/A' }, root: loop })).toBe('any');
  });
});

test('proxies are in the order in which they match', () => {
  const ids = (docs: any[]) => inOrder(docs.flatMap(linesOf)).map((line) => line.doc.id);
  expect(
    ids([
      { id: 'any', listen_path: '/' },
      { id: 'suffix', hosts: ['*.a.b'], listen_path: '/x' },
      { id: 'short', hosts: ['a.b'], listen_path: '/a' },
      { id: 'long', hosts: ['a.b'], listen_path: '/a/b' },
      { id: 'regex', hosts: ['a.b'], listen_path: '~/a/b/c/d' },
      { id: 'names', hosts: ['a.b'], listen_path: '/{x}' },
      { id: 'first', hosts: ['a.b'], listen_path: '/', priority: 1 },
      { id: 'whole', hosts: ['a.b'] },
    ]),
  ).toEqual(['first', 'names', 'long', 'short', 'regex', 'whole', 'suffix', 'any']);
});

test('findings of a batch go to their objects', () => {
  const { body, places } = batchOf([
    { kind: 'proxies', id: 'a', base: null, revision: null, next: { listen_path: '/' } },
    { kind: 'proxies', id: 'b', base: {}, revision: 1, next: null },
    { kind: 'plugin_configs', id: 'c', base: null, revision: null, next: { plugin_name: 'x' } },
  ]);
  expect(body).toEqual({ proxies: [{ listen_path: '/', id: 'a' }], delete: { proxies: ['b'] }, plugin_configs: [{ plugin_name: 'x', id: 'c' }] });
  const found = located([{ pointer: '/proxies/0/listen_path', detail: '1' }, { pointer: '/plugin_configs/0', detail: '2' }, { pointer: '/delete/proxies/0', detail: '3' }, { pointer: '/x', detail: '4' }], places);
  expect([...found].map(([key, list]) => [key, list[0]!.pointer])).toEqual([['proxies/a', '/listen_path'], ['plugin_configs/c', ''], ['proxies/b', ''], ['', '/x']]);
});

test('traffic is what happened between two looks', () => {
  const row = (requests: number, proxy: string | null = 'a') => ({ proxy, upstream: 'u', target: 't:1', is_rest: false, classes: [0, requests, 0, 0, 0], errors: 0, retries: 0, buckets: [requests, 0, 0], duration_seconds: 0, sessions: 0, bytes_in: 0, bytes_out: 10 * requests });
  const sample = (seconds: number, rows: any[]): Sample => ({ seconds, bounds: [0.1, 1], rows, active_requests: 1, connections: 2, revision: 1 });
  const history = new History();
  history.take(sample(0, [row(5)]), 0);
  history.take(sample(2, [row(25), row(2, null)]), 2);
  expect(history.steps).toHaveLength(1);
  expect(history.rates((step) => step.total.requests)).toEqual([11]);
  expect(history.table('proxies').map((one) => [one.name, one.requests])).toEqual([['a', 20], ['', 2]]);
  // A gateway that counts anew is no negative traffic.
  history.take(sample(1, [row(1)]), 4);
  expect(history.steps).toHaveLength(1);
});

test('numbers and words', () => {
  expect([seconds(0.0004), seconds(0.0123), seconds(2.5), seconds(null), span(90061)]).toEqual(['400 µs', '12 ms', '2.5 s', '–', '1 d 1 h']);
  expect(percentile([1, 2], [0, 10, 0], 0.5)).toBe(1.5);
  expect(percentile([1, 2], [0, 0, 0], 0.5)).toBeNull();
  expect(quoted("it's $HOME `id`")).toBe(`'it'\\''s $HOME \`id\`'`);
  expect(quoted('/a-b.c')).toBe('/a-b.c');
});

test('commands are quoted, and contain no secret', () => {
  const origin = 'http://127.0.0.1:9000';
  expect(curlLine(origin, { method: 'DELETE', path: '/v1/users/ann' })).toBe(`curl -X DELETE http://127.0.0.1:9000/v1/users/ann \\\n  -H "Authorization: Bearer $FERRUM_ADMIN_TOKEN"`);
  expect(curlLine(origin, { method: 'PATCH', path: '/v1/x', body: { name: "it's `id`" } })).toContain(`-d '{"name":"it'\\''s \`id\`"}'`);
  const secret = curlLine(origin, { method: 'POST', path: '/v1/x', body: { a: 1 }, secrets: { old: 'OLD_PASSWORD' } });
  expect(secret).toMatch(/^jq -n '\{ a: 1, old: env\.OLD_PASSWORD \}' \| curl -X POST /);
  expect(secret).toMatch(/-d @-$/);
  expect(cliLine(origin, { words: ['fleet', 'assign', 'eu', 'eu-*'] })).toBe("ferrum-edge fleet assign eu 'eu-*' --admin http://127.0.0.1:9000");
  expect(cliLine(origin, { words: ['apply'], document: { note: 'EOF' } })).toMatch(/^cat > change\.yaml <<'EOF'\nnote: EOF\nEOF\nferrum-edge apply change\.yaml --admin /);
  expect(cliLine(origin, { words: ['apply'], document: 'a\nEOF\nb' })).not.toContain("<<'EOF'");
});

test('what needs attention leads to its object', () => {
  const one = (level: string, code: string, about: string) => ({ level, code, about, message: 'm', remedy: 'r' });
  const cases = [
    ['proxy_closed', 'proxies.shop.v2', '#/routes/shop.v2'],
    ['target_failing', 'proxies.shop.v2 10.0.0.1:80', '#/routes/shop.v2'],
    ['target_unhealthy', 'upstreams.u a:1', '#/upstreams/u'],
    ['placeholder', 'plugin_configs.acl.config.groups', '#/plugins/acl'],
    ['consumer_unusable', 'consumers.ann', '#/consumers/ann'],
    ['certificate_expired', 'gateway.tls.certificates[0]', '#/certificates'],
    ['no_proxies', 'proxies', '#/routes/new'],
    ['redis_down', 'gateway.redis.main', undefined],
    ['draining', '', undefined],
  ] as const;
  const list = troubles({ problems: { errors: 1, warnings: 300, list: cases.map(([code, about], n) => one(n ? 'warning' : 'error', code, about)) } });
  expect(list.map((it) => it.link)).toEqual(cases.map(([, , link]) => link));
  expect(list[0]).toEqual({ kind: 'bad', text: 'proxies.shop.v2: m', detail: 'r', link: '#/routes/shop.v2', code: 'proxy_closed' });
  expect(list[8]!.text).toBe('m');
  expect(troubleCount({ problems: { errors: 1, warnings: 300, list: [] } })).toEqual({ errors: 1, all: 301 });
  expect(troubles(null)).toEqual([]);
  expect(idOf('proxies.shop-old', 'proxies')).toBe('shop-old');
});

test('a record becomes an exclusion of its rules for its path and fields', () => {
  const text = "1000400 SQL in a value (ARGS:id: 1' or 1=1--); 1000404 SQL condition (ARGS:id: (x); y); 1000900 The score 13 has reached the threshold (TX:inbound_anomaly_score_pl1: 13)";
  expect(matchesOf(text).map((match) => [match.rule, match.target])).toEqual([['1000400', 'ARGS:id'], ['1000404', 'ARGS:id'], ['1000900', 'TX:inbound_anomaly_score_pl1']]);
  expect(withExclusion({ config: { mode: 'detect' } }, { 'waf.matches': text, 'url.path': '/a' })).toEqual({ config: { mode: 'detect', exclusions: [{ when: { path: { exact: '/a' } }, rules: ['1000400', '1000404'], targets: ['ARGS:id'] }] } });
});

test('only a draft without any problem is valid', () => {
  const at = (pointer: string) => ({ pointer, detail: 'd' });
  const { places } = batchOf([{ kind: 'proxies', id: 'a', base: null, revision: null, next: {} }, { kind: 'proxies', id: 'b', base: null, revision: null, next: {} }]);
  const cases = [
    [[], '', 'valid', 0, ''],
    [[at('/proxies/0/id')], 'x', 'wrong', 1, ''],
    [[at('/id')], 'x', 'wrong', 0, 'd'],
    [[], 'The database is away', 'wrong', 0, 'The database is away'],
    [[at('/proxies/1/id')], 'x', 'others', 0, ''],
  ] as const;
  for (const [errors, general, verdict, own, told] of cases) {
    const judged = judge({ errors: located([...errors], places), general, etag: null, summary: null }, 'proxies/a');
    expect([judged.verdict, judged.errors.length, judged.general]).toEqual([verdict, own, told]);
  }
});

test('a stored object keeps its id, and only fields of an object are read', () => {
  const cases = [
    ['id: a\nname: x', 'a', { id: 'a', name: 'x' }],
    ['name: x', 'a', { id: 'a', name: 'x' }],
    ['id: b\nname: x', 'a', null],
    ['id: b', null, { id: 'b' }],
    ['- a', 'a', null],
    ['text', null, null],
    ['', 'a', null],
    ['a: [', 'a', null],
  ] as const;
  for (const [text, id, value] of cases) {
    const parsed = objectFromYaml(text, id);
    expect(parsed.value).toEqual(value);
    expect(parsed.errors.length > 0).toBe(value === null);
  }
  expect(objectFromYaml('name: x\nid: b', 'a').errors[0]).toMatchObject({ from: 8, to: 10 });
});

test('a default is read to its end', () => {
  const cases = [
    ['Serves HTTP/3. Default false.', 'false'],
    ['Its document. Default: the issuer and `/.well-known/openid-configuration`.', 'the issuer and /.well-known/openid-configuration'],
    ['Share. Default 0.5, at most 1.', '0.5'],
    ['Listener. Default `127.0.0.1:9000`: this machine only.', '127.0.0.1:9000'],
    ['Required.', '–'],
  ];
  for (const [meaning, value] of cases) expect(fallback({ meaning } as any)).toBe(value);
});

test('an editor recognises the text that its user typed, however late it returns', () => {
  const rows: [typed: string[], comes: string[], own: boolean[]][] = [
    [['a', 'ab', 'abc'], ['a', 'ab', 'abc'], [true, true, true]],
    [['a', 'ab', 'abc'], ['abc', 'a'], [true, false]],
    [['a', 'ab'], ['from the form', 'a'], [false, false]],
    [['a', 'ab', 'a'], ['a', 'from the form'], [true, false]],
    [[], ['a'], [false]],
  ];
  for (const [typed, comes, own] of rows) {
    const echoes = new Echoes();
    typed.forEach((text) => echoes.typed(text));
    expect(comes.map((text) => echoes.receive(text)), `${typed} ${comes}`).toEqual(own);
  }
});

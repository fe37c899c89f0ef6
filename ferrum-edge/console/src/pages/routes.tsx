// Proxies: in the order in which they match, or by host; and one of them.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { type Line, inOrder, isStream, linesOf, targetOf } from '../lib/match';
import { type Doc, drafted, inDraft, plugins, shelf, want } from '../lib/objects';
import { href, place } from '../lib/router';
import { closedProxies, shadowed, status } from '../lib/status';
import { t } from '../strings';
import { Dot, Notice, Page, Panel, ReadOnly, Tag } from '../ui/basics';
import { useAsk } from '../ui/hooks';
import { List, byText } from '../ui/list';
import { seconds } from '../lib/format';
import { explainRecord } from './logs';
import { ObjectPage } from './object';
import { Protect } from './protect';

export function Routes() {
  const { parts, query } = place.value;
  if (parts[0] === 'new') return <Proxy id={null} begin={{ listen_path: '/', ...Object.fromEntries(query) }} />;
  if (parts[0]) return <Proxy id={parts[0]} />;
  return <All />;
}

interface Shown extends Line {
  state: 'ok' | 'shadowed' | 'closed' | 'draft';
  why: string;
  names: string[];
}

export const pluginsOf = (doc: Doc, configs: Doc[]): Doc[] =>
  configs.filter((one) => one.enabled !== false && (one.scope === 'global' || one.proxy_id === doc.id || (doc.plugins ?? []).some((named: any) => named === one.id || named?.plugin_config_id === one.id || named?.id === one.id)));

function All() {
  want('proxies', 'plugin_configs');
  const [text, setText] = useState('');
  const [byHost, setByHost] = useState(false);
  const { loading, error } = shelf('proxies');
  const proxies = drafted('proxies');
  const configs = drafted('plugin_configs');
  const now = status.value;
  const lines = useMemo(() => inOrder(proxies.flatMap(linesOf)), [proxies]);
  const byProxy = useMemo(() => {
    const own = new Map<string, string[]>();
    for (const one of configs) {
      if (one.enabled === false) continue;
      if (one.scope === 'proxy' && one.proxy_id) own.set(one.proxy_id, [...(own.get(one.proxy_id) ?? []), one.plugin_name]);
    }
    return own;
  }, [configs]);
  const groups = useMemo(() => new Map(configs.map((one) => [one.id, one])), [configs]);
  const dark = shadowed(now);
  const closed = closedProxies(now);
  const wanted = text.trim().toLowerCase();
  const owner = place.value.query.getAll('owner');
  const rows = useMemo(() => {
    const owned = owner.length ? lines.filter((line) => owner.includes(line.doc.owner)) : lines;
    const found = wanted ? owned.filter((line) => `${line.doc.id} ${line.doc.name ?? ''} ${line.doc.owner ?? ''} ${line.host} ${line.path} ${targetOf(line.doc)} ${(byProxy.get(line.doc.id) ?? []).join(' ')}`.toLowerCase().includes(wanted)) : owned;
    return found.map((line): Shown => {
      const id = line.doc.id;
      const named = (line.doc.plugins ?? []).map((one: any) => groups.get(typeof one === 'string' ? one : (one.plugin_config_id ?? one.id))?.plugin_name ?? one.plugin_name).filter(Boolean);
      const state = closed.has(id) ? 'closed' : dark.has(id) ? 'shadowed' : inDraft('proxies', id) ? 'draft' : 'ok';
      return { ...line, state, why: closed.get(id) ?? dark.get(id) ?? '', names: [...(byProxy.get(id) ?? []), ...named] };
    });
  }, [lines, wanted, byProxy, groups, now, owner.join()]);
  const sorted = useMemo(() => (byHost ? rows.slice().sort(byText((row) => `${row.host || '\uffff'} ${row.path}`)) : rows), [rows, byHost]);
  const r = t.routes;
  const access = (row: Shown) => row.names.filter((name) => /_auth$|^oidc$|introspection|access_control/.test(name)).join(', ') || r.everybody;
  return (
    <Page
      title={r.title}
      lead={r.lead}
      actions={
        canEdit() && (
          <a class="button primary" href={href('routes', 'new')}>
            {r.add}
          </a>
        )
      }
    >
      <ReadOnly />
      {error && <Notice kind="bad">{error}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <div class="segmented" role="group" aria-label={r.title}>
          <button type="button" aria-pressed={!byHost} onClick={() => setByHost(false)}>
            {r.byOrder}
          </button>
          <button type="button" aria-pressed={byHost} onClick={() => setByHost(true)}>
            {r.byHost}
          </button>
        </div>
        {owner.length > 0 && (
          <a class="button" href={href('routes')}>
            {`${r.owner}: ${owner[0]} ✕`}
          </a>
        )}
        <span class="muted" role="status">
          {loading && !proxies.length ? t.loading : r.of(sorted.length, lines.length)}
          {loading && proxies.length > 0 && ' …'}
        </span>
      </div>
      <div class="fill">
        <List<Shown>
          label={r.title}
          rows={sorted}
          id={(row) => `${row.doc.id} ${row.host} ${row.path}`}
          mark={(row) => (row.state === 'shadowed' ? 'faded' : '')}
          empty={loading ? t.loading : wanted ? r.emptyFilter : r.empty}
          columns={[
            { name: 'state', title: r.state, width: '7.5rem', cell: (row) => <State row={row} />, sort: byText((row) => row.state) },
            { name: 'host', title: r.host, width: '1.5fr', cell: (row) => row.host || <span class="muted">{r.anyHost}</span>, sort: byHost ? byText((row) => row.host) : undefined },
            { name: 'path', title: r.path, width: '1.2fr', cell: (row) => (row.path ? <code>{row.path}</code> : <span class="muted">{r.anyPath}</span>) },
            { name: 'id', title: t.now.proxy, width: '1.3fr', cell: (row) => <a href={href('routes', row.doc.id)}>{row.doc.name || row.doc.id}</a>, sort: byText((row) => row.doc.id) },
            { name: 'to', title: r.to, width: '1.4fr', minor: true, cell: (row) => (row.doc.upstream_id ? <a href={href('upstreams', row.doc.upstream_id)}>{row.doc.upstream_id}</a> : targetOf(row.doc)), sort: byText((row) => targetOf(row.doc)) },
            ...(byHost
              ? [
                  { name: 'who', title: r.protect, width: '1.3fr', minor: true, cell: access },
                  { name: 'certificate', title: r.certificate, width: '1fr', minor: true, cell: (row: Shown) => <Certificate host={row.host} /> },
                ]
              : [{ name: 'plugins', title: r.plugins, width: '1.3fr', minor: true, cell: (row: Shown) => <span title={row.names.join(', ')}>{row.names.join(', ') || <span class="muted">–</span>}</span> }]),
          ]}
        />
      </div>
    </Page>
  );
}

/** The certificate that the gateway orders for a host; others come from files, whose names it does not tell. */
function Certificate({ host }: { host: string }) {
  const fits = (name: string) => name === host || (name.startsWith('*.') && host.endsWith(name.slice(1)) && !host.slice(0, -name.length + 1).includes('.'));
  const found = host && status.value?.acme?.list?.find((one: any) => one.names.some(fits));
  if (!found) return <span class="muted">–</span>;
  return (
    <a href={href('certificates')} title={found.problem ?? ''}>
      <Dot kind={found.problem ? 'bad' : 'good'} label={found.status} />
    </a>
  );
}

function State({ row }: { row: Shown }) {
  const r = t.routes;
  const [kind, label] = { ok: ['good', r.ok], shadowed: ['warn', r.shadowed], closed: ['bad', r.closed], draft: ['info', t.draft.update] }[row.state] as [string, string];
  return (
    <span title={row.why}>
      <Dot kind={kind} label={label} />
    </span>
  );
}

const COMMON = ['id', 'name', 'hosts', 'listen_path', 'backend_scheme', 'backend_host', 'backend_port', 'upstream_id', 'strip_listen_path'];

function Proxy({ id, begin }: { id: string | null; begin?: Doc }) {
  want('proxies', 'plugin_configs', 'upstreams');
  return (
    <ObjectPage
      kind="proxies"
      id={id}
      title={t.routes.add}
      begin={begin}
      common={COMMON}
      back="routes"
      before={(doc) => (id && <Closed id={doc.id ?? id} />) || null}
      aside={(doc) => id !== null && <ProxySide doc={{ ...doc, id }} />}
    />
  );
}

function Closed({ id }: { id: string }) {
  const closed = closedProxies(status.value).get(id);
  const dark = shadowed(status.value).get(id);
  if (closed) return <Notice kind="bad">{`${t.routes.isClosed(id)}: ${closed}`}</Notice>;
  return dark ? <Notice kind="warn">{dark}</Notice> : null;
}

function ProxySide({ doc }: { doc: Doc }) {
  const r = t.routes;
  const mine = pluginsOf(doc, drafted('plugin_configs'));
  const order = new Map(plugins.value.map((one, n) => [one.name, n]));
  mine.sort((a, b) => (order.get(a.plugin_name) ?? 0) - (order.get(b.plugin_name) ?? 0));
  const [protecting, setProtecting] = useState(false);
  const effective = useAsk<any>(inDraft('proxies', doc.id)?.base === null ? null : `/v1/proxies/${encodeURIComponent(doc.id)}/effective`, 5000);
  return (
    <>
      <Panel
        title={r.pluginsOf}
        actions={
          canEdit() && (
            <>
              <button type="button" class="small" aria-label={t.access.protectTitle(doc.id)} onClick={() => setProtecting(true)}>
                {t.access.protect}
              </button>
              <a class="button small" href={`${href('plugins', 'new')}?proxy=${encodeURIComponent(doc.id)}`}>
                {r.addPlugin}
              </a>
            </>
          )
        }
      >
        {!mine.length && <p class="muted">{canEdit() ? r.noPlugins : t.none}</p>}
        <ul class="plain">
          {mine.map((one) => (
            <li>
              <a href={href('plugins', one.id)}>{one.plugin_name}</a> <span class="muted">{one.id}</span> {one.scope === 'global' && <Tag>{t.plugins.global}</Tag>} {inDraft('plugin_configs', one.id) && <Tag kind="warn">{t.draft.unsaved}</Tag>}
            </li>
          ))}
        </ul>
      </Panel>
      {protecting && <Protect doc={doc} close={() => setProtecting(false)} />}
      {effective.data && <Effective data={effective.data} />}
      {!isStream(doc) && (
        <Panel title={t.explain.title}>
          <p>{t.explain.fromProxy}</p>
          <button type="button" class="small" onClick={() => explainRecord({ kind: 'question', 'http.request.method': 'GET', 'server.address': (doc.hosts?.[0] ?? location.hostname).replace(/^\*/, 'x'), 'url.path': pathOf(doc) })}>
            {t.explain.ask}
          </button>
        </Panel>
      )}
    </>
  );
}

/** A path that the proxy probably takes. */
const pathOf = (doc: Doc): string => (typeof doc.listen_path === 'string' && doc.listen_path.startsWith('/') ? doc.listen_path.replace(/[{}]|\.\.\./g, '') : '/');

function Effective({ data }: { data: any }) {
  const { backend } = data;
  const times = data.timeouts ?? data.timeouts_ms;
  return (
    <Panel title={t.routes.effective}>
      <dl>
        <dt>{t.routes.to}</dt>
        <dd>
          {backend.scheme}, HTTP {backend.http_version}, {backend.algorithm}
        </dd>
        <dt>{t.upstreams.targets}</dt>
        <dd>
          <ul class="plain">
            {backend.targets.slice(0, 20).map((one: any) => (
              <li>
                <Dot kind={one.healthy ? 'good' : 'bad'} label={one.address} /> <span class="muted">{one.latency_seconds === null ? '' : seconds(one.latency_seconds)}</span>
              </li>
            ))}
          </ul>
        </dd>
        <dt>Timeouts</dt>
        <dd>{Object.entries<number>(times ?? {}).map(([name, ms]) => `${name} ${ms ? seconds(ms / 1000) : 'off'}`).join(', ')}</dd>
        <dt>Retries</dt>
        <dd>{data.retry?.max_retries ?? 0}</dd>
        <dt>{t.routes.plugins}</dt>
        <dd>{data.plugins.map((one: any) => one.plugin_name).join(' → ') || t.none}</dd>
      </dl>
    </Panel>
  );
}

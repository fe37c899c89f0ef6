// Who may reach which path, from the plugins that recognise callers and let them pass, and a way to protect a path.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { inOrder, linesOf } from '../lib/match';
import { type Doc, drafted, shelf, want } from '../lib/objects';
import { href } from '../lib/router';
import { t } from '../strings';
import { Notice, Page, ReadOnly, Tag } from '../ui/basics';
import { List, byText } from '../ui/list';
import { Protect } from './protect';
import { pluginsOf } from './routes';

const RECOGNISE = ['key_auth', 'basic_auth', 'jwt_auth', 'jwks_auth', 'hmac_auth', 'mtls_auth', 'ldap_auth', 'oidc', 'oauth2_introspection', 'forward_auth'];
const RESTRICT = ['ip_restriction', 'geo_restriction', 'bot_detection'];
const LIMIT = ['rate_limiting', 'quota', 'concurrency_limiting'];

interface Row {
  id: string;
  doc: Doc;
  where: string;
  auth: Doc[];
  acl: Doc[];
  limits: Doc[];
  restrict: Doc[];
}

export function Access() {
  want('proxies', 'plugin_configs', 'consumers');
  const [text, setText] = useState('');
  const [protecting, setProtecting] = useState<Doc | null>(null);
  const proxies = drafted('proxies');
  const configs = drafted('plugin_configs');
  const consumers = drafted('consumers');
  const groups = useMemo(() => new Set(consumers.flatMap((one) => one.acl_groups ?? [])), [consumers]);
  const names = useMemo(() => new Set(consumers.map((one) => one.username)), [consumers]);
  const byProxy = useMemo(() => {
    const own = new Map<string, Doc[]>();
    for (const one of configs) if (one.proxy_id) own.set(one.proxy_id, [...(own.get(one.proxy_id) ?? []), one]);
    return own;
  }, [configs]);
  const shared = useMemo(() => configs.filter((one) => !one.proxy_id), [configs]);
  const rows = useMemo(
    () =>
      inOrder(proxies.flatMap(linesOf)).map((line): Row => {
        const mine = pluginsOf(line.doc, [...(byProxy.get(line.doc.id) ?? []), ...shared]);
        const pick = (list: string[]) => mine.filter((one) => list.includes(one.plugin_name));
        return { id: `${line.doc.id} ${line.host} ${line.path}`, doc: line.doc, where: `${line.host || t.routes.anyHost}${line.isStream || !line.host || !line.path ? ' ' : ''}${line.path || t.routes.anyPath}`, auth: pick(RECOGNISE), acl: pick(['access_control']), limits: pick(LIMIT), restrict: pick(RESTRICT) };
      }),
    [proxies, byProxy, shared],
  );
  const wanted = text.trim().toLowerCase();
  const shown = useMemo(() => rows.filter((row) => `${row.where} ${row.doc.id} ${JSON.stringify([row.auth.map((one) => one.plugin_name), row.acl.map((one) => one.config)])}`.toLowerCase().includes(wanted)), [rows, wanted]);
  const a = t.access;
  return (
    <Page title={a.title} lead={a.lead}>
      <ReadOnly />
      {shelf('proxies').error && <Notice kind="bad">{shelf('proxies').error}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <span class="muted" role="status">{t.routes.of(shown.length, rows.length)}</span>
      </div>
      <div class="fill">
        <List<Row>
          label={a.title}
          rows={shown}
          id={(row) => row.id}
          empty={shelf('proxies').loading ? t.loading : t.routes.empty}
          columns={[
            { name: 'where', title: a.path, width: '2fr', narrow: '2.2fr', cell: (row) => <a href={href('routes', row.doc.id)}>{row.where}</a>, sort: byText((row) => row.where) },
            { name: 'auth', title: a.recognised, width: '1.4fr', narrow: '1.5fr', cell: (row) => (row.auth.length ? row.auth.map((one) => <Chip one={one} />) : <span class="muted">–</span>), sort: byText((row) => row.auth.map((one) => one.plugin_name).join()) },
            { name: 'allowed', title: a.allowed, width: '1.8fr', cell: (row) => <Allowed row={row} groups={groups} names={names} /> },
            { name: 'limits', title: a.limits, width: '1.2fr', minor: true, cell: (row) => [...row.limits, ...row.restrict].map((one) => <Chip one={one} />) },
            ...(canEdit() ? [{ name: 'do', title: '', width: '6rem', narrow: '4rem', right: true, cell: (row: Row) => <button type="button" class="small" aria-label={a.protectTitle(row.doc.id)} onClick={() => setProtecting(row.doc)}>{a.protect}</button> }] : []),
          ]}
        />
      </div>
      {protecting && <Protect doc={protecting} close={() => setProtecting(null)} />}
    </Page>
  );
}

function Chip({ one }: { one: Doc }) {
  return (
    <a class="tag" href={href('plugins', one.id)} title={one.when ? `${t.access.conditions} ${JSON.stringify(one.when)}` : one.id}>
      {one.plugin_name}
      {one.when && ' *'}
    </a>
  );
}

function Allowed({ row, groups, names }: { row: Row; groups: Set<string>; names: Set<string> }) {
  const a = t.access;
  if (!row.acl.length) return row.auth.length ? <span>{a.anyConsumer}</span> : <span class="muted">{a.open}</span>;
  return (
    <>
      {row.acl.flatMap((one) => [
        ...(one.config?.allowed_groups ?? []).map((group: string) => <Tag kind={groups.has(group) ? 'good' : 'warn'} title={groups.has(group) ? '' : a.nobodyKnown}>{group}</Tag>),
        ...(one.config?.allowed_consumers ?? []).map((name: string) => <Tag kind={names.has(name) ? 'info' : 'warn'} title={names.has(name) ? '' : a.nobodyKnown}>{name}</Tag>),
        ...[...(one.config?.disallowed_groups ?? []), ...(one.config?.disallowed_consumers ?? [])].map((name: string) => <Tag kind="bad">{`not ${name}`}</Tag>),
        ...(one.config?.allow_authenticated_identity ? [<span>{a.anyConsumer}</span>] : []),
      ])}
    </>
  );
}

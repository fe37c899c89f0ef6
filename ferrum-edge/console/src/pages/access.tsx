// Who may reach which path, from the plugins that recognise callers and let them pass, and a way to protect a path.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { inOrder, linesOf } from '../lib/match';
import { type Doc, drafted, propose, shelf, want } from '../lib/objects';
import { href } from '../lib/router';
import { t } from '../strings';
import { Dialog, Field, Notice, Page, ReadOnly, Tag } from '../ui/basics';
import { lines } from '../ui/form';
import { useId } from '../ui/hooks';
import { List, byText } from '../ui/list';
import { freshId } from './object';
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
        return { id: `${line.doc.id} ${line.host} ${line.path}`, doc: line.doc, where: `${line.host || t.routes.anyHost}${line.isStream ? ' ' : ''}${line.path || ` ${t.routes.anyPath}`}`, auth: pick(RECOGNISE), acl: pick(['access_control']), limits: pick(LIMIT), restrict: pick(RESTRICT) };
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
            { name: 'where', title: a.path, width: '2fr', cell: (row) => <a href={href('routes', row.doc.id)}>{row.where}</a>, sort: byText((row) => row.where) },
            { name: 'auth', title: a.recognised, width: '1.4fr', cell: (row) => (row.auth.length ? row.auth.map((one) => <Chip one={one} />) : <span class="muted">–</span>), sort: byText((row) => row.auth.map((one) => one.plugin_name).join()) },
            { name: 'allowed', title: a.allowed, width: '1.8fr', cell: (row) => <Allowed row={row} groups={groups} names={names} /> },
            { name: 'limits', title: a.limits, width: '1.2fr', minor: true, cell: (row) => [...row.limits, ...row.restrict].map((one) => <Chip one={one} />) },
            ...(canEdit() ? [{ name: 'do', title: '', width: '6rem', right: true, cell: (row: Row) => <button type="button" class="small" aria-label={a.protectTitle(row.doc.id)} onClick={() => setProtecting(row.doc)}>{a.protect}</button> }] : []),
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

function Protect({ doc, close }: { doc: Doc; close: () => void }) {
  const a = t.access;
  const id = useId();
  const [how, setHow] = useState('key_auth');
  const [groups, setGroups] = useState('');
  const [consumers, setConsumers] = useState('');
  const [path, setPath] = useState('');
  const [rate, setRate] = useState('');
  const known = drafted('consumers');
  const add = (plugin: string, config: Doc) => {
    const name = `${doc.id}-${plugin.replace(/_/g, '-')}-${freshId().slice(0, 4)}`;
    const when = path.trim() ? { when: { path: path.trim() } } : {};
    propose({ kind: 'plugin_configs', id: name, base: null, revision: null, next: { id: name, plugin_name: plugin, scope: 'proxy', proxy_id: doc.id, config, ...when } });
  };
  const submit = (event: Event) => {
    event.preventDefault();
    add(how, {});
    const [allowed_groups, allowed_consumers] = [lines(groups), lines(consumers)];
    if (allowed_groups.length || allowed_consumers.length) {
      add('access_control', { ...(allowed_groups.length ? { allowed_groups } : {}), ...(allowed_consumers.length ? { allowed_consumers } : {}) });
    }
    if (Number(rate) > 0) add('rate_limiting', { limits: [{ rate: Number(rate), per: '1m' }], limit_by: 'consumer' });
    close();
    location.hash = href('review').slice(1);
  };
  return (
    <Dialog title={a.protectTitle(doc.id)} close={close}>
      <form onSubmit={submit}>
        <Field label={a.how} id={`${id}how`}>
          <select id={`${id}how`} value={how} onChange={(event) => setHow(event.currentTarget.value)}>
            {['key_auth', 'basic_auth', 'jwt_auth', 'hmac_auth', 'mtls_auth'].map((name) => (
              <option>{name}</option>
            ))}
          </select>
        </Field>
        <Field label={a.groups} hint={a.groupsHint} id={`${id}groups`}>
          <textarea id={`${id}groups`} rows={2} value={groups} onInput={(event) => setGroups(event.currentTarget.value)} placeholder={[...new Set(known.flatMap((one) => one.acl_groups ?? []))].slice(0, 3).join(', ')} />
        </Field>
        <Field label={a.consumers} id={`${id}consumers`}>
          <textarea id={`${id}consumers`} rows={2} value={consumers} onInput={(event) => setConsumers(event.currentTarget.value)} placeholder={known.slice(0, 3).map((one) => one.username).join(', ')} />
        </Field>
        <Field label={a.pathOnly} hint={a.pathHint} id={`${id}path`}>
          <input id={`${id}path`} type="text" value={path} placeholder="/admin" onInput={(event) => setPath(event.currentTarget.value)} />
        </Field>
        <Field label={a.rate} hint={a.rateHint} id={`${id}rate`}>
          <input id={`${id}rate`} type="number" min="1" value={rate} onInput={(event) => setRate(event.currentTarget.value)} />
        </Field>
        <div class="actions">
          <button type="button" onClick={close}>
            {t.cancel}
          </button>
          <button type="submit" class="primary">
            {a.make}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

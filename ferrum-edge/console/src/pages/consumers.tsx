// Consumers, their groups and credentials.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { bytes } from '../lib/format';
import { type Doc, drafted, shelf, want } from '../lib/objects';
import { href, place } from '../lib/router';
import { t } from '../strings';
import { Copy, Notice, Page, Panel, ReadOnly, Tag } from '../ui/basics';
import { useAsk } from '../ui/hooks';
import { List, byText } from '../ui/list';
import { ObjectPage } from './object';

export function Consumers() {
  const { parts } = place.value;
  want('consumers', 'proxies');
  if (parts[0]) {
    const id = parts[0] === 'new' ? null : parts[0];
    return (
      <ObjectPage kind="consumers" id={id} title={t.consumers.add} begin={{ username: '' }} common={['id', 'username', 'acl_groups']} hidden={['credentials']} back="consumers" aside={(doc, set, locked) => (
          <>
            <Credentials doc={doc} set={set} locked={locked} />
            {id && <Limits doc={doc} />}
          </>
        )}
      />
    );
  }
  return <All />;
}

function All() {
  const [text, setText] = useState('');
  const { loading, error } = shelf('consumers');
  const all = drafted('consumers');
  const proxies = drafted('proxies');
  const owned = useMemo(() => owners(proxies), [proxies]);
  const wanted = text.trim().toLowerCase();
  const rows = useMemo(() => all.filter((one) => `${one.id} ${one.username ?? ''} ${one.custom_id ?? ''} ${(one.acl_groups ?? []).join(' ')}`.toLowerCase().includes(wanted)), [all, wanted]);
  const c = t.consumers;
  return (
    <Page title={c.title} lead={c.lead} actions={canEdit() && <a class="button primary" href={href('consumers', 'new')}>{c.add}</a>}>
      <ReadOnly />
      {error && <Notice kind="bad">{error}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <span class="muted" role="status">{t.routes.of(rows.length, all.length)}</span>
      </div>
      <div class="fill">
        <List<Doc>
          label={c.title}
          rows={rows}
          id={(row) => row.id}
          empty={loading ? t.loading : wanted ? t.routes.emptyFilter : c.empty}
          columns={[
            { name: 'username', title: c.username, width: '1.5fr', cell: (row) => <a href={href('consumers', row.id)}>{row.username || row.id}</a>, sort: byText((row) => row.username ?? row.id) },
            { name: 'groups', title: c.groups, width: '1.5fr', cell: (row) => (row.acl_groups ?? []).map((group: string) => <Tag>{group}</Tag>), sort: byText((row) => (row.acl_groups ?? []).join()) },
            { name: 'credentials', title: c.credentials, width: '1.5fr', cell: (row) => Object.keys(row.credentials ?? {}).map((name) => <Tag kind="info">{name}</Tag>) },
            {
              name: 'owns',
              title: c.owns,
              width: '6.5rem',
              minor: true,
              cell: (row) => {
                const names = namesOf(row);
                const n = names.reduce((sum, name) => sum + (owned.get(name) ?? 0), 0);
                return n > 0 ? <a href={`${href('routes')}?${names.map((name) => `owner=${encodeURIComponent(name)}`).join('&')}`}>{c.proxies(n)}</a> : <span class="muted">–</span>;
              },
            },
            { name: 'sessions', title: '', width: '9rem', minor: true, cell: (row) => <a href={`${href('sessions')}?consumer=${encodeURIComponent(row.username ?? '')}`}>{c.sessions}</a> },
          ]}
        />
      </div>
    </Page>
  );
}

interface Used {
  plugin_config: string;
  keys: { key: string; used: number; limit: number | null; period_ends: number | null; closed: boolean }[];
}

/** What the consumer has used of the quotas that count it by name. */
function Limits({ doc }: { doc: Doc }) {
  const c = t.consumers;
  const { data, error } = useAsk<{ items: Used[] }>('/v1/usage', 5000);
  const names = namesOf(doc);
  const rows = (data?.items ?? []).flatMap((one) => one.keys.filter((key) => names.includes(key.key)).map((key) => ({ ...key, config: one.plugin_config })));
  return (
    <Panel title={c.limits}>
      {error && <p class="muted">{error}</p>}
      {!rows.length && !error && <p class="muted">{t.none}</p>}
      <ul class="plain">
        {rows.map((row) => (
          <li>
            <a href={href('plugins', row.config)}>{row.config}</a> <span>{row.limit === null ? bytes(row.used) : c.usedOf(bytes(row.used), bytes(row.limit))}</span>{' '}
            {row.closed && <Tag kind="bad">{c.exhausted}</Tag>}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** The names by which proxies name their owner. */
const namesOf = (doc: Doc): string[] => [...new Set([doc.id, doc.username, doc.custom_id].filter(Boolean))];

/** How many proxies name each owner. */
function owners(proxies: Doc[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { owner } of proxies) if (owner) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  return counts;
}

const secret = (bytes: number): string => btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(bytes)))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

/** Adds a secret that shows until the draft is applied, and never again. */
function Credentials({ doc, set, locked }: { doc: Doc; set: (doc: Doc) => void; locked: boolean }) {
  const c = t.consumers;
  const all: Record<string, any> = doc.credentials ?? {};
  const add = (type: string, value: any) => {
    const before = all[type];
    const list = before === undefined ? [] : Array.isArray(before) ? before : [typeof before === 'string' ? plainOf(type, before) : before];
    set({ ...doc, credentials: { ...all, [type]: list.length ? [...list, value] : value } });
  };
  const remove = (type: string, n: number) => {
    const list = ([] as any[]).concat(all[type]).filter((_, at) => at !== n);
    const { [type]: _, ...rest } = all;
    set({ ...doc, credentials: list.length ? { ...rest, [type]: list.length === 1 ? list[0] : list } : rest });
  };
  return (
    <Panel title={c.credentials}>
      {!Object.keys(all).length && <p class="muted">{t.none}</p>}
      <ul class="plain credentials">
        {Object.entries(all).flatMap(([type, value]) =>
          ([] as any[]).concat(value).map((one, n) => {
            const shown = typeof one === 'string' ? one : (one?.key ?? one?.password ?? one?.secret);
            return (
              <li>
                <div>
                  <strong>{type}</strong> {one?.fingerprint && <code title="fingerprint">{one.fingerprint}</code>}
                  {one?.identity && <code>{one.identity}</code>}
                  {!locked && (
                    <button type="button" class="quiet small" aria-label={`${t.remove}: ${type} ${n + 1}`} onClick={() => remove(type, n)}>
                      ✕
                    </button>
                  )}
                </div>
                {shown && (
                  <>
                    <div class="row secret">
                      <code>{shown}</code>
                      <Copy text={shown} />
                    </div>
                    <p class="hint">{c.once}</p>
                    {c.sentAs[type] && (
                      <p class="hint">
                        {c.sends} <code>{c.sentAs[type]!(doc.username || 'NAME')}</code>
                      </p>
                    )}
                  </>
                )}
              </li>
            );
          }),
        )}
      </ul>
      {!locked && (
        <div class="row wrap">
          <button type="button" class="small" onClick={() => add('key_auth', { key: secret(24) })}>{c.newKey}</button>
          <button type="button" class="small" onClick={() => add('basic_auth', { password: secret(18) })}>{c.newPassword}</button>
          <button type="button" class="small" onClick={() => add('hmac_auth', { secret: secret(32) })}>{c.newSecret}</button>
        </div>
      )}
    </Panel>
  );
}

const plainOf = (type: string, value: string): any => ({ [type.includes('key') ? 'key' : type.includes('basic') ? 'password' : type.includes('mtls') ? 'identity' : 'secret']: value });

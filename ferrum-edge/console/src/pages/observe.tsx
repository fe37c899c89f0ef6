// Pages about what runs: sessions, certificates, cache.
import { useState } from 'preact/hooks';
import { canEdit, errorText, may, request } from '../lib/api';
import { ago, hour, span, time } from '../lib/format';
import { type Doc, drafted, want } from '../lib/objects';
import { href, place } from '../lib/router';
import { status } from '../lib/status';
import { t } from '../strings';
import { Dot, Empty, Field, Notice, Page, Panel, Tag } from '../ui/basics';
import { Commands } from '../ui/command-lines';
import { lines } from '../ui/form';
import { useAsk, useId, useSettled } from '../ui/hooks';
import { List, byNumber, byText } from '../ui/list';

interface Open {
  id: string;
  protocol: string;
  proxy: string;
  consumer: string | null;
  client: string | null;
  since: string;
}

export function Sessions() {
  const [proxy, setProxy] = useState(place.value.query.get('proxy') ?? '');
  const [consumer, setConsumer] = useState(place.value.query.get('consumer') ?? '');
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const filter = new URLSearchParams();
  if (proxy.trim()) filter.set('proxy', proxy.trim());
  if (consumer.trim()) filter.set('consumer', consumer.trim());
  const query = useSettled(filter.toString(), 250);
  const asked = useAsk<{ items: Open[]; next: string | null; open: number }>(`/v1/sessions?limit=1000${query && `&${query}`}`, 3000);
  const s = t.sessions;
  const end = async (path: string) => {
    try {
      const { data } = await request('DELETE', path);
      setResult({ kind: 'good', text: s.ended(data?.ended ?? 1) });
    } catch (error) {
      setResult({ kind: 'bad', text: errorText(error) });
    }
    asked.again();
  };
  return (
    <Page title={s.title} lead={s.lead} actions={may('write') && query && <button type="button" class="danger" onClick={() => confirm(s.endSure) && end(`/v1/sessions?${query}`)}>{s.endAllFiltered}</button>}>
      {asked.error && <Notice kind="bad">{asked.error}</Notice>}
      {result && <Notice kind={result.kind}>{result.text}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.now.proxy} placeholder={t.now.proxy} value={proxy} onInput={(event) => setProxy(event.currentTarget.value)} />
        <input type="search" aria-label={s.consumer} placeholder={s.consumer} value={consumer} onInput={(event) => setConsumer(event.currentTarget.value)} />
        <span class="muted" role="status">{asked.data ? s.open(asked.data.open) : t.loading}</span>
      </div>
      <div class="fill">
        <List<Open>
          label={s.title}
          rows={asked.data?.items ?? []}
          id={(row) => row.id}
          empty={s.empty}
          columns={[
            { name: 'protocol', title: s.protocol, width: '8rem', cell: (row) => <Tag>{row.protocol}</Tag>, sort: byText((row) => row.protocol) },
            { name: 'proxy', title: t.now.proxy, width: '1.3fr', cell: (row) => <a href={href('routes', row.proxy)}>{row.proxy}</a>, sort: byText((row) => row.proxy) },
            { name: 'consumer', title: s.consumer, width: '1fr', cell: (row) => row.consumer ?? <span class="muted">–</span>, sort: byText((row) => row.consumer ?? '') },
            { name: 'client', title: s.client, width: '1.2fr', minor: true, cell: (row) => row.client ?? '–', sort: byText((row) => row.client ?? '') },
            { name: 'since', title: s.since, width: '8rem', cell: (row) => span((Date.now() - new Date(row.since).getTime()) / 1000), sort: byText((row) => row.since) },
            ...(may('write') ? [{ name: 'do', title: '', width: '5rem', right: true, cell: (row: Open) => <button type="button" class="small" aria-label={`${s.end} ${row.id}`} onClick={() => end(`/v1/sessions/${encodeURIComponent(row.id)}`)}>{s.end}</button> }] : []),
          ]}
        />
      </div>
      {may('write') && (
        <Panel>
          <Commands
            of={[
              { title: s.end, call: { method: 'DELETE', path: `/v1/sessions/${encodeURIComponent(asked.data?.items[0]?.id ?? 'ID')}` } },
              { title: s.endAllFiltered, call: { method: 'DELETE', path: `/v1/sessions?${query || 'proxy=ID'}` } },
            ]}
          />
        </Panel>
      )}
    </Page>
  );
}

/** Certificates whose commands are listed; the others are renewed the same way. */
const MOST_COMMANDS = 10;

/** Where a certificate is renewed, by the first of its names. */
const renewalOf = (names: string[]): string => `/v1/acme/renew?name=${encodeURIComponent(names[0] ?? '')}`;

export function Certificates() {
  const c = t.certificates;
  const acme: any[] = status.value?.acme?.list ?? [];
  const files: any[] = status.value?.certificates?.list ?? [];
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const renew = async (names: string[]) => {
    try {
      await request('POST', renewalOf(names));
      setResult({ kind: 'good', text: c.renewing(names.join(', ')) });
    } catch (error) {
      setResult({ kind: 'bad', text: errorText(error) });
    }
  };
  return (
    <Page title={c.title} lead={c.lead}>
      {result && <Notice kind={result.kind}>{result.text}</Notice>}
      <Panel title={c.files} flush>
        {!files.length ? (
          <Empty>{c.noFiles}</Empty>
        ) : (
          <div class="bounded">
            <List<any>
              label={c.files}
              rows={files}
              id={(row) => `${row.at} ${row.file}`}
              empty={c.noFiles}
              columns={[
                { name: 'at', title: c.at, width: '2fr', cell: (row) => <code>{row.at}</code>, sort: byText((row) => row.at) },
                { name: 'file', title: c.file, width: '2fr', cell: (row) => row.file, sort: byText((row) => row.file) },
                { name: 'ends', title: c.ends, width: '1.4fr', cell: (row) => <Ends at={row.ends_at} />, sort: byText((row) => row.ends_at) },
              ]}
            />
          </div>
        )}
      </Panel>
      <Panel title={c.acme} flush>
        {!acme.length ? (
          <Empty>{c.none}</Empty>
        ) : (
          <div class="bounded">
            <List<any>
              label={c.acme}
              rows={acme}
              id={(row) => row.file}
              empty={c.none}
              columns={[
                { name: 'names', title: c.names, width: '2fr', cell: (row) => <span title={row.problem ?? ''}>{row.names.join(', ')}</span>, sort: byText((row) => row.names.join()) },
                { name: 'state', title: c.state, width: '8rem', cell: (row) => <Dot kind={row.problem ? 'bad' : row.status === 'valid' ? 'good' : 'warn'} label={row.status} />, sort: byText((row) => row.status) },
                { name: 'ends', title: c.ends, width: '1.2fr', cell: (row) => <Ends at={row.ends_at} />, sort: byText((row) => row.ends_at ?? '') },
                { name: 'next', title: c.next, width: '1fr', minor: true, cell: (row) => (row.next_order_at ? ago(row.next_order_at) : '–') },
                { name: 'failures', title: c.failures, width: '6rem', right: true, minor: true, cell: (row) => row.failures, sort: byNumber((row) => row.failures) },
                ...(may('write') ? [{ name: 'do', title: '', width: '7rem', right: true, cell: (row: any) => <button type="button" class="small" aria-label={c.renewOf(row.names.join(', '))} onClick={() => void renew(row.names)}>{c.renew}</button> }] : []),
              ]}
            />
          </div>
        )}
      </Panel>
      {may('write') && acme.length > 0 && (
        <Panel>
          <Commands
            of={acme.slice(0, MOST_COMMANDS).map((row) => ({
              title: row.names.join(', '),
              call: { method: 'POST', path: renewalOf(row.names) },
              cli: { words: ['acme', 'renew', row.names[0] ?? ''] },
            }))}
          />
        </Panel>
      )}
      {acme.filter((row) => row.problem).map((row) => (
        <Notice kind="bad">
          <strong>{row.names.join(', ')}</strong>: {row.problem}
        </Notice>
      ))}
    </Page>
  );
}

function Ends({ at }: { at: string | null }) {
  if (!at) return <span class="muted">–</span>;
  const left = (new Date(at).getTime() - Date.now()) / 86_400_000;
  return <Dot kind={left < 0 ? 'bad' : left < 14 ? 'warn' : 'good'} label={`${time(at)} (${ago(at)})`} />;
}

export function Cache() {
  want('plugin_configs');
  const c = t.cache;
  const id = useId();
  const configs = drafted('plugin_configs').filter((one) => one.plugin_name === 'response_cache' && one.enabled !== false);
  const [by, setBy] = useState('url');
  const [what, setWhat] = useState('');
  const [soft, setSoft] = useState(false);
  const [config, setConfig] = useState('');
  const [urls, setUrls] = useState('');
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; at: string; text: string } | null>(null);
  const purged = { [by]: by === 'all' ? true : what.trim(), ...(soft ? { soft: true } : {}) };
  const pathOf = (action: string) => `/v1/plugins/response_cache/actions/${action}${config && `?plugin_config=${encodeURIComponent(config)}`}`;
  const act = async (action: string, body: unknown) => {
    try {
      const { data } = await request('POST', pathOf(action), body);
      const text = data.results.map((one: any) => `${one.plugin_config}: ${Object.entries(one.result ?? {}).map(([name, value]) => `${name.replace(/_/g, ' ')} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', ') || c.done}`).join('; ');
      setResult({ kind: 'good', at: new Date().toISOString(), text });
    } catch (error) {
      setResult({ kind: 'bad', at: new Date().toISOString(), text: errorText(error) });
    }
  };
  const purge = (event: Event) => {
    event.preventDefault();
    if (by === 'all' && !confirm(c.sure)) return;
    void act('purge', purged);
  };
  return (
    <Page title={c.title} lead={c.lead} actions={canEdit() && <a class="button" href={`${href('plugins', 'new')}?plugin=response_cache`}>{c.add}</a>}>
      {!configs.length && <Empty>{c.none}</Empty>}
      {result && <Notice kind={result.kind}>{`${hour(result.at)} – ${result.text}`}</Notice>}
      {!may('write') && <Notice>{t.readOnly.role}</Notice>}
      {configs.length > 0 && (
        <div class="columns even">
          <Panel title={c.purge}>
            <form onSubmit={purge}>
              <Field label={c.config} id={`${id}config`}>
                <select id={`${id}config`} value={config} onChange={(event) => setConfig(event.currentTarget.value)}>
                  <option value="">{c.everywhere}</option>
                  {configs.map((one: Doc) => (
                    <option value={one.id}>{one.id}</option>
                  ))}
                </select>
              </Field>
              <Field label={c.by} id={`${id}by`}>
                <select id={`${id}by`} value={by} onChange={(event) => setBy(event.currentTarget.value)}>
                  {(['url', 'prefix', 'tag', 'all'] as const).map((one) => (
                    <option value={one}>{c[one]}</option>
                  ))}
                </select>
              </Field>
              {by !== 'all' && (
                <Field label={c[by as 'url']} id={`${id}what`}>
                  <input id={`${id}what`} type="text" required value={what} placeholder={by === 'tag' ? 'products' : 'https://shop.example.com/products'} onInput={(event) => setWhat(event.currentTarget.value)} />
                </Field>
              )}
              <label class="check">
                <input type="checkbox" checked={soft} onChange={(event) => setSoft(event.currentTarget.checked)} /> {c.soft}
              </label>
              <div class="actions">
                <button type="submit" class="primary" disabled={!may('write')}>
                  {c.purge}
                </button>
              </div>
              <Commands of={[{ title: c.purge, call: { method: 'POST', path: pathOf('purge'), body: purged } }]} />
            </form>
          </Panel>
          <Panel title={c.warm}>
            <form
              onSubmit={(event) => {
                event.preventDefault();
                void act('warm', { urls: lines(urls) });
              }}
            >
              <Field label="URLs" hint={c.warmHint} id={`${id}urls`}>
                <textarea id={`${id}urls`} rows={5} required value={urls} onInput={(event) => setUrls(event.currentTarget.value)} />
              </Field>
              <div class="actions">
                <button type="submit" disabled={!may('write')}>
                  {c.fetch}
                </button>
              </div>
              <Commands of={[{ title: c.warm, call: { method: 'POST', path: pathOf('warm'), body: { urls: lines(urls) } } }]} />
            </form>
          </Panel>
          <Panel title={c.where}>
            <ul class="plain">
              {configs.map((one) => (
                <li>
                  <a href={href('plugins', one.id)}>{one.id}</a> <span class="muted">{one.proxy_id ?? t.plugins.global}</span>
                </li>
              ))}
            </ul>
          </Panel>
        </div>
      )}
    </Page>
  );
}


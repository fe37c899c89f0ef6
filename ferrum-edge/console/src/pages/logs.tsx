// The access log as it is written, and the way from a record to its explanation.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { hour, seconds } from '../lib/format';
import { want } from '../lib/objects';
import { href, place } from '../lib/router';
import { status } from '../lib/status';
import { type Tail, useTail } from '../lib/tail';
import { t } from '../strings';
import { Code, Dialog, Notice, Page, Tag } from '../ui/basics';
import { useSettled } from '../ui/hooks';
import { List } from '../ui/list';

/** The record that the page `explain` begins with; it never gets into an address. */
export const question = signal<any>(null);

export const statusKind = (code: number | undefined): string => (!code ? '' : code >= 500 ? 'bad' : code >= 400 ? 'warn' : 'good');
export const urlOf = (record: any): string => `${record['url.scheme'] ?? 'http'}://${record['server.address'] ?? ''}${record['url.path'] ?? ''}${record['url.query'] ? `?${record['url.query']}` : ''}`;

export function explainRecord(record: any): void {
  question.value = record;
  location.hash = href('explain').slice(1);
}

export function Logs() {
  want('proxies');
  const l = t.logs;
  const [runs, setRuns] = useState(true);
  const [proxy, setProxy] = useState(place.value.query.get('proxy') ?? '');
  const [code, setCode] = useState('');
  const [slower, setSlower] = useState('');
  const [text, setText] = useState('');
  const [open, setOpen] = useState<any>(null);
  const query = new URLSearchParams();
  if (proxy.trim()) query.set('proxy', proxy.trim());
  if (code.trim()) query.set('status', code.trim());
  if (/^\d+$/.test(slower.trim())) query.set('slower_than', slower.trim());
  const path = useSettled(`/v1/access-log${query.size ? `?${query}` : ''}`, 500);
  const tail: Tail = useTail(path, runs);
  const wanted = text.trim().toLowerCase();
  const rows = wanted ? tail.records.filter((record) => JSON.stringify(record).toLowerCase().includes(wanted)) : tail.records;
  return (
    <Page
      title={l.title}
      lead={l.lead}
      actions={
        <>
          <button type="button" onClick={tail.clear}>
            {l.clear}
          </button>
          <button type="button" class={runs ? '' : 'primary'} onClick={() => setRuns(!runs)}>
            {runs ? l.pause : l.resume}
          </button>
        </>
      }
    >
      {tail.error && <Notice kind="bad">{tail.error}</Notice>}
      {tail.lost > 0 && <Notice kind="warn">{l.lost(tail.lost)}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={l.contains} placeholder={l.contains} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <input type="search" class="narrow" aria-label={l.proxy} placeholder={l.proxy} value={proxy} onInput={(event) => setProxy(event.currentTarget.value)} />
        <input type="search" class="narrow" aria-label={`${l.status}, ${l.statusHint}`} placeholder={`${l.status}: 404, 5xx`} value={code} onInput={(event) => setCode(event.currentTarget.value)} />
        <input type="search" class="narrow" inputMode="numeric" aria-label={l.slower} placeholder={l.slower} value={slower} onInput={(event) => setSlower(event.currentTarget.value)} />
        <span class="muted" role="status">{runs ? (tail.isFollowing ? l.following : t.loading) : l.pause}</span>
      </div>
      <div class="fill">
        <List<any>
          label={l.title}
          rows={rows}
          id={(row) => String(row.serial)}
          height={32}
          empty={<Waiting />}
          columns={[
            { name: 'when', title: l.when, width: '5.5rem', narrow: '4.9rem', cell: (row) => hour(row.timestamp) },
            { name: 'status', title: l.status, width: '4.5rem', narrow: '3rem', cell: (row) => (row['http.response.status_code'] ? <Tag kind={statusKind(row['http.response.status_code'])}>{row['http.response.status_code']}</Tag> : <Tag>{row.kind}</Tag>) },
            { name: 'method', title: l.method, width: '5rem', minor: true, cell: (row) => row['http.request.method'] ?? '' },
            {
              name: 'request',
              title: l.request,
              width: '3fr',
              cell: (row) => (
                <button type="button" class="link mono" title={urlOf(row)} onClick={() => setOpen(row)}>
                  <span class="minor">{row['server.address'] ?? ''}</span>
                  {row['url.path'] ?? ''}
                  {row['url.query'] ? `?${row['url.query']}` : ''}
                </button>
              ),
            },
            { name: 'proxy', title: l.proxy, width: '1fr', minor: true, cell: (row) => (row['proxy.id'] ? <a href={href('routes', row['proxy.id'])}>{row['proxy.id']}</a> : <span class="muted">–</span>) },
            { name: 'caller', title: l.caller, width: '1fr', minor: true, cell: (row) => row['enduser.id'] ?? row['client.address'] ?? '' },
            { name: 'reason', title: l.refused, width: '1.2fr', narrow: '8rem', cell: (row) => <span class="bad-text" title={row['error.message'] ?? ''}>{row['error.type'] ?? row['error.message'] ?? ''}</span> },
            { name: 'duration', title: l.duration, width: '5rem', right: true, minor: true, cell: (row) => seconds(row['http.server.request.duration'] ?? row.duration) },
          ]}
        />
      </div>
      {open && <Whole record={open} close={() => setOpen(null)} />}
    </Page>
  );
}

/** How to send a request that shows up here. */
function Waiting() {
  const port = status.value?.listeners?.http;
  return (
    <>
      {t.logs.waiting}
      {typeof port === 'string' && (
        <>
          {' '}
          {t.logs.sendOne} <code>{`curl -i http://${port.replace(/^(0\.0\.0\.0|\[::\])/, location.hostname)}/`}</code>
        </>
      )}
    </>
  );
}

export function Whole({ record, close }: { record: any; close: () => void }) {
  const { serial: _, ...rest } = record;
  return (
    <Dialog title={t.logs.whole} close={close} wide>
      <Record record={rest} />
      <Code text={JSON.stringify(rest, null, 2)} label={t.logs.whole} />
      <div class="actions">
        {record.kind === 'http' && (
          <button type="button" class="primary" onClick={() => explainRecord(record)}>
            {t.logs.explain}
          </button>
        )}
      </div>
    </Dialog>
  );
}

/** The setting that refused a request or ended it, and the plugin config that has it. */
function Decided({ record }: { record: any }) {
  const [setting, limit, config] = [record['error.setting'], record['error.limit'], record['plugin_config.id']];
  return (
    <>
      {config && <a href={href('plugins', config)}>{config}</a>} {setting && <code>{`${setting}${limit === undefined ? '' : `=${limit}`}`}</code>}
    </>
  );
}

export function Record({ record }: { record: any }) {
  const rows: [string, unknown][] = [
    [t.logs.request, `${record['http.request.method'] ?? record.kind} ${urlOf(record)}`],
    [t.logs.status, record['http.response.status_code']],
    [t.logs.refused, record['error.type']],
    ['Error', record['error.message']],
    [t.logs.decidedBy, <Decided record={record} />],
    [t.logs.proxy, record['proxy.id']],
    [t.logs.target, record['upstream.address']],
    [t.logs.caller, [record['enduser.id'], record['client.address']].filter(Boolean).join(', ')],
    [t.logs.duration, seconds(record['http.server.request.duration'])],
  ];
  return (
    <dl>
      {rows.filter(([name, value]) => value !== undefined && value !== '' && (name !== t.logs.decidedBy || record['plugin_config.id'] || record['error.setting'])).map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{typeof value === 'object' ? (value as ComponentChildren) : String(value)}</dd>
        </>
      ))}
    </dl>
  );
}

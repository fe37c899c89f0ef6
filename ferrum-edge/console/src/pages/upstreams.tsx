// Groups of targets with their health.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { type Doc, drafted, inDraft, plain, propose, shelf, want } from '../lib/objects';
import { href, place } from '../lib/router';
import { status, why } from '../lib/status';
import { seconds } from '../lib/format';
import { t } from '../strings';
import { Dot, Notice, Page, Panel, ReadOnly, Tag } from '../ui/basics';
import { List, byNumber, byText } from '../ui/list';
import { useAsk } from '../ui/hooks';
import { ObjectPage } from './object';

const COMMON = ['id', 'name', 'targets', 'algorithm', 'health_checks'];

export function Upstreams() {
  const { parts } = place.value;
  want('upstreams', 'proxies');
  if (parts[0]) {
    const id = parts[0] === 'new' ? null : parts[0];
    return (
      <ObjectPage
        kind="upstreams"
        id={id}
        title={t.upstreams.add}
        begin={{ targets: [{ host: '', port: 80 }] }}
        common={COMMON}
        back="upstreams"
        aside={(doc) =>
          id && (
            <>
              <Health id={id} doc={doc} />
              <UsedBy id={id} />
            </>
          )
        }
      />
    );
  }
  return <All />;
}

const healthOf = (id: string): any[] => status.value?.upstreams?.list?.find((one: any) => one.id === id)?.targets ?? [];

function All() {
  const [text, setText] = useState('');
  const { loading, error } = shelf('upstreams');
  const all = drafted('upstreams');
  const wanted = text.trim().toLowerCase();
  const rows = useMemo(() => all.filter((one) => `${one.id} ${one.name ?? ''} ${(one.targets ?? []).map((target: any) => target.host).join(' ')}`.toLowerCase().includes(wanted)), [all, wanted]);
  const u = t.upstreams;
  return (
    <Page title={u.title} lead={u.lead} actions={canEdit() && <a class="button primary" href={href('upstreams', 'new')}>{u.add}</a>}>
      <ReadOnly />
      {error && <Notice kind="bad">{error}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <span class="muted" role="status">{t.routes.of(rows.length, all.length)}</span>
      </div>
      <div class="fill">
        <List<Doc>
          label={u.title}
          rows={rows}
          id={(row) => row.id}
          empty={loading ? t.loading : wanted ? t.routes.emptyFilter : u.empty}
          columns={[
            { name: 'id', title: t.now.upstream, width: '1.5fr', cell: (row) => <a href={href('upstreams', row.id)}>{row.name || row.id}</a>, sort: byText((row) => row.name || row.id) },
            { name: 'health', title: u.health, width: '12rem', cell: (row) => <Summary id={row.id} />, sort: byNumber((row) => healthOf(row.id).filter((one) => !one.healthy).length) },
            { name: 'targets', title: u.targets, width: '2fr', minor: true, cell: (row) => (row.targets ?? []).map((one: any) => `${one.host}${one.port ? `:${one.port}` : ''}`).join(', ') },
            { name: 'algorithm', title: u.algorithm, width: '11rem', minor: true, cell: (row) => row.algorithm ?? 'round_robin', sort: byText((row) => row.algorithm ?? 'round_robin') },
          ]}
        />
      </div>
      <OwnTargets />
    </Page>
  );
}

function Summary({ id }: { id: string }) {
  const targets = healthOf(id);
  const bad = targets.filter((one) => !one.healthy).length;
  if (!targets.length) return <span class="muted">–</span>;
  return bad ? <Dot kind="bad" label={`${bad} of ${targets.length} ${t.upstreams.unhealthy}`} /> : <Dot kind="good" label={`${targets.length} ${t.upstreams.healthy}`} />;
}

/** Targets that only one proxy has, and that are unhealthy. */
function OwnTargets() {
  const { data } = useAsk<any>('/v1/traffic', 5000);
  const named = new Set((status.value?.upstreams?.list ?? []).map((one: any) => one.id));
  const own = (data?.targets ?? []).filter((one: any) => !named.has(one.upstream) && !one.healthy);
  if (!own.length) return null;
  return (
    <Panel title={t.upstreams.own}>
      <ul class="plain">
        {own.slice(0, 100).map((one: any) => (
          <li>
            <Dot kind="bad" label={one.address} /> <a href={href('routes', one.upstream)}>{one.upstream}</a> <span class="muted">{why(one)}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Health({ id, doc }: { id: string; doc: Doc }) {
  const u = t.upstreams;
  const targets = healthOf(id);
  const addressOf = (one: any): string => `${one.host}${one.port ? `:${one.port}` : ''}`;
  const change = (targets: any[]) => {
    const base = shelf('upstreams').items.find((one) => one.id === id);
    const before = inDraft('upstreams', id);
    if (!base) return;
    propose({ kind: 'upstreams', id, base: before?.base ?? plain(base), revision: before?.revision ?? base.revision, next: { ...doc, id, targets } });
    location.hash = href('review').slice(1);
  };
  const all: any[] = doc.targets ?? [];
  const written = (address: string) => all.find((one) => addressOf(one) === address);
  const isDrained = (one: any) => one?.weight === 0;
  const weigh = (address: string, weight: number) => change(all.map((one) => (addressOf(one) === address ? { ...one, weight } : one)));
  const remove = (address: string) => change(all.filter((one) => addressOf(one) !== address));
  /** One target at least gets new clients. */
  const isLast = (address: string) => !all.some((one) => addressOf(one) !== address && !isDrained(one));
  return (
    <Panel title={u.health}>
      {!targets.length && <p class="muted">{t.none}</p>}
      <ul class="plain targets">
        {targets.map((one) => (
          <li>
            <Dot kind={one.healthy ? 'good' : 'bad'} label={one.address} />
            <span class="muted">
              {why(one) || `${one.in_flight} ${u.inFlight.toLowerCase()}, ${seconds(one.latency_seconds)}, ${u.weight.toLowerCase()} ${one.weight}`}
            </span>
            {isDrained(written(one.address)) && <Tag kind="warn">{u.drained}</Tag>}
            {canEdit() && written(one.address) && (
              <>
                {isDrained(written(one.address)) ? (
                  <button type="button" class="small" title={u.restoreHint} aria-label={`${u.restore} ${one.address}`} onClick={() => weigh(one.address, 1)}>
                    {u.restore}
                  </button>
                ) : (
                  <button type="button" class="small" disabled={isLast(one.address)} title={isLast(one.address) ? u.last : u.drainHint} aria-label={`${u.drain} ${one.address}`} onClick={() => weigh(one.address, 0)}>
                    {u.drain}
                  </button>
                )}{' '}
                <button type="button" class="small" disabled={isLast(one.address)} title={isLast(one.address) ? u.last : u.takeOutHint} aria-label={`${u.takeOut}: ${one.address}`} onClick={() => remove(one.address)}>
                  {u.takeOut}
                </button>
              </>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function UsedBy({ id }: { id: string }) {
  const users = drafted('proxies').filter((one) => one.upstream_id === id);
  return (
    <Panel title={t.upstreams.usedBy}>
      {!users.length && <p class="muted">{t.none}</p>}
      <ul class="plain">
        {users.slice(0, 100).map((one) => (
          <li>
            <a href={href('routes', one.id)}>{one.name || one.id}</a> {inDraft('proxies', one.id) && <Tag kind="warn">{t.draft.unsaved}</Tag>}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

// What happens now: rates, errors, latencies, and what is wrong.
import { useReducer, useRef } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { bytes, rate, seconds } from '../lib/format';
import { href } from '../lib/router';
import { status, troubleCount, troubles } from '../lib/status';
import { History, type Sample, merged } from '../lib/traffic';
import { percentile } from '../lib/format';
import { t } from '../strings';
import { Marked, Notice, Page, Panel, Tag } from '../ui/basics';
import { Chart, Spark } from '../ui/chart';
import { useAsk } from '../ui/hooks';
import { List, byNumber, byText } from '../ui/list';

const LOOK = 2000;
/** Looks that a tile sums up. */
const RECENT = 5;
const history = new History();

/** A part of all requests. */
const share = (part: number, requests: number): string => (requests ? `${((part / requests) * 100).toFixed(part ? 1 : 0)} %` : '–');

export function Now() {
  const [, turn] = useReducer((n: number) => n + 1, 0);
  const shown = useRef(history);
  const asked = useAsk<Sample>('/v1/traffic?targets=false', LOOK, (sample) => {
    history.take(sample);
    turn(undefined as any);
  });
  const steps = shown.current.steps;
  const recent = steps.slice(-RECENT);
  const span = recent.reduce((all, step) => all + step.span, 0) || 1;
  const total = (pick: (step: (typeof steps)[0]) => number) => recent.reduce((all, step) => all + pick(step), 0);
  const requests = total((step) => step.total.requests);
  const errors = total((step) => step.total.errors);
  const refused = total((step) => step.total.classes[3]!);
  const buckets = merged(recent.map((step) => step.total));
  const last = steps.at(-1);
  const list = troubles(status.value);
  const count = troubleCount(status.value).all;
  const n = t.now;
  return (
    <Page title={n.title} lead={n.lead}>
      {asked.error && <Notice kind="bad">{asked.error}</Notice>}
      <div class="tiles">
        <Tile label={n.requests} value={rate(requests / span)} trend={history.rates((step) => step.total.requests)} />
        <Tile label={n.errors} value={share(errors, requests)} kind={requests && errors / requests > 0.01 ? 'bad' : ''} trend={history.rates((step) => step.total.errors)} />
        <Tile label={n.refused} value={share(refused, requests)} trend={history.rates((step) => step.total.classes[3]!)} />
        <Tile label={n.median} value={seconds(percentile(history.bounds, buckets, 0.5))} />
        <Tile label={n.p99} value={seconds(percentile(history.bounds, buckets, 0.99))} />
        <Tile label={n.active} value={String(last?.active ?? asked.data?.active_requests ?? '–')} />
        <Tile label={n.connections} value={String(last?.connections ?? asked.data?.connections ?? '–')} />
        <Tile label={n.bandwidth} value={`${bytes(total((step) => step.total.bytes) / span)}/s`} />
      </div>
      <div class="columns even">
        <Panel>
          <Chart
            label={n.byClass}
            times={steps.map((step) => step.at)}
            show={rate}
            series={[
              { label: '2xx, 3xx', color: '--good', fill: true, values: history.rates((step) => step.total.classes[1]! + step.total.classes[2]! + step.total.classes[0]!) },
              { label: '4xx', color: '--warn', values: history.rates((step) => step.total.classes[3]!) },
              { label: '5xx', color: '--bad', values: history.rates((step) => step.total.classes[4]!) },
            ]}
          />
        </Panel>
        <Panel>
          <Chart
            label={n.byLatency}
            times={steps.map((step) => step.at)}
            show={seconds}
            series={[
              { label: 'p50', color: '--series-1', values: history.percentiles(0.5) },
              { label: 'p95', color: '--series-2', values: history.percentiles(0.95) },
              { label: 'p99', color: '--series-3', values: history.percentiles(0.99) },
            ]}
          />
        </Panel>
      </div>
      <Panel title={<>{n.wrong} {count > 0 && <span class="count">{count}</span>}</>}>
        {!list.length ? (
          <p class="fine">{n.fine}</p>
        ) : (
          <ul class="troubles">
            {list.slice(0, SHOWN).map((one) => (
              <li>
                <Tag kind={one.kind}>{one.kind === 'bad' ? 'error' : 'warning'}</Tag>
                <span>
                  {one.link ? <a href={one.link}><Marked text={one.text} /></a> : <Marked text={one.text} />}
                  {one.detail && <span class="muted"> – <Marked text={one.detail} /></span>}
                </span>
              </li>
            ))}
            {count > SHOWN && <li class="muted">{n.more(count - Math.min(list.length, SHOWN))}</li>}
          </ul>
        )}
      </Panel>
      {list.some((one) => one.code === 'no_proxies') && canEdit() && <FirstSteps />}
      <Table of="proxies" title={n.byProxy} />
      <Table of="targets" title={n.byTarget} />
      <Table of="callers" title={n.byCaller} />
    </Page>
  );
}

/** Problems that the page shows. */
const SHOWN = 50;

/** For who has just begun. */
function FirstSteps() {
  const f = t.now.first;
  const steps = [
    [href('routes', 'new'), f.proxy, f.proxyWhy],
    [href('access'), f.protect, f.protectWhy],
    [href('consumers', 'new'), f.consumer, f.consumerWhy],
    [href('logs'), f.logs, f.logsWhy],
    [href('revisions'), f.revisions, f.revisionsWhy],
  ] as const;
  return (
    <Panel title={f.title}>
      <ol class="steps">
        {steps.map(([link, name, why]) => (
          <li>
            <a href={link}>{name}</a> – {why}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Tile({ label, value, kind = '', trend }: { label: string; value: string; kind?: string; trend?: number[] }) {
  return (
    <div class={`tile ${kind}`}>
      <span class="tile-label">{label}</span>
      <strong>{value}</strong>
      {trend && trend.length > 1 && <Spark values={trend.slice(-60)} label={`${label}: ${t.now.trend}`} />}
    </div>
  );
}

function Table({ of, title }: { of: 'proxies' | 'targets' | 'callers'; title: string }) {
  const rows = history.table(of);
  type Row = (typeof rows)[0];
  const n = t.now;
  const name = (row: Row) => row.name || (of === 'proxies' ? n.unrouted : n.self);
  const link = (row: Row) => (!row.name || row.name === '…' ? null : of === 'proxies' ? href('routes', row.name) : of === 'targets' && row.group ? href('upstreams', row.group) : null);
  return (
    <Panel title={title} flush>
      <div class="bounded">
        <List<Row>
          label={title}
          rows={rows}
          id={(row) => `${row.group}/${row.name}`}
          empty={of === 'callers' ? n.nobody : n.quiet}
          columns={[
            { name: 'name', title: { proxies: n.proxy, targets: n.target, callers: n.caller }[of], width: '2fr', cell: (row) => (link(row) ? <a href={link(row)!}>{row.name}</a> : name(row)), sort: byText(name) },
            ...(of === 'targets' ? [{ name: 'group', title: n.upstream, width: '1.4fr', minor: true, cell: (row: Row) => row.group || '–', sort: byText<Row>((row) => row.group) }] : []),
            { name: 'rate', title: n.rate, width: '6rem', right: true, cell: (row) => rate(row.requests / row.span), sort: byNumber((row) => row.requests) },
            { name: 'errors', title: n.errors, width: '5.5rem', right: true, cell: (row) => (row.errors ? <span class="bad-text">{share(row.errors, row.requests)}</span> : row.requests ? '0' : '–'), sort: byNumber((row) => row.errors) },
            { name: 'refused', title: '4xx', width: '5rem', right: true, minor: true, cell: (row) => (row.classes[3] ? share(row.classes[3], row.requests) : row.requests ? '0' : '–'), sort: byNumber((row) => row.classes[3]!) },
            { name: 'p50', title: 'p50', width: '5rem', right: true, minor: true, cell: (row) => seconds(row.p50), sort: byNumber((row) => row.p50 ?? 0) },
            { name: 'p99', title: 'p99', width: '5rem', right: true, cell: (row) => seconds(row.p99), sort: byNumber((row) => row.p99 ?? 0) },
            { name: 'trend', title: n.trend, width: '8rem', minor: true, cell: (row) => <Spark values={row.trend} label={`${name(row)}: ${n.trend}`} /> },
          ]}
        />
      </div>
    </Panel>
  );
}

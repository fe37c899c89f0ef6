// The last five minutes of traffic, from the counts that the gateway keeps while somebody looks.
import { percentile } from './format';

export interface Row {
  proxy: string | null;
  upstream: string | null;
  target: string | null;
  is_rest: boolean;
  classes: number[];
  errors: number;
  retries: number;
  buckets: number[];
  duration_seconds: number;
  sessions: number;
  bytes_in: number;
  bytes_out: number;
}

export interface Caller extends Omit<Row, 'proxy' | 'upstream' | 'target'> {
  caller: string | null;
}

export interface Sample {
  seconds: number;
  bounds: number[];
  rows: Row[];
  callers?: Caller[];
  active_requests: number;
  connections: number;
  revision: number;
}

/** What happened between two looks. */
export interface Step {
  at: number;
  /** Of the two looks, in seconds. */
  span: number;
  total: Sum;
  proxies: Map<string, Sum>;
  targets: Map<string, Sum>;
  callers: Map<string, Sum>;
  active: number;
  connections: number;
}

export interface Sum {
  name: string;
  group: string;
  requests: number;
  errors: number;
  classes: number[];
  buckets: number[];
  bytes: number;
  sessions: number;
  retries: number;
}

const MOST = 150;
const sum = (name: string, group = ''): Sum => ({ name, group, requests: 0, errors: 0, classes: [0, 0, 0, 0, 0], buckets: [], bytes: 0, sessions: 0, retries: 0 });

function add(to: Sum, row: Omit<Row, 'proxy' | 'upstream' | 'target'>, before: typeof row | undefined): void {
  const less = (now: number, then: number | undefined) => Math.max(0, now - (then ?? 0));
  row.classes.forEach((n, at) => {
    const more = less(n, before?.classes[at]);
    to.classes[at] = (to.classes[at] ?? 0) + more;
    to.requests += more;
  });
  row.buckets.forEach((n, at) => (to.buckets[at] = (to.buckets[at] ?? 0) + less(n, before?.buckets[at])));
  to.errors += less(row.errors, before?.errors);
  to.bytes += less(row.bytes_out, before?.bytes_out);
  to.sessions += less(row.sessions, before?.sessions);
  to.retries += less(row.retries, before?.retries);
}

const keyOf = (row: Row): string => JSON.stringify([row.proxy, row.upstream, row.target, row.is_rest]);

export class History {
  steps: Step[] = [];
  bounds: number[] = [];
  private before: { at: number; sample: Sample; rows: Map<string, Row>; callers: Map<string, Caller> } | null = null;

  take(sample: Sample, at = Date.now() / 1000): void {
    const rows = new Map(sample.rows.map((row) => [keyOf(row), row]));
    const callers = new Map((sample.callers ?? []).map((row) => [row.caller ?? '…', row]));
    const before = this.before;
    this.before = { at, sample, rows, callers };
    this.bounds = sample.bounds;
    // A gateway that began to count anew has nothing to compare with.
    if (!before || sample.seconds < before.sample.seconds) return;
    const span = sample.seconds - before.sample.seconds;
    if (span <= 0) return;
    const step: Step = { at, span, total: sum(''), proxies: new Map(), targets: new Map(), callers: new Map(), active: sample.active_requests, connections: sample.connections };
    for (const [key, row] of rows) {
      const then = before.rows.get(key);
      add(step.total, row, then);
      const proxy = row.is_rest ? '…' : (row.proxy ?? '');
      if (!step.proxies.has(proxy)) step.proxies.set(proxy, sum(proxy));
      add(step.proxies.get(proxy)!, row, then);
      const target = `${row.upstream ?? ''}\n${row.target ?? ''}`;
      if (!step.targets.has(target)) step.targets.set(target, sum(row.target ?? '', row.upstream ?? ''));
      add(step.targets.get(target)!, row, then);
    }
    for (const [name, row] of callers) {
      const one = sum(name);
      add(one, row, before.callers.get(name));
      step.callers.set(name, one);
    }
    this.steps = [...this.steps, step].slice(-MOST);
  }

  rates(pick: (step: Step) => number): number[] {
    return this.steps.map((step) => pick(step) / step.span);
  }

  /** Of each of the last steps, over `wide` steps at a time, so that a quiet second is no hole. */
  percentiles(share: number, wide = 5): (number | null)[] {
    return this.steps.map((_, n) => percentile(this.bounds, merged(this.steps.slice(Math.max(0, n - wide + 1), n + 1).map((step) => step.total)), share));
  }

  /** What the last steps come to, by proxy or target; the busiest first. */
  table(of: 'proxies' | 'targets' | 'callers', last = 15): (Sum & { span: number; p50: number | null; p99: number | null; trend: number[] })[] {
    const steps = this.steps.slice(-last);
    const span = steps.reduce((all, step) => all + step.span, 0) || 1;
    const all = new Map<string, Sum[]>();
    for (const step of this.steps) for (const key of step[of].keys()) all.set(key, []);
    for (const step of steps) for (const [key, one] of step[of]) all.get(key)!.push(one);
    const rows = [...all].map(([key, sums]) => {
      const first = this.steps.find((step) => step[of].has(key))?.[of].get(key);
      const whole = sum(first?.name ?? '', first?.group ?? '');
      for (const one of sums) {
        whole.requests += one.requests;
        whole.errors += one.errors;
        whole.bytes += one.bytes;
        whole.sessions += one.sessions;
        whole.retries += one.retries;
      }
      whole.buckets = merged(sums);
      return {
        ...whole,
        span,
        p50: percentile(this.bounds, whole.buckets, 0.5),
        p99: percentile(this.bounds, whole.buckets, 0.99),
        trend: this.steps.map((step) => (step[of].get(key)?.requests ?? 0) / step.span),
      };
    });
    return rows.sort((a, b) => b.requests - a.requests || a.name.localeCompare(b.name));
  }
}

export function merged(sums: Sum[]): number[] {
  const all: number[] = [];
  for (const one of sums) one.buckets.forEach((n, at) => (all[at] = (all[at] ?? 0) + n));
  return all;
}

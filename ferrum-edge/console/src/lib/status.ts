// How the gateway stands, asked for every few seconds while somebody looks, and what in it needs attention.
import { signal } from '@preact/signals';
import { t } from '../strings';
import { get } from './api';
import { href } from './router';
import { pageOf } from './places';
import { seconds } from './format';

export const status = signal<any>(null);

/** Asks at once, for after a change; a gateway that does not answer is asked again anyway. */
export const lookAgain = (): Promise<void> =>
  get('/v1/status').then(
    (now) => void (status.value = now),
    () => undefined,
  );

export interface Trouble {
  kind: 'bad' | 'warn';
  text: string;
  detail: string;
  link?: string;
  code?: string;
}

const objectLink = (path: string): string | undefined => {
  const [kind, id] = path.split(/[.[]/);
  return kind && id && /^(proxies|upstreams|consumers|plugin_configs)$/.test(kind) ? href(pageOf(kind), idOf(path, kind)) : undefined;
};

/** `plugin_configs.shop-acl.config.x` is about `shop-acl`. */
export function idOf(path: string, kind: string): string {
  return path.slice(kind.length + 1).split('.')[0]!.replace(/\]$/, '');
}

export function troubles(now: any): Trouble[] {
  if (!now) return [];
  const w = t.wrong;
  const list: Trouble[] = [];
  const bad = (text: string, detail = '', link?: string) => list.push({ kind: 'bad', text, detail, link });
  const warn = (text: string, detail = '', link?: string, code?: string) => list.push({ kind: 'warn', text, detail, link, code });
  if (now.draining) bad(w.draining);
  if (now.overload?.level && now.overload.level !== 'normal') bad(w.overload(now.overload.level));
  const database = now.database;
  if (database && !database.answers) bad(w.away, database.away_because ?? '');
  if (database?.last_good?.problem) warn(w.mirror, database.last_good.problem);
  for (const one of database?.broken ?? []) bad(w.broken(`${one.kind} ${one.id}`), one.problems.join('; '), href(pageOf(one.kind), one.id));
  if (now.config?.last_refusal) warn(w.refused, now.config.last_refusal.problems.join('; '));
  for (const one of now.proxies?.quarantined ?? []) bad(w.closed(one.id), one.problems.join('; '), href('routes', one.id));
  for (const group of now.upstreams?.list ?? []) {
    for (const target of group.targets) {
      if (!target.healthy) bad(w.target(group.id, target.address), why(target), href('upstreams', group.id));
    }
  }
  for (const one of now.services?.list ?? []) if (one.error) bad(w.service(one.name), one.error);
  for (const one of now.acme?.list ?? []) if (one.problem) bad(w.certificate(one.names.join(', ')), one.problem, href('certificates'));
  for (const one of now.tasks ?? []) if (one.down) bad(w.task(one.name), one.last_failure?.cause ?? '');
  for (const one of now.log_sinks ?? []) if (one.last_error || one.error) warn(w.sink(one.name ?? one.kind ?? ''), one.last_error ?? one.error);
  for (const one of now.warnings?.list ?? []) warn(`${one.path}: ${one.message}`, one.remedy ?? '', one.code === 'no_proxies' ? href('routes', 'new') : objectLink(one.path), one.code);
  return list;
}

export const why = (target: any): string =>
  target.probed_healthy === false ? t.upstreams.probes : target.observed_healthy === false ? t.upstreams.observed(seconds(target.retried_in_seconds)) : '';

/** Proxies that no request comes to, by id, with the reason. */
export function shadowed(now: any): Map<string, string> {
  const found = new Map<string, string>();
  for (const one of now?.warnings?.list ?? []) {
    if (one.code === 'proxy_shadowed') found.set(idOf(one.path, 'proxies'), one.message);
  }
  return found;
}
export const closedProxies = (now: any): Map<string, string> => new Map((now?.proxies?.quarantined ?? []).map((one: any) => [one.id, one.problems.join('; ')]));

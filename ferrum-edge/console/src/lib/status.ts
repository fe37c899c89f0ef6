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

/** A problem that is about one object names it alone, or before a space. In a warning, a path to a field may follow the id. */
const WHOLE = /^(proxy_closed|port_closed|object_broken)$/;

function linkOf({ code, about }: { code: string; about: string }): string | undefined {
  if (code === 'no_proxies') return href('routes', 'new');
  if (/^(certificate_|acme_)/.test(code)) return href('certificates');
  const [place = '', target] = about.split(' ');
  const kind = /^(proxies|upstreams|consumers|plugin_configs)[.[]/.exec(place)?.[1];
  if (!kind) return undefined;
  return href(pageOf(kind), target !== undefined || WHOLE.test(code) ? place.slice(kind.length + 1) : idOf(place, kind));
}

/** `plugin_configs.shop-acl.config.x` is about `shop-acl`. */
export function idOf(path: string, kind: string): string {
  return path.slice(kind.length + 1).split('.')[0]!.replace(/\]$/, '');
}

/** What needs attention, the worst first: the same list that the command `status` prints. */
export const troubles = (now: any): Trouble[] =>
  (now?.problems?.list ?? []).map((one: any) => ({
    kind: one.level === 'error' ? 'bad' : 'warn',
    text: one.about ? `${one.about}: ${one.message}` : one.message,
    detail: one.remedy ?? '',
    link: linkOf(one),
    code: one.code,
  }));

/** The number of problems, also of those that the list leaves out. */
export const troubleCount = (now: any): { errors: number; all: number } => {
  const { errors = 0, warnings = 0 } = now?.problems ?? {};
  return { errors, all: errors + warnings };
};

/** Why a target is unhealthy, or that its last attempt failed; empty for one that works. */
export const why = (target: any): string =>
  target.unhealthy_because || (target.failures && !target.failures.succeeded_since ? t.upstreams.failing(target.failures.reason, target.failures.detail) : reasonOf(target));
const reasonOf = (target: any): string =>
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

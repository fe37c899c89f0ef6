// The order in which the gateway tries proxies, as `gateway-core/src/route` has it: exact hosts before suffixes before any,
// the longer suffix first; then priority, then an exact path, one with names, a prefix, a regex, no path; the longer first.
import type { Doc } from './objects';

export interface Line {
  doc: Doc;
  host: string;
  path: string;
  isStream: boolean;
  key: (number | string)[];
}

const STREAMS = ['tcp', 'tcp_tls', 'tls', 'udp', 'dtls'];

export function isStream(doc: Doc): boolean {
  return doc.listen_port !== undefined || doc.listen_ports !== undefined || STREAMS.includes(doc.backend_scheme);
}

function pathKey(path: any): [number, number, string] {
  if (path === undefined || path === null) return [5, 0, ''];
  if (typeof path === 'object') {
    if (path.exact) return [0, -path.exact.length, path.exact];
    if (path.prefix) return [2, -path.prefix.length, path.prefix];
    if (path.regex) return [3, -path.regex.length, `~${path.regex}`];
    return [4, 0, JSON.stringify(path)];
  }
  if (path.startsWith('~')) return [3, -path.length, path];
  if (path.includes('{')) return [1, -path.length, path];
  return [2, -path.length, path];
}

const hostKey = (host: string): [number, number] => (host === '' ? [2, 0] : host.startsWith('*') ? [1, -host.length] : [0, 0]);

/** A line for each host and path of a proxy. */
export function linesOf(doc: Doc): Line[] {
  const hosts: string[] = doc.hosts?.length ? doc.hosts : [''];
  if (isStream(doc)) {
    const port = doc.listen_port ?? doc.listen_ports;
    return [{ doc, host: doc.hosts?.join(', ') ?? '', path: `${doc.backend_scheme ?? ''} :${Array.isArray(port) ? port.join('–') : port ?? ''}`, isStream: true, key: [1, 0, 0, '', 0, 0, 0, '', doc.id] }];
  }
  const matches: any[] = doc.matches?.length ? doc.matches : [{}];
  return matches.flatMap((match) =>
    (match.hosts?.length ? match.hosts : hosts).map((host: string) => {
      const [kind, length, path] = pathKey(match.path ?? doc.listen_path);
      const conditions = Object.keys(match).filter((name) => name !== 'hosts' && name !== 'path').length;
      return { doc, host, path, isStream: false, key: [0, ...hostKey(host), host, -(doc.priority ?? 0), kind, length, -conditions, path, doc.id] };
    }),
  );
}

export function inOrder(lines: Line[]): Line[] {
  return lines.sort((a, b) => {
    for (let n = 0; n < a.key.length; n += 1) {
      const [x, y] = [a.key[n]!, b.key[n]!];
      if (x !== y) return x < y ? -1 : 1;
    }
    return 0;
  });
}

export const targetOf = (doc: Doc): string =>
  doc.upstream_id ? doc.upstream_id : doc.backend_host ? `${doc.backend_host}${doc.backend_port ? `:${doc.backend_port}` : ''}` : '–';

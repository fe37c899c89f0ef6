// Which page shows which kind of object.
import type { Kind } from './objects';

const PAGES: Record<Kind, string> = { proxies: 'routes', upstreams: 'upstreams', consumers: 'consumers', plugin_configs: 'plugins' };
export const pageOf = (kind: string): string => PAGES[kind as Kind] ?? 'now';

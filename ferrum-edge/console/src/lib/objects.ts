// The configuration as the console holds it: every object of the four kinds, loaded page by page, and the draft of
// changes that nobody has applied yet. The draft lives in this page only.
import { computed, signal } from '@preact/signals';
import { type FieldError, get, request, session } from './api';

export const KINDS = ['proxies', 'upstreams', 'plugin_configs', 'consumers'] as const;
export type Kind = (typeof KINDS)[number];
export type Doc = Record<string, any>;

export interface Shelf {
  items: Doc[];
  /** All pages have come. */
  complete: boolean;
  loading: boolean;
  error: string;
}

const empty = (): Shelf => ({ items: [], complete: false, loading: false, error: '' });
const shelves = Object.fromEntries(KINDS.map((kind) => [kind, signal<Shelf>(empty())])) as unknown as Record<Kind, { value: Shelf }>;
export const shelf = (kind: Kind): Shelf => shelves[kind].value;

const PAGE = 1000;
const runs: Partial<Record<Kind, number>> = {};

/** Loads all objects of a kind; what was there before stays until the new ones have come. */
export async function load(kind: Kind): Promise<void> {
  const run = (runs[kind] ?? 0) + 1;
  runs[kind] = run;
  const before = shelf(kind);
  shelves[kind].value = { ...before, loading: true, error: '' };
  const items: Doc[] = [];
  try {
    let after: string | null = null;
    do {
      const from: string = after === null ? '' : `&after=${encodeURIComponent(after)}`;
      const page: { items: Doc[]; next: string | null } = await get(`/v1/${kind}?limit=${PAGE}${from}`);
      if (runs[kind] !== run) return;
      items.push(...page.items);
      after = page.next;
      // The first page shows at once where nothing was there.
      if (!before.items.length) shelves[kind].value = { items: items.slice(), complete: after === null, loading: true, error: '' };
    } while (after !== null);
    shelves[kind].value = { items, complete: true, loading: false, error: '' };
  } catch (error) {
    if (runs[kind] === run) shelves[kind].value = { ...shelf(kind), loading: false, error: (error as Error).message };
  }
}

export const want = (...kinds: Kind[]): void => {
  for (const kind of kinds) {
    const { complete, loading, error } = shelf(kind);
    if (!complete && !loading && !error) void load(kind);
  }
};

export const reload = (...kinds: Kind[]): void => kinds.forEach((kind) => void load(kind));

export function forget(): void {
  for (const kind of KINDS) {
    runs[kind] = (runs[kind] ?? 0) + 1;
    shelves[kind].value = empty();
  }
  draft.value = new Map();
}

/** Fields that the gateway adds to what was written. */
const ADDED = ['created_at', 'updated_at', 'revision'];
export const plain = (object: Doc): Doc =>
  Object.fromEntries(Object.entries(object).filter(([key]) => !ADDED.includes(key)));

export interface Change {
  kind: Kind;
  id: string;
  /** As it was when the change began; `null` for a new object. */
  base: Doc | null;
  /** The revision of `base`. */
  revision: number | null;
  /** As it shall be; `null` deletes it. */
  next: Doc | null;
}

export const draft = signal<Map<string, Change>>(new Map());
/** What the gateway says of the draft, by object. */
export const findings = signal<{ at: number; errors: Map<string, FieldError[]>; general: string } | null>(null);
export const draftSize = computed(() => draft.value.size);

export const keyOf = (kind: Kind, id: string): string => `${kind}/${id}`;
export const inDraft = (kind: Kind, id: string): Change | undefined => draft.value.get(keyOf(kind, id));

export function propose(change: Change): void {
  const next = new Map(draft.value);
  next.set(keyOf(change.kind, change.id), change);
  draft.value = next;
  findings.value = null;
}

export function withdraw(kind: Kind, id: string): void {
  const next = new Map(draft.value);
  next.delete(keyOf(kind, id));
  draft.value = next;
  findings.value = null;
}

/** Objects of a kind as they will be with the draft. */
export function drafted(kind: Kind): Doc[] {
  const changes = [...draft.value.values()].filter((change) => change.kind === kind);
  if (!changes.length) return shelf(kind).items;
  const changed = new Map(changes.map((change) => [change.id, change]));
  const kept = shelf(kind).items.flatMap((item) => {
    const change = changed.get(item.id);
    changed.delete(item.id);
    return change ? (change.next ? [change.next] : []) : [item];
  });
  return [...kept, ...[...changed.values()].flatMap((change) => (change.next ? [change.next] : []))];
}

interface Batch {
  body: Record<string, any>;
  /** Which change an item of a section is. */
  places: Map<string, string>;
}

/** The draft as `/v1/batch` takes it. */
export function batchOf(changes: Change[]): Batch {
  const body: Record<string, any> = {};
  const places = new Map<string, string>();
  for (const change of changes) {
    const place = (section: any[], at: string, item: unknown) => {
      places.set(`/${at}/${section.length}`, keyOf(change.kind, change.id));
      section.push(item);
    };
    if (change.next) place((body[change.kind] ??= []), change.kind, { ...change.next, id: change.id });
    else {
      body.delete ??= {};
      place((body.delete[change.kind] ??= []), `delete/${change.kind}`, change.id);
    }
  }
  return { body, places };
}

/** Sorts the pointers of an answer to a batch by the object they are in. */
export function located(errors: FieldError[], places: Map<string, string>): Map<string, FieldError[]> {
  const found = new Map<string, FieldError[]>();
  for (const error of errors) {
    const match = /^\/(delete\/)?[a-z_]+\/\d+/.exec(error.pointer);
    const key = (match && places.get(match[0])) ?? '';
    const pointer = key && match ? error.pointer.slice(match[0].length) : error.pointer;
    found.set(key, [...(found.get(key) ?? []), { ...error, pointer }]);
  }
  return found;
}

export interface Checked {
  errors: Map<string, FieldError[]>;
  general: string;
  etag: string | null;
  summary: any;
}

/** Has the gateway check changes and write nothing. */
export async function validate(changes: Change[], signal?: AbortSignal): Promise<Checked> {
  const { body, places } = batchOf(changes);
  try {
    const answer = await request('POST', '/v1/batch?validate_only=true&details=true', body, { signal });
    return { errors: new Map(), general: '', etag: answer.etag, summary: answer.data };
  } catch (error: any) {
    if (!error.problem || error.problem.status === 0) throw error;
    const errors = located(error.problem.errors ?? [], places);
    return { errors, general: error.problem.detail, etag: null, summary: null };
  }
}

/** What a check of a draft says of one of its objects. Only a draft without any problem is valid. */
export function judge(checked: Checked, key: string): { errors: FieldError[]; general: string; verdict: 'wrong' | 'others' | 'valid' } {
  const errors = checked.errors.get(key) ?? [];
  // What has no place in an object may be about this one.
  const placeless = (checked.errors.get('') ?? []).map((error) => error.detail + (error.remedy ? ` (${error.remedy})` : ''));
  const general = placeless.join('; ') || (checked.errors.size ? '' : checked.general);
  return { errors, general, verdict: errors.length || general ? 'wrong' : checked.errors.size ? 'others' : 'valid' };
}

export interface Conflict {
  change: Change;
  /** As somebody else left it; `null` when it is gone. */
  theirs: Doc | null;
  revision: number | null;
}

export async function current(kind: Kind, id: string): Promise<Doc | null> {
  try {
    return await get<Doc>(`/v1/${kind}/${encodeURIComponent(id)}`);
  } catch (error: any) {
    if (error.problem?.status === 404) return null;
    throw error;
  }
}

/** Changes whose object somebody else has changed since they began. */
export async function conflicts(changes: Change[]): Promise<Conflict[]> {
  const found: Conflict[] = [];
  for (const change of changes) {
    const now = await current(change.kind, change.id);
    if ((now?.revision ?? null) !== change.revision) {
      found.push({ change, theirs: now && plain(now), revision: now?.revision ?? null });
    }
  }
  return found;
}

/** Writes changes as one revision, provided that the configuration is still that of `etag`. */
export async function apply(changes: Change[], note: string, etag: string | null): Promise<any> {
  const { body } = batchOf(changes);
  const query = new URLSearchParams({ details: 'true', ...(note ? { note } : {}) });
  const answer = await request('POST', `/v1/batch?${query}`, body, { etag });
  reload(...new Set(changes.map((change) => change.kind)));
  return answer.data;
}

export interface Plugin {
  name: string;
  /** Which plugins it is shown with. */
  family: string;
  summary: string;
  example: string;
  schema: any;
  actions: Record<string, string>;
}

export const schema = signal<any>(null);
export const plugins = signal<Plugin[]>([]);

/** What forms are made of; once a session. */
export async function loadSchemas(): Promise<void> {
  if (schema.value || !session.value) return;
  const [whole, list] = await Promise.all([get('/v1/schema'), get<{ items: Plugin[] }>('/v1/plugins')]);
  plugins.value = list.items;
  schema.value = whole;
}

export const DEFINITIONS: Record<Kind, string> = {
  proxies: 'Proxy',
  upstreams: 'Upstream',
  consumers: 'Consumer',
  plugin_configs: 'PluginConfig',
};

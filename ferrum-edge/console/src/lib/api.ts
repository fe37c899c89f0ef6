// Calls the admin API through the console's session. Every answer is a value or an `ApiError`; a gateway that is away
// shows in `connection`, and a session that ended in `session`.
import { signal } from '@preact/signals';

export interface FieldError {
  pointer: string;
  detail: string;
  remedy?: string | null;
}

export interface Problem {
  status: number;
  code: string;
  title: string;
  detail: string;
  errors?: FieldError[];
}

export interface Session {
  name: string;
  role: 'read' | 'write' | 'admin';
  csrf: string;
  ends_in_seconds: number;
  mode: 'file' | 'database';
  version: string;
  must_change_password: boolean;
  must_enrol_second_factor: boolean;
  is_user: boolean;
  /** The role counts for some objects only. */
  is_restricted: boolean;
}

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }
}

export interface Answer<T> {
  data: T;
  etag: string | null;
  revision: number | null;
  status: number;
}

/** `undefined` until the gateway said whether there is one. */
export const session = signal<Session | null | undefined>(undefined);
/** Why the last session ended, for the login page. */
export const sessionEnd = signal('');
export const connection = signal<'ok' | 'away'>('ok');

const rank = { read: 0, write: 1, admin: 2 };

export const may = (role: 'read' | 'write' | 'admin'): boolean =>
  !!session.value && rank[session.value.role] >= rank[role];
export const canEdit = (): boolean => may('write') && session.value?.mode === 'database';

async function problemOf(response: Response): Promise<Problem> {
  const fallback = { status: response.status, code: '', title: response.statusText, detail: response.statusText };
  try {
    return { ...fallback, ...(await response.json()) };
  } catch {
    return fallback;
  }
}

async function call(path: string, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(path, { credentials: 'same-origin', redirect: 'error', ...init });
    connection.value = 'ok';
    return response;
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error;
    connection.value = 'away';
    throw new ApiError({ status: 0, code: 'away', title: '', detail: 'The gateway does not answer.' });
  }
}

function headers(method: string, more: Record<string, string>): Record<string, string> {
  const csrf = session.value?.csrf;
  return method === 'GET' || !csrf ? more : { 'x-ferrum-csrf': csrf, ...more };
}

async function checked(response: Response): Promise<Response> {
  if (response.ok || response.status === 304) return response;
  const problem = await problemOf(response);
  if (response.status === 401 && problem.code === 'no_session' && session.value) {
    sessionEnd.value = problem.detail;
    session.value = null;
  }
  throw new ApiError(problem);
}

export async function request<T = any>(
  method: string,
  path: string,
  body?: unknown,
  options: { etag?: string | null; signal?: AbortSignal; poll?: boolean } = {},
): Promise<Answer<T>> {
  const more: Record<string, string> = {};
  if (body !== undefined) more['content-type'] = 'application/json';
  // A page that looks again and again keeps no session alive.
  if (options.poll) more['x-ferrum-poll'] = '1';
  if (options.etag) more['if-match'] = options.etag;
  const response = await checked(
    await call(`api${path}`, {
      method,
      headers: headers(method, more),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: options.signal,
    }),
  );
  const text = await response.text();
  const revision = response.headers.get('ferrum-revision');
  return {
    data: text ? JSON.parse(text) : undefined,
    etag: response.headers.get('etag'),
    revision: revision === null ? null : Number(revision),
    status: response.status,
  };
}

export const get = async <T = any>(path: string, signal?: AbortSignal, poll = false): Promise<T> =>
  (await request<T>('GET', path, undefined, { signal, poll })).data;

/** Reads JSON lines as they come, until `signal` ends it or the gateway does. */
export async function follow(path: string, signal: AbortSignal, each: (records: any[]) => void, opened: () => void): Promise<void> {
  const response = await checked(await call(`api${path}`, { method: 'GET', signal }));
  opened();
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop() ?? '';
    const records: any[] = [];
    for (const line of lines) {
      if (!line) continue;
      try {
        records.push(JSON.parse(line));
      } catch {
        records.push({ kind: 'unreadable', line });
      }
    }
    if (records.length) each(records);
  }
}

export async function resume(): Promise<void> {
  try {
    const response = await call('session', { method: 'GET' });
    session.value = response.ok ? await response.json() : null;
  } catch {
    session.value = session.value ?? null;
  }
}

/** The ways to log in besides a token. */
export interface LoginWays {
  users: boolean;
  /** The label of the OpenID provider's button. */
  provider: string | null;
  /** Users may have passkeys: the console is opened by a host name. */
  passkeys: boolean;
}

/** Asks the console itself, before anybody is logged in. */
export async function talk(path: string): Promise<any> {
  const response = await call(path, { method: 'POST' });
  if (!response.ok) throw new ApiError(await problemOf(response));
  return response.json();
}

export async function loginWays(): Promise<LoginWays> {
  const response = await call('login', { method: 'GET' });
  if (!response.ok) throw new ApiError(await problemOf(response));
  return response.json();
}

export async function logIn(body: Record<string, unknown>): Promise<void> {
  const response = await call('session', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new ApiError(await problemOf(response));
  sessionEnd.value = '';
  session.value = await response.json();
}

export async function logOut(): Promise<void> {
  try {
    await call('session', { method: 'DELETE', headers: headers('DELETE', {}) });
  } finally {
    sessionEnd.value = '';
    session.value = null;
  }
}

export const errorText = (error: unknown): string => (error instanceof Error ? error.message : String(error));

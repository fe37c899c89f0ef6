// The console: a page chosen by the address, around it what all pages have.
import { effect } from '@preact/signals';
import { type ComponentType, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { connection, logOut, resume, session } from './lib/api';
import { draftSize, forget, loadSchemas } from './lib/objects';
import { href, place } from './lib/router';
import { status, troubleCount } from './lib/status';
import { t } from './strings';
import { Notice } from './ui/basics';
import { useAsk } from './ui/hooks';
import { Access } from './pages/access';
import { Approvals } from './pages/approvals';
import { Consumers } from './pages/consumers';
import { Explain } from './pages/explain';
import { Firewall } from './pages/firewall';
import { Fleet } from './pages/fleet';
import { Audit, Revisions } from './pages/history';
import { Login, Logo } from './pages/login';
import { Logs } from './pages/logs';
import { Now } from './pages/now';
import { Cache, Certificates, Sessions } from './pages/observe';
import { Plugins } from './pages/plugins';
import { Review } from './pages/review';
import { Routes } from './pages/routes';
import { Settings } from './pages/settings';
import { Upstreams } from './pages/upstreams';
import { SecondFactor } from './pages/second-factor';
import { OwnPassword, Users } from './pages/users';
import { Workspaces } from './pages/workspaces';

const PAGES: Record<string, ComponentType> = {
  now: Now,
  logs: Logs,
  explain: Explain,
  sessions: Sessions,
  routes: Routes,
  upstreams: Upstreams,
  consumers: Consumers,
  plugins: Plugins,
  access: Access,
  certificates: Certificates,
  firewall: Firewall,
  cache: Cache,
  approvals: Approvals,
  revisions: Revisions,
  audit: Audit,
  settings: Settings,
  review: Review,
  users: Users,
  fleet: Fleet,
  workspaces: Workspaces,
};

const GROUPS: [keyof typeof t.nav, string[]][] = [
  ['observe', ['now', 'logs', 'explain', 'sessions']],
  ['configure', ['routes', 'upstreams', 'consumers', 'plugins', 'access']],
  ['operate', ['certificates', 'firewall', 'cache', 'fleet']],
  ['govern', ['approvals', 'revisions', 'audit', 'settings', 'users', 'workspaces']],
];

const STATUS_EVERY = 5000;
/** How often a gateway that is away is asked whether it is back. */
const AWAY_EVERY = 2000;

function App() {
  useEffect(() => void resume(), []);
  if (session.value === undefined) return <p class="boot">{t.loading}</p>;
  if (!session.value) return <Login />;
  const { must_change_password, must_enrol_second_factor } = session.value;
  return must_change_password || must_enrol_second_factor ? <Unsettled /> : <Shell />;
}

function Shell() {
  useEffect(() => void loadSchemas().catch(() => undefined), [connection.value]);
  const [open, setOpen] = useState(false);
  const { page, parts } = place.value;
  // Who may not see everything begins with what is to be seen.
  const Chosen = (page === 'now' && session.value?.is_restricted ? PAGES.routes : PAGES[page]) ?? Now;
  useEffect(() => {
    setOpen(false);
    scrollTo(0, 0);
  }, [page, parts.join('/')]);
  useAsk('/v1/status', STATUS_EVERY, (now) => (status.value = now));
  return (
    <div class={`shell${open ? ' open' : ''}`}>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById('content')?.focus(); }}>
        {t.skip}
      </a>
      <Top toggle={() => setOpen(!open)} open={open} />
      <Nav page={page} />
      <div class="content">
        {connection.value === 'away' && <Away />}
        <Chosen key={`${page}/${parts.join('/')}`} />
      </div>
    </div>
  );
}

/** A user with a password that somebody else knows, or without a needed second factor, sees nothing before that is changed. */
function Unsettled() {
  const mustChange = session.value!.must_change_password;
  return (
    <main class="login" id="content">
      <div class="must">
        <h1>
          <Logo /> {t.product}
        </h1>
        <Notice kind="warn">{mustChange ? t.users.mustChange : t.factor.mustEnrol}</Notice>
        {mustChange ? <OwnPassword /> : <SecondFactor />}
        <button type="button" class="link" onClick={() => void logOut()}>
          {t.login.out}
        </button>
      </div>
    </main>
  );
}

function Away() {
  useEffect(() => {
    const timer = setInterval(() => void resume(), AWAY_EVERY);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="away">
      <Notice kind="bad">{t.away}</Notice>
    </div>
  );
}

function Top({ toggle, open }: { toggle: () => void; open: boolean }) {
  const who = session.value!;
  const now = status.value;
  return (
    <header class="top">
      <button type="button" class="quiet menu" aria-label={t.menu} aria-expanded={open} onClick={toggle}>
        ☰
      </button>
      <a class="brand" href={href('now')}>
        <Logo />
        {t.product}
      </a>
      <span class="meta">
        {now && (
          <>
            <span>{now.version}</span>
            <span>{`revision ${now.config?.revision ?? '–'}`}</span>
            <span>{who.mode === 'file' ? 'file' : now.database?.location}</span>
          </>
        )}
      </span>
      <span class="space" />
      {draftSize.value > 0 && (
        <a class="button primary" href={href('review')}>
          {t.draft.button(draftSize.value)}
        </a>
      )}
      <button type="button" class="quiet" aria-label={t.theme} title={t.theme} onClick={switchTheme}>
        ◐
      </button>
      <span class="who" title={t.login.as(who.name, who.role)}>
        {who.name} <em>{who.role}</em>
      </span>
      <button type="button" onClick={() => void logOut()}>
        {t.login.out}
      </button>
    </header>
  );
}

/** The pages for somebody whose role counts for some objects only; the others are about everything. */
const RESTRICTED = ['routes', 'upstreams', 'plugins', 'review', 'approvals'];
const isShown = (name: string): boolean =>
  name === 'approvals' || name === 'workspaces' ? session.value?.mode === 'database' && (name === 'approvals' || !session.value.is_restricted) : session.value?.is_restricted ? RESTRICTED.includes(name) : name !== 'fleet' || !!status.value?.fleet;

function Nav({ page }: { page: string }) {
  const bad = troubleCount(status.value).errors;
  return (
    <nav aria-label={t.nav.label}>
      {GROUPS.filter(([, pages]) => pages.some(isShown)).map(([group, pages]) => (
        <div>
          <h2>{t.nav[group]}</h2>
          <ul>
            {pages.filter(isShown).map((name) => (
              <li>
                <a href={href(name)} aria-current={page === name ? 'page' : undefined}>
                  {t.nav[name as keyof typeof t.nav]}
                  {name === 'now' && bad > 0 && <span class="count bad">{bad}</span>}
                </a>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  );
}

/** The theme is the system's until somebody switches it, for this browser. */
function switchTheme(): void {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
  try {
    localStorage.setItem('ferrum-theme', root.dataset.theme);
  } catch {
    // A browser that keeps nothing asks the system again.
  }
  dispatchEvent(new Event('ferrum-theme'));
}

try {
  const theme = localStorage.getItem('ferrum-theme');
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // As above.
}

addEventListener('beforeunload', (event) => {
  if (draftSize.value > 0 && session.value) event.preventDefault();
});

// `/` leads to the filter of a page, as in many lists.
addEventListener('keydown', (event) => {
  const at = event.target as HTMLElement;
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || at.closest('input, textarea, select, dialog, .code-editor')) return;
  const filter = document.querySelector<HTMLInputElement>('.toolbar input[type=search]');
  if (filter) {
    event.preventDefault();
    filter.focus();
  }
});

let who = '';
effect(() => {
  const next = session.value ? `${session.value.name}/${session.value.role}` : '';
  // What one user saw or changed is not the next one's. A session that ended keeps the draft for who logs in again.
  if (next && who && next !== who) forget();
  if (next) who = next;
});

render(<App />, document.getElementById('app')!);

// Logging in.
import { useState } from 'preact/hooks';
import { errorText, logIn, sessionEnd } from '../lib/api';
import { t } from '../strings';
import { Field, Notice } from '../ui/basics';

export function Login() {
  const [token, setToken] = useState('');
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [byName, setByName] = useState(remembered() === 'name');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const l = t.login;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    try {
      await logIn(byName ? { name: name.trim(), password } : { token: token.trim() });
      remember(byName ? 'name' : 'token');
    } catch (failed) {
      setError(errorText(failed));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login" id="content">
      <form onSubmit={submit}>
        <h1>
          <Logo /> {t.product}
        </h1>
        <p class="lead">{l.lead}</p>
        {sessionEnd.value && !error && <Notice kind="warn">{sessionEnd.value}</Notice>}
        {error && <Notice kind="bad">{error}</Notice>}
        {byName ? (
          <>
            <Field label={l.name} id="name">
              <input id="name" type="text" autocomplete="username" required spellcheck={false} value={name} onInput={(event) => setName(event.currentTarget.value)} />
            </Field>
            <Field label={l.password} id="password">
              <input id="password" type="password" autocomplete="current-password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
            </Field>
          </>
        ) : (
          <Field label={l.token} hint={l.tokenHint} id="token">
            <input id="token" type="password" autocomplete="current-password" required spellcheck={false} value={token} onInput={(event) => setToken(event.currentTarget.value)} />
          </Field>
        )}
        <button type="submit" class="primary wide" disabled={busy}>
          {l.submit}
        </button>
        <button type="button" class="link" onClick={() => setByName(!byName)}>
          {byName ? l.byToken : l.byUser}
        </button>
      </form>
    </main>
  );
}

// Which of the two somebody uses here, and nothing else.
const KEPT = 'ferrum-login';
function remembered(): string | null {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}
function remember(way: string): void {
  try {
    localStorage.setItem(KEPT, way);
  } catch {
    // A browser that keeps nothing shows the token first.
  }
}

export const Logo = () => (
  <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="7" />
    <path d="M9 8h14v4H13.500v3.200H21V19h-7.500v6H9z" />
  </svg>
);

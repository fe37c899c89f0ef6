// Logging in.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, errorText, logIn, loginWays, sessionEnd, type LoginWays } from '../lib/api';
import { canUsePasskeys, logInByPasskey } from '../lib/passkey';
import { go, place } from '../lib/router';
import { t } from '../strings';
import { Field, Notice } from '../ui/basics';

export function Login() {
  const [token, setToken] = useState('');
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [needsCode, setNeedsCode] = useState(false);
  const [byName, setByName] = useState(remembered() === 'name');
  const [busy, setBusy] = useState(false);
  const l = t.login;
  const failed = place.value.query.get('login');
  const [error, setError] = useState(failed ? (l.failed[failed] ?? l.failedOtherwise) : '');
  const [ways, setWays] = useState<LoginWays>({ users: true, provider: null, passkeys: false });
  useEffect(() => {
    // The address says it once.
    if (failed) go('#/now', true);
    loginWays().then(setWays, () => undefined);
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    try {
      const own = { name: name.trim(), password, ...(needsCode ? { code: code.trim() } : {}) };
      await logIn(byName ? own : { token: token.trim() });
      remember(byName ? 'name' : 'token');
    } catch (failed) {
      setCode('');
      if (failed instanceof ApiError && failed.problem.code === 'code_needed') setNeedsCode(true);
      else setError(errorText(failed));
    } finally {
      setBusy(false);
    }
  };
  const byPasskey = async () => {
    setBusy(true);
    setError('');
    try {
      await logInByPasskey();
    } catch (failed) {
      // What the browser says of a dialog that the user closed tells nobody anything.
      setError(failed instanceof ApiError ? errorText(failed) : l.passkeyFailed);
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
        {ways.provider && (
          <>
            <a class="button primary wide" href="oidc/login">
              {ways.provider}
            </a>
            <p class="or">{l.or}</p>
          </>
        )}
        {byName ? (
          <>
            <Field label={l.name} id="name">
              <input id="name" type="text" autocomplete="username" required spellcheck={false} value={name} onInput={(event) => setName(event.currentTarget.value)} />
            </Field>
            <Field label={l.password} id="password">
              <input id="password" type="password" autocomplete="current-password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
            </Field>
            {needsCode && (
              <Field label={l.code} hint={l.codeHint} id="code">
                <input id="code" type="text" autocomplete="one-time-code" required autofocus spellcheck={false} maxLength={40} value={code} onInput={(event) => setCode(event.currentTarget.value)} />
              </Field>
            )}
          </>
        ) : (
          <Field label={l.token} hint={l.tokenHint} id="token">
            <input id="token" type="password" autocomplete="current-password" required spellcheck={false} value={token} onInput={(event) => setToken(event.currentTarget.value)} />
          </Field>
        )}
        <button type="submit" class={ways.provider ? 'wide' : 'primary wide'} disabled={busy}>
          {l.submit}
        </button>
        {ways.passkeys && canUsePasskeys() && (
          <button type="button" class="wide" disabled={busy} onClick={() => void byPasskey()}>
            {l.passkey}
          </button>
        )}
        {(ways.users || byName) && (
          <button type="button" class="link" onClick={() => setByName(!byName)}>
            {byName ? l.byToken : l.byUser}
          </button>
        )}
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

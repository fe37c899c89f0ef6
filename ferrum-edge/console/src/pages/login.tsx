// Logging in.
import { useState } from 'preact/hooks';
import { errorText, logIn, sessionEnd } from '../lib/api';
import { t } from '../strings';
import { Field, Notice } from '../ui/basics';

export function Login() {
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const l = t.login;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError('');
    try {
      await logIn({ token: token.trim() });
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
        <Field label={l.token} hint={l.tokenHint} id="token">
          <input id="token" type="password" autocomplete="current-password" required spellcheck={false} value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </Field>
        <button type="submit" class="primary wide" disabled={busy}>
          {l.submit}
        </button>
      </form>
    </main>
  );
}

export const Logo = () => (
  <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="7" />
    <path d="M9 8h14v4H13.500v3.200H21V19h-7.500v6H9z" />
  </svg>
);

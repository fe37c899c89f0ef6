// One's own passkeys, and those of other users.
import { useState } from 'preact/hooks';
import { ApiError, errorText, may, request, session } from '../lib/api';
import { ago, time } from '../lib/format';
import { canUsePasskeys, makePasskey } from '../lib/passkey';
import { t } from '../strings';
import { Field, Notice, Panel } from '../ui/basics';
import { Commands } from '../ui/command-lines';
import { useId } from '../ui/hooks';

export interface Passkey {
  id: string;
  label: string;
  host: string;
  created_at: string;
  last_used_at: string | null;
}

export const passkeyPath = (name: string, id: string): string => `/v1/users/${encodeURIComponent(name)}/passkeys/${encodeURIComponent(id)}`;

/** `own` is known to administrators; others see those that they make here. */
export function Passkeys({ own, changed }: { own: Passkey[] | null; changed: () => void }) {
  const p = t.passkeys;
  const id = useId();
  const [password, setPassword] = useState('');
  const [label, setLabel] = useState('');
  const [error, setError] = useState('');
  const [done, setDone] = useState('');
  const name = session.value!.name;
  const make = async (event: Event) => {
    event.preventDefault();
    setError('');
    setDone('');
    try {
      await makePasskey(password, label.trim());
      setDone(label.trim());
      setPassword('');
      setLabel('');
      changed();
    } catch (failed) {
      setError(failed instanceof ApiError ? errorText(failed) : p.failed);
    }
  };
  const remove = async (passkey: Passkey) => {
    if (!confirm(p.removeSure(passkey.label, name))) return;
    setError('');
    try {
      await request('DELETE', passkeyPath(name, passkey.id));
      changed();
    } catch (failed) {
      setError(errorText(failed));
    }
  };
  return (
    <Panel title={p.title}>
      {error && <Notice kind="bad">{error}</Notice>}
      {done && <Notice kind="good">{done}</Notice>}
      <p class="hint">{p.lead}</p>
      {own && !own.length && <p class="muted">{p.none}</p>}
      {own && (
        <ul class="plain">
          {own.map((one) => (
            <li>
              <strong>{one.label}</strong> <span class="muted">{p.at(one.host)}</span>{' '}
              <span class="muted" title={time(one.last_used_at)}>{one.last_used_at ? p.usedAt(ago(one.last_used_at)) : p.unused}</span>{' '}
              <button type="button" class="link" aria-label={p.removeOf(one.label, name)} onClick={() => void remove(one)}>
                {p.remove}
              </button>
            </li>
          ))}
        </ul>
      )}
      {own && own.length > 0 && <Commands of={own.map((one) => ({ title: p.removeOf(one.label, name), call: { method: 'DELETE', path: passkeyPath(name, one.id) } }))} />}
      {!canUsePasskeys() ? (
        <p class="muted">{p.unable}</p>
      ) : (
        <form onSubmit={(event) => void make(event)}>
          <Field label={p.label} hint={p.labelHint} id={`${id}label`}>
            <input id={`${id}label`} type="text" required maxLength={64} autocomplete="off" value={label} onInput={(event) => setLabel(event.currentTarget.value)} />
          </Field>
          <Field label={p.password} id={`${id}password`}>
            <input id={`${id}password`} type="password" required autocomplete="current-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
          </Field>
          <div class="actions">
            <button type="submit" class="primary">
              {p.make}
            </button>
          </div>
        </form>
      )}
    </Panel>
  );
}

/** The passkeys of another user, for administrators. */
export function PasskeysOf({ name, passkeys, remove }: { name: string; passkeys: Passkey[]; remove: (path: string) => void }) {
  const p = t.passkeys;
  return (
    <>
      {passkeys.map((one) => (
        <span title={`${p.at(one.host)}, ${one.last_used_at ? p.usedAt(ago(one.last_used_at)) : p.unused}`}>
          {one.label}{' '}
          {may('admin') && (
            <button type="button" class="link" aria-label={p.removeOf(one.label, name)} onClick={() => confirm(p.removeSure(one.label, name)) && remove(passkeyPath(name, one.id))}>
              {p.remove}
            </button>
          )}{' '}
        </span>
      ))}
    </>
  );
}

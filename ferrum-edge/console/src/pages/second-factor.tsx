// One's own second factor: a secret for an authenticator app, a code that confirms it, recovery codes.
import { useState } from 'preact/hooks';
import { errorText, request, resume, session } from '../lib/api';
import { t } from '../strings';
import { Copy, Field, Notice, Panel } from '../ui/basics';
import { Commands } from '../ui/command-lines';
import { useId } from '../ui/hooks';
import { QrCode } from '../ui/qr-code';

export function SecondFactor() {
  const f = t.factor;
  const id = useId();
  const [password, setPassword] = useState('');
  const [current, setCurrent] = useState('');
  const [code, setCode] = useState('');
  const [begun, setBegun] = useState<{ secret: string; uri: string } | null>(null);
  const [codes, setCodes] = useState<string[]>([]);
  const [error, setError] = useState('');
  const path = `/v1/users/${encodeURIComponent(session.value!.name)}/totp`;
  const attempt = async (work: () => Promise<void>, event: Event) => {
    event.preventDefault();
    setError('');
    try {
      await work();
    } catch (failed) {
      setError(errorText(failed));
    }
  };
  const begin = async () => {
    const body = { password, ...(current.trim() ? { code: current.trim() } : {}) };
    setBegun((await request('POST', path, body)).data);
    setPassword('');
    setCurrent('');
  };
  const confirm = async () => {
    setCodes((await request('POST', `${path}/confirm`, { code: code.trim() })).data.recovery_codes);
    setBegun(null);
    setCode('');
  };
  const end = () => {
    setCodes([]);
    void resume();
  };
  return (
    <Panel title={f.own}>
      {error && <Notice kind="bad">{error}</Notice>}
      {codes.length > 0 ? (
        <>
          <Notice kind="good">{f.recovery}</Notice>
          <pre>{codes.join('\n')}</pre>
          <div class="actions">
            <Copy text={codes.join('\n')} />
            <button type="button" class="primary" onClick={end}>
              {f.done}
            </button>
          </div>
        </>
      ) : begun ? (
        <form onSubmit={(event) => void attempt(confirm, event)}>
          <p>{f.scan}</p>
          <QrCode text={begun.uri} label={f.scan} />
          <p>
            {f.secret} <code>{begun.secret}</code> <Copy text={begun.secret} />
          </p>
          <p>
            {f.uri} <code>{begun.uri}</code> <Copy text={begun.uri} />
          </p>
          <Field label={f.code} id={`${id}code`}>
            <input id={`${id}code`} type="text" inputMode="numeric" autocomplete="one-time-code" required maxLength={10} value={code} onInput={(event) => setCode(event.currentTarget.value)} />
          </Field>
          <div class="actions">
            <button type="submit" class="primary">
              {f.confirm}
            </button>
          </div>
        </form>
      ) : (
        <form onSubmit={(event) => void attempt(begin, event)}>
          <p class="hint">{f.lead}</p>
          <Field label={f.password} id={`${id}password`}>
            <input id={`${id}password`} type="password" required autocomplete="current-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
          </Field>
          <Field label={f.current} id={`${id}current`}>
            <input id={`${id}current`} type="text" autocomplete="one-time-code" spellcheck={false} maxLength={40} value={current} onInput={(event) => setCurrent(event.currentTarget.value)} />
          </Field>
          <div class="actions">
            <button type="submit" class="primary">
              {f.begin}
            </button>
          </div>
          <Commands
            of={[
              { title: f.begin, call: { method: 'POST', path, secrets: { password: 'PASSWORD' } } },
              { title: f.confirm, call: { method: 'POST', path: `${path}/confirm`, secrets: { code: 'CODE' } } },
            ]}
          />
        </form>
      )}
    </Panel>
  );
}

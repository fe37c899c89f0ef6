// Users of the console, and one's own password.
import { useState } from 'preact/hooks';
import { errorText, may, request, resume, session, sessionEnd } from '../lib/api';
import { ago, time } from '../lib/format';
import { fromYaml, toYaml } from '../lib/yaml';
import { t } from '../strings';
import { Copy, Dialog, DialogActions, Empty, Field, Notice, Page, Panel, Tag } from '../ui/basics';
import { type Command, CommandLines, Commands } from '../ui/command-lines';
import { useAsk, useId } from '../ui/hooks';
import { type Passkey, Passkeys, PasskeysOf, passkeyPath } from './passkeys';
import { SecondFactor } from './second-factor';
import { List, byText } from '../ui/list';

interface User {
  name: string;
  role: string;
  grants: { objects?: string[]; workspace?: string }[] | null;
  must_change_password: boolean;
  totp: 'none' | 'pending' | 'enrolled';
  totp_required: boolean;
  passkeys: Passkey[];
  created_at: string;
  last_login_at: string | null;
}

const ROLES = ['read', 'write', 'admin'];

const pathOf = (name: string) => `/v1/users/${encodeURIComponent(name)}`;

export function Users() {
  const u = t.users;
  const isStored = session.value?.mode === 'database';
  const asked = useAsk<{ items: User[] }>(isStored && may('admin') ? '/v1/users' : null);
  const [adding, setAdding] = useState(false);
  const [granting, setGranting] = useState<User | null>(null);
  const [commanding, setCommanding] = useState<User | null>(null);
  const [made, setMade] = useState<{ name: string; password: string } | null>(null);
  const [error, setError] = useState('');
  const change = async (method: string, path: string, body?: unknown) => {
    setError('');
    try {
      const { data } = await request(method, path, body);
      if (data?.password) setMade({ name: data.name, password: data.password });
      asked.again();
    } catch (failed) {
      setError(errorText(failed));
    }
  };
  const path = (user: User) => pathOf(user.name);
  return (
    <Page title={u.title} lead={u.lead} actions={isStored && may('admin') && <button type="button" class="primary" onClick={() => setAdding(true)}>{u.add}</button>}>
      {!isStored && <Notice>{u.fileMode}</Notice>}
      {(error || asked.error) && <Notice kind="bad">{error || asked.error}</Notice>}
      {isStored && !may('admin') && <Notice>{u.needsAdmin}</Notice>}
      {made && (
        <Notice kind="good">
          {u.made(made.name)} <code>{made.password}</code> <Copy text={made.password} />
        </Notice>
      )}
      {asked.data &&
        (asked.data.items.length ? (
          <div class="fill">
            <List<User>
              label={u.title}
              rows={asked.data.items}
              id={(row) => row.name}
              empty={u.empty}
              columns={[
                { name: 'name', title: u.name, width: '1.5fr', cell: (row) => <>{row.name} {row.must_change_password && <Tag kind="warn">{u.pending}</Tag>}</>, sort: byText((row) => row.name) },
                {
                  name: 'role',
                  title: u.role,
                  width: '9rem',
                  cell: (row) => (
                    <select aria-label={`${u.role}: ${row.name}`} value={row.role} onChange={(event) => void change('PATCH', path(row), { role: event.currentTarget.value })}>
                      {ROLES.map((role) => (
                        <option title={u.roles[role]}>{role}</option>
                      ))}
                    </select>
                  ),
                  sort: byText((row) => row.role),
                },
                {
                  name: 'grants',
                  title: u.grants,
                  width: '1fr',
                  cell: (row) => {
                    const covered = row.grants?.flatMap((grant) => grant.objects ?? [`workspace ${grant.workspace}`]).join(', ') ?? u.everything;
                    return (
                      <button type="button" class="link" aria-label={`${u.grantsOf(row.name)}: ${covered}`} disabled={row.role === 'admin'} onClick={() => setGranting(row)}>
                        {covered}
                      </button>
                    );
                  },
                },
                {
                  name: 'factor',
                  title: t.factor.title,
                  width: '1fr',
                  cell: (row) => (
                    <>
                      <label class="check">
                        <input type="checkbox" aria-label={t.factor.requiredOf(row.name)} checked={row.totp_required} onChange={(event) => void change('PATCH', path(row), { totp_required: event.currentTarget.checked })} />
                        {t.factor.required}
                      </label>{' '}
                      {row.totp === 'enrolled' && (
                        <button type="button" class="link" aria-label={t.factor.removeOf(row.name)} onClick={() => confirm(t.factor.removeSure(row.name)) && void change('DELETE', `${path(row)}/totp`)}>
                          {t.factor.remove}
                        </button>
                      )}{' '}
                      <PasskeysOf name={row.name} passkeys={row.passkeys} remove={(path) => void change('DELETE', path)} />
                    </>
                  ),
                },
                { name: 'login', title: u.lastLogin, width: '1fr', minor: true, cell: (row) => <span title={time(row.last_login_at)}>{row.last_login_at ? ago(row.last_login_at) : '–'}</span>, sort: byText((row) => row.last_login_at ?? '') },
                {
                  name: 'do',
                  title: '',
                  width: '22rem',
                  right: true,
                  cell: (row) => (
                    <>
                      <button type="button" class="small" aria-label={u.commandsOf(row.name)} onClick={() => setCommanding(row)}>
                        {t.editor.commands}
                      </button>{' '}
                      <button type="button" class="small" aria-label={`${u.reset}: ${row.name}`} onClick={() => void change('PATCH', path(row), { reset_password: true })}>
                        {u.reset}
                      </button>{' '}
                      <button type="button" class="small danger" aria-label={`${t.remove} ${row.name}`} onClick={() => confirm(u.removeSure(row.name)) && void change('DELETE', path(row))}>
                        {t.remove}
                      </button>
                    </>
                  ),
                },
              ]}
            />
          </div>
        ) : (
          <Empty>{u.empty}</Empty>
        ))}
      {session.value?.is_user && <OwnPassword />}
      {session.value?.is_user && <SecondFactor />}
      {session.value?.is_user && <Passkeys own={asked.data?.items.find((one) => one.name === session.value?.name)?.passkeys ?? null} changed={asked.again} />}
      {granting && (
        <Grants
          user={granting}
          close={() => setGranting(null)}
          save={(grants) => {
            setGranting(null);
            void change('PATCH', path(granting), { grants });
          }}
        />
      )}
      {commanding && (
        <Dialog title={u.commandsOf(commanding.name)} close={() => setCommanding(null)} wide>
          {commandsOf(commanding).map((one) => (
            <CommandLines {...one} />
          ))}
        </Dialog>
      )}
      {adding && (
        <Add
          close={() => setAdding(false)}
          add={(name, role) => {
            setAdding(false);
            void change('POST', '/v1/users', { name, role });
          }}
        />
      )}
    </Page>
  );
}

/** What an administrator can do with a user, besides grants, without the console. */
function commandsOf({ name, role, passkeys }: User): Command[] {
  const u = t.users;
  const patched = (title: string, body: unknown, words: string[]): Command => ({ title, call: { method: 'PATCH', path: pathOf(name), body }, cli: { words: ['users', ...words] } });
  const passkey = (one: Passkey): Command => ({ title: t.passkeys.removeOf(one.label, name), call: { method: 'DELETE', path: passkeyPath(name, one.id) } });
  return [
    patched(u.changeRole, { role }, ['role', name, '--role', role]),
    patched(u.reset, { reset_password: true }, ['reset-password', name]),
    patched(t.factor.requiredOf(name), { totp_required: true }, ['require-totp', name]),
    { title: t.factor.removeOf(name), call: { method: 'DELETE', path: `${pathOf(name)}/totp` }, cli: { words: ['users', 'reset-totp', name] } },
    ...passkeys.map(passkey),
    { title: t.remove, call: { method: 'DELETE', path: pathOf(name) }, cli: { words: ['users', 'remove', name] } },
  ];
}

function Add({ close, add }: { close: () => void; add: (name: string, role: string) => void }) {
  const u = t.users;
  const id = useId();
  const [name, setName] = useState('');
  const [role, setRole] = useState('read');
  const named = name.trim() || 'NAME';
  return (
    <Dialog title={u.add} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          add(name.trim(), role);
        }}
      >
        <Field label={u.name} id={`${id}name`}>
          <input id={`${id}name`} type="text" required maxLength={64} autocomplete="off" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={u.role} hint={u.roles[role]} id={`${id}role`}>
          <select id={`${id}role`} value={role} onChange={(event) => setRole(event.currentTarget.value)}>
            {ROLES.map((one) => (
              <option>{one}</option>
            ))}
          </select>
        </Field>
        <p class="hint">{u.passwordHint}</p>
        <DialogActions close={close} submit={u.add} />
        <Commands of={[{ title: u.add, call: { method: 'POST', path: '/v1/users', body: { name: named, role } }, cli: { words: ['users', 'add', named, '--role', role] } }]} />
      </form>
    </Dialog>
  );
}

function Grants({ user, close, save }: { user: User; close: () => void; save: (grants: unknown) => void }) {
  const u = t.users;
  const id = useId();
  const [text, setText] = useState(user.grants ? toYaml(user.grants) : '');
  const [error, setError] = useState('');
  const { value, errors } = fromYaml(text);
  const grants = text.trim() ? value : null;
  const submit = (event: Event) => {
    event.preventDefault();
    if (errors.length) setError(errors[0]!.message);
    else save(grants);
  };
  return (
    <Dialog title={u.grantsOf(user.name)} close={close}>
      <form onSubmit={submit}>
        {error && <Notice kind="bad">{error}</Notice>}
        <Field label={u.grants} hint={u.grantsHint} id={id}>
          <textarea id={id} rows={8} class="code" spellcheck={false} placeholder={'- objects: [team-a-*]\n  hosts: ["*.a.example"]'} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </Field>
        <DialogActions close={close} submit={u.save} />
        <Commands of={[{ title: u.grants, call: { method: 'PATCH', path: pathOf(user.name), body: { grants } }, cli: grants === null ? { words: ['users', 'grants', user.name, '--none'] } : { words: ['users', 'grants', user.name], document: grants } }]} />
      </form>
    </Dialog>
  );
}

/** The user chooses a password; that ends the session. */
export function OwnPassword() {
  const u = t.users;
  const id = useId();
  const [old, setOld] = useState('');
  const [fresh, setFresh] = useState('');
  const [error, setError] = useState('');
  const submit = async (event: Event) => {
    event.preventDefault();
    setError('');
    try {
      await request('POST', `/v1/users/${encodeURIComponent(session.value!.name)}/password`, { old, new: fresh });
      await resume();
      sessionEnd.value = u.changed;
    } catch (failed) {
      setError(errorText(failed));
    }
  };
  return (
    <Panel title={u.own}>
      <form onSubmit={submit}>
        {error && <Notice kind="bad">{error}</Notice>}
        <Field label={u.old} id={`${id}old`}>
          <input id={`${id}old`} type="password" required autocomplete="current-password" value={old} onInput={(event) => setOld(event.currentTarget.value)} />
        </Field>
        <Field label={u.fresh} hint={u.freshHint} id={`${id}new`}>
          <input id={`${id}new`} type="password" required minLength={12} autocomplete="new-password" value={fresh} onInput={(event) => setFresh(event.currentTarget.value)} />
        </Field>
        <div class="actions">
          <button type="submit" class="primary">
            {u.own}
          </button>
        </div>
        <Commands of={[{ title: u.own, call: { method: 'POST', path: `${pathOf(session.value!.name)}/password`, secrets: { old: 'OLD_PASSWORD', new: 'NEW_PASSWORD' } } }]} />
      </form>
    </Panel>
  );
}

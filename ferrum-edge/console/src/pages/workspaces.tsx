// Workspaces: named sets of objects, and who has them.
import { useState } from 'preact/hooks';
import { errorText, may, request, session } from '../lib/api';
import { toYaml } from '../lib/yaml';
import { t } from '../strings';
import { Code, Dialog, DialogActions, Field, Notice, Page } from '../ui/basics';
import { lines } from '../ui/form';
import { CommandLines, Commands } from '../ui/command-lines';
import { useAsk, useId } from '../ui/hooks';
import { List, byText } from '../ui/list';

const LISTS = ['objects', 'hosts', 'paths', 'ports'] as const;
const PROTOCOLS = ['http', 'tcp', 'udp'];

type Covers = Partial<Record<(typeof LISTS)[number] | 'protocols', string[]>>;

interface Workspace extends Covers {
  name: string;
  unreadable?: boolean;
  used_by: { users: { name: string; role: string }[]; provider_groups: { group: string; role: string }[]; edge_groups: string[] };
}

const pathOf = (name: string) => `/v1/workspaces/${encodeURIComponent(name)}`;

/** What it covers, without empty lists. */
function covers(workspace: Covers): Covers {
  const set = [...LISTS, 'protocols' as const].filter((key) => workspace[key]?.length);
  return Object.fromEntries(set.map((key) => [key, workspace[key]!]));
}

function holders({ used_by: { users, provider_groups, edge_groups } }: Workspace): string {
  const w = t.workspaces;
  const named = (list: { role: string }[], key: 'name' | 'group') => list.map((one: any) => `${one[key]} (${one.role})`).join(', ');
  const parts = [users.length && w.users(named(users, 'name')), provider_groups.length && w.provider(named(provider_groups, 'group')), edge_groups.length && w.edges(edge_groups.join(', '))];
  return parts.filter(Boolean).join('; ') || w.nobody;
}

export function Workspaces() {
  const w = t.workspaces;
  const isStored = session.value?.mode === 'database';
  const asked = useAsk<{ items: Workspace[] }>(isStored && may('admin') ? '/v1/workspaces' : null);
  const [editing, setEditing] = useState<Workspace | 'new' | null>(null);
  const [renaming, setRenaming] = useState<Workspace | null>(null);
  const [error, setError] = useState('');
  /** Tells whether it was done, so that a form stays open with what is wrong. */
  const change = async (method: string, path: string, body?: unknown): Promise<string> => {
    setError('');
    try {
      await request(method, path, body);
      asked.again();
      return '';
    } catch (failed) {
      return errorText(failed);
    }
  };
  const remove = async (row: Workspace) => {
    if (confirm(w.removeSure(row.name))) setError(await change('DELETE', pathOf(row.name)));
  };
  return (
    <Page title={w.title} lead={w.lead} actions={isStored && may('admin') && <button type="button" class="primary" onClick={() => setEditing('new')}>{w.add}</button>}>
      {!isStored && <Notice>{w.fileMode}</Notice>}
      {isStored && !may('admin') && <Notice>{w.needsAdmin}</Notice>}
      {(error || asked.error) && <Notice kind="bad">{error || asked.error}</Notice>}
      {asked.data && (
        <div class="fill">
          <List<Workspace>
            label={w.title}
            rows={asked.data.items}
            id={(row) => row.name}
            empty={w.empty}
            columns={[
              {
                name: 'name',
                title: w.name,
                width: '1fr',
                cell: (row) => (
                  <button type="button" class="link" onClick={() => setEditing(row)}>
                    {row.name}
                  </button>
                ),
                sort: byText((row) => row.name),
              },
              { name: 'covers', title: w.covers, width: '2fr', cell: (row) => (row.unreadable ? w.unreadable : Object.values(covers(row)).flat().join(', ')) },
              { name: 'used', title: w.usedBy, width: '2fr', cell: (row) => <span title={holders(row)}>{holders(row)}</span> },
              {
                name: 'do',
                title: '',
                width: '12rem',
                right: true,
                cell: (row) => (
                  <>
                    <button type="button" class="small" aria-label={w.renameOf(row.name)} onClick={() => setRenaming(row)}>
                      {w.rename}
                    </button>{' '}
                    <button type="button" class="small danger" aria-label={`${t.remove} ${row.name}`} onClick={() => void remove(row)}>
                      {t.remove}
                    </button>
                  </>
                ),
              },
            ]}
          />
        </div>
      )}
      {editing && <Edit workspace={editing === 'new' ? null : editing} close={() => setEditing(null)} save={(name, to) => change('PUT', pathOf(name), to)} />}
      {renaming && <Rename workspace={renaming} close={() => setRenaming(null)} rename={(name) => change('PATCH', pathOf(renaming.name), { name })} />}
    </Page>
  );
}

function Edit({ workspace, close, save }: { workspace: Workspace | null; close: () => void; save: (name: string, covers: Covers) => Promise<string> }) {
  const w = t.workspaces;
  const id = useId();
  const [name, setName] = useState(workspace?.name ?? '');
  const [texts, setTexts] = useState(() => Object.fromEntries(LISTS.map((key) => [key, (workspace?.[key] ?? []).join('\n')])) as Record<string, string>);
  const [protocols, setProtocols] = useState(workspace?.protocols ?? []);
  const [error, setError] = useState('');
  const now = covers({ ...Object.fromEntries(LISTS.map((key) => [key, lines(texts[key] ?? '')])), protocols });
  const named = name.trim() || 'NAME';
  const submit = async (event: Event) => {
    event.preventDefault();
    const wrong = await save(name.trim(), now);
    if (wrong) setError(wrong);
    else close();
  };
  return (
    <Dialog title={workspace?.name ?? w.add} close={close} wide>
      <form onSubmit={submit}>
        {error && <Notice kind="bad">{error}</Notice>}
        {!workspace && (
          <Field label={w.name} id={`${id}name`}>
            <input id={`${id}name`} type="text" required maxLength={64} autocomplete="off" value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </Field>
        )}
        {LISTS.map((key) => (
          <Field label={w[key]} hint={w.hints[key]} id={`${id}${key}`}>
            <textarea id={`${id}${key}`} data-list={key} rows={key === 'objects' ? 4 : 2} class="mono" required={key === 'objects'} spellcheck={false} value={texts[key]} onInput={(event) => setTexts({ ...texts, [key]: event.currentTarget.value })} />
          </Field>
        ))}
        <fieldset>
          <legend>{w.protocols}</legend>
          {PROTOCOLS.map((protocol) => (
            <label class="check">
              <input type="checkbox" checked={protocols.includes(protocol)} onChange={(event) => setProtocols(event.currentTarget.checked ? [...protocols, protocol] : protocols.filter((one) => one !== protocol))} /> {protocol}
            </label>
          ))}
          <p class="hint">{w.hints.protocols}</p>
        </fieldset>
        <DialogActions close={close} submit={w.save} />
        <details>
          <summary>{w.asYaml}</summary>
          <Code text={toYaml(now)} label={w.asYaml} />
          <CommandLines call={{ method: 'PUT', path: pathOf(named), body: now }} cli={{ words: ['workspaces', 'set', named], document: now }} />
          {workspace && <CommandLines title={t.remove} call={{ method: 'DELETE', path: pathOf(named) }} cli={{ words: ['workspaces', 'remove', named] }} />}
        </details>
      </form>
    </Dialog>
  );
}

function Rename({ workspace, close, rename }: { workspace: Workspace; close: () => void; rename: (name: string) => Promise<string> }) {
  const w = t.workspaces;
  const id = useId();
  const [name, setName] = useState(workspace.name);
  const to = name.trim() || 'NAME';
  const [error, setError] = useState('');
  const submit = async (event: Event) => {
    event.preventDefault();
    const wrong = await rename(name.trim());
    if (wrong) setError(wrong);
    else close();
  };
  return (
    <Dialog title={w.renameOf(workspace.name)} close={close}>
      <form onSubmit={submit}>
        {error && <Notice kind="bad">{error}</Notice>}
        <Field label={w.newName} hint={w.renameHint} id={id}>
          <input id={id} type="text" required maxLength={64} autocomplete="off" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <DialogActions close={close} submit={w.rename} />
        <Commands of={[{ title: w.rename, call: { method: 'PATCH', path: pathOf(workspace.name), body: { name: to } }, cli: { words: ['workspaces', 'rename', workspace.name, to] } }]} />
      </form>
    </Dialog>
  );
}

// The edges of a control plane, what each serves and why not the newest; and on an edge, where its configuration comes from.
import { useState } from 'preact/hooks';
import { errorText, may, request } from '../lib/api';
import { ago, time } from '../lib/format';
import { pageOf } from '../lib/places';
import { href } from '../lib/router';
import { status } from '../lib/status';
import { t } from '../strings';
import { Copy, Dialog, DialogActions, Dot, Empty, Field, Notice, Page, Panel, Tag } from '../ui/basics';
import { type Command, Commands } from '../ui/command-lines';
import { lines } from '../ui/form';
import { useAsk, useId } from '../ui/hooks';
import { List, byText } from '../ui/list';

interface Position {
  epoch: string;
  revision: number;
  hash: string;
}

interface Edge {
  id: string;
  name: string | null;
  group: string;
  standing: string;
  connected: boolean;
  version: string | null;
  served: Position | null;
  newest: Position | null;
  refused: { position: Position; reason: string } | null;
  broken: { count: number; objects: { kind: string; id: string; reason: string }[] };
  clock_skew_ms: number | null;
  certificate_ends_at: string | null;
  revoked_at: string | null;
}

interface Group {
  name: string;
  position: Position;
  proxies: string[] | null;
  workspaces: string[] | null;
  objects: number;
  edges: Record<string, number>;
}

interface Invitation {
  id: string;
  name: string | null;
  group: string;
  edge: string | null;
  expires_at: string;
}

const KINDS: Record<string, string> = { served: 'good', pending: 'warn', refused: 'bad', disconnected: 'bad', revoked: '', unknown: 'warn' };

export function Fleet() {
  const role = status.value?.fleet?.role;
  if (role === 'edge') return <AsEdge />;
  return <AsControl isOne={role === 'control-plane'} />;
}

function AsEdge() {
  const f = t.fleet;
  const edge = status.value.fleet;
  return (
    <Page title={f.title} lead={f.edgeLead}>
      {edge.problem && <Notice kind="bad">{edge.problem}</Notice>}
      {edge.revoked && <Notice kind="bad">{f.revoked}</Notice>}
      {edge.refused && <Notice kind="bad">{`${f.refusedHere(edge.refused.position?.revision)} ${edge.refused.reason}`}</Notice>}
      <Panel title={edge.name ?? edge.edge}>
        <dl>
          <dt>{f.control}</dt>
          <dd>{edge.control_plane ?? f.disconnected}</dd>
          <dt>{f.group}</dt>
          <dd>{edge.group}</dd>
          <dt>{f.serves}</dt>
          <dd>{edge.served ? `revision ${edge.served.revision}` : '–'}</dd>
          <dt>{t.certificates.ends}</dt>
          <dd>{`${time(edge.certificate_ends_at)} (${ago(edge.certificate_ends_at)})`}</dd>
        </dl>
      </Panel>
      <Broken objects={edge.broken} />
    </Page>
  );
}

function Broken({ objects }: { objects: { kind: string; id: string; reason: string }[] }) {
  if (!objects?.length) return null;
  return (
    <Panel title={t.fleet.broken}>
      <ul class="plain">
        {objects.map((one) => (
          <li>
            <a href={href(pageOf(one.kind), one.id)}>{one.id}</a> <span class="muted">{one.kind}</span> {one.reason}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function AsControl({ isOne }: { isOne: boolean }) {
  const f = t.fleet;
  const asked = useAsk<{ address: string; listening: string | null; connected: number; groups: Group[]; edges: Edge[] }>(isOne ? '/v1/fleet' : null, 2000);
  const waiting = useAsk<{ items: Invitation[] }>(isOne && may('admin') ? '/v1/fleet/invitations' : null, 2000);
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const [invitation, setInvitation] = useState<{ invitation: string; expires_at: string } | null>(null);
  const [open, setOpen] = useState<string | null>(null);
  const [inviting, setInviting] = useState(false);
  const [grouping, setGrouping] = useState<Group | null>(null);
  const run = async (method: string, path: string, body?: unknown) => {
    setResult(null);
    try {
      const { data } = await request(method, path, body);
      if (data?.invitation) setInvitation(data);
      asked.again();
      waiting.again();
    } catch (error) {
      setResult({ kind: 'bad', text: errorText(error) });
    }
  };
  const edges = asked.data?.edges ?? [];
  const chosen = edges.find((edge) => edge.id === open);
  return (
    <Page title={f.title} lead={f.lead} actions={isOne && may('admin') && <button type="button" class="primary" onClick={() => setInviting(true)}>{f.invite}</button>}>
      {!isOne && <Empty>{f.none}</Empty>}
      {asked.error && <Notice kind="bad">{asked.error}</Notice>}
      {result && <Notice kind={result.kind}>{result.text}</Notice>}
      {invitation && (
        <Notice kind="good">
          {f.invited(time(invitation.expires_at))} <code>{invitation.invitation}</code> <Copy text={invitation.invitation} />
        </Notice>
      )}
      {asked.data && (
        <>
          <Panel title={f.groups}>
            <ul class="plain">
              {asked.data.groups.map((group) => (
                <li>
                  <strong>{group.name}</strong> <span class="muted">{`revision ${group.position?.revision ?? '–'}, ${f.objects(group.objects)}, ${assigned(group)}`}</span>{' '}
                  {Object.entries(group.edges).map(([standing, n]) => (
                    <Tag kind={KINDS[standing] ?? ''}>{`${n} ${standing}`}</Tag>
                  ))}
                  {may('admin') && (
                    <button type="button" class="small" aria-label={`${t.edit} ${group.name}`} onClick={() => setGrouping(group)}>
                      {t.edit}
                    </button>
                  )}
                </li>
              ))}
            </ul>
          </Panel>
          <Invitations
            of={waiting.data?.items ?? []}
            withdraw={(id) => {
              setInvitation(null);
              void run('DELETE', `/v1/fleet/invitations/${encodeURIComponent(id)}`);
            }}
          />
          <div class="fill">
            <List<Edge>
              label={f.edges}
              rows={edges}
              id={(row) => row.id}
              empty={f.noEdges}
              columns={[
                { name: 'standing', title: t.routes.state, width: '8.5rem', cell: (row) => <Dot kind={KINDS[row.standing] ?? ''} label={row.standing} />, sort: byText((row) => row.standing) },
                {
                  name: 'name',
                  title: f.edge,
                  width: '1.5fr',
                  cell: (row) => (
                    <button type="button" class="link" onClick={() => setOpen(row.id)}>
                      {row.name || row.id}
                    </button>
                  ),
                  sort: byText((row) => row.name || row.id),
                },
                { name: 'group', title: f.group, width: '1fr', cell: (row) => row.group, sort: byText((row) => row.group) },
                { name: 'serves', title: f.serves, width: '1fr', cell: (row) => (row.served ? `${row.served.revision}${row.newest && row.newest.hash !== row.served.hash ? ` → ${row.newest.revision}` : ''}` : '–') },
                { name: 'why', title: f.why, width: '2fr', minor: true, cell: (row) => <span class="bad-text" title={row.refused?.reason ?? ''}>{row.refused?.reason ?? (row.broken.count ? f.brokenCount(row.broken.count) : row.clock_skew_ms ? f.skew(row.clock_skew_ms) : '')}</span> },
                { name: 'version', title: f.version, width: '6rem', minor: true, cell: (row) => row.version ?? '–', sort: byText((row) => row.version ?? '') },
              ]}
            />
          </div>
        </>
      )}
      {chosen && (
        <Dialog title={chosen.name || chosen.id} close={() => setOpen(null)} wide>
          <dl>
            <dt>ID</dt>
            <dd>
              <code>{chosen.id}</code>
            </dd>
            <dt>{f.group}</dt>
            <dd>{chosen.group}</dd>
            <dt>{t.routes.state}</dt>
            <dd>{chosen.standing}</dd>
            <dt>{t.certificates.ends}</dt>
            <dd>{chosen.certificate_ends_at ? time(chosen.certificate_ends_at) : '–'}</dd>
            {chosen.refused && (
              <>
                <dt>{f.why}</dt>
                <dd class="bad-text">{chosen.refused.reason}</dd>
              </>
            )}
          </dl>
          <Broken objects={chosen.broken.objects} />
          {may('admin') && (
            <div class="actions">
              {!chosen.revoked_at && (
                <button type="button" class="danger" onClick={() => confirm(f.revokeSure) && void run('POST', `/v1/fleet/edges/${encodeURIComponent(chosen.id)}/revoke`)}>
                  {f.revoke}
                </button>
              )}
              <button
                type="button"
                class="danger"
                onClick={() => {
                  if (confirm(f.removeSure)) {
                    setOpen(null);
                    void run('DELETE', `/v1/fleet/edges/${encodeURIComponent(chosen.id)}`);
                  }
                }}
              >
                {t.remove}
              </button>
            </div>
          )}
          {may('admin') && <Commands of={commandsOf(chosen)} />}
        </Dialog>
      )}
      {inviting && (
        <Invite
          close={() => setInviting(false)}
          groups={asked.data?.groups.map((group) => group.name) ?? []}
          invite={(body) => {
            setInviting(false);
            void run('POST', '/v1/fleet/invitations', body);
          }}
        />
      )}
      {grouping && (
        <Assign
          group={grouping}
          close={() => setGrouping(null)}
          assign={(to) => {
            setGrouping(null);
            void run('PUT', `/v1/fleet/groups/${encodeURIComponent(grouping.name)}`, to);
          }}
        />
      )}
    </Page>
  );
}

function Invitations({ of, withdraw }: { of: Invitation[]; withdraw: (id: string) => void }) {
  const f = t.fleet;
  const [chosen, setChosen] = useState<Invitation | null>(null);
  if (!of.length) return null;
  return (
    <Panel title={f.invitations}>
      <ul class="plain">
        {of.map((one) => (
          <li key={one.id}>
            <strong>{f.invitationFor(one.name, one.group)}</strong>{' '}
            <span class="muted">{[...(one.edge ? [f.invitationAgain(one.edge)] : []), f.expires(time(one.expires_at))].join(', ')}</span>{' '}
            <button type="button" class="small" aria-label={f.withdrawOne(one.name ?? one.id)} onClick={() => setChosen(one)}>
              {f.withdraw}
            </button>
          </li>
        ))}
      </ul>
      {chosen && (
        <Dialog title={f.withdrawOne(chosen.name ?? chosen.id)} close={() => setChosen(null)}>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              setChosen(null);
              withdraw(chosen.id);
            }}
          >
            <p class="hint">{f.withdrawHint}</p>
            <DialogActions close={() => setChosen(null)} submit={f.withdraw} />
            <Commands of={[{ title: f.withdraw, call: { method: 'DELETE', path: `/v1/fleet/invitations/${encodeURIComponent(chosen.id)}` }, cli: { words: ['fleet', 'withdraw', chosen.id] } }]} />
          </form>
        </Dialog>
      )}
    </Panel>
  );
}

/** What an administrator can do with an edge without the console. */
function commandsOf({ id, name, group }: Edge): Command[] {
  const f = t.fleet;
  const path = `/v1/fleet/edges/${encodeURIComponent(id)}`;
  const label = name || id;
  return [
    { title: f.rename, call: { method: 'PATCH', path, body: { name: label } }, cli: { words: ['fleet', 'rename', id, label] } },
    { title: f.move, call: { method: 'PATCH', path, body: { group } }, cli: { words: ['fleet', 'move', id, group] } },
    { title: f.revoke, call: { method: 'POST', path: `${path}/revoke` }, cli: { words: ['fleet', 'revoke', id] } },
    { title: f.again, call: { method: 'POST', path: '/v1/fleet/invitations', body: { edge: id } }, cli: { words: ['fleet', 'invite', '--again', id] } },
    { title: t.remove, call: { method: 'DELETE', path }, cli: { words: ['fleet', 'remove', id] } },
  ];
}

function Invite({ close, groups, invite }: { close: () => void; groups: string[]; invite: (body: Record<string, string>) => void }) {
  const f = t.fleet;
  const id = useId();
  const [name, setName] = useState('');
  const [group, setGroup] = useState(groups[0] ?? '');
  const asked = Object.fromEntries(Object.entries({ name: name.trim(), group: group.trim() }).filter(([, value]) => value));
  return (
    <Dialog title={f.invite} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          invite(asked);
        }}
      >
        <p class="hint">{f.inviteHint}</p>
        <Field label={f.edge} id={`${id}name`}>
          <input id={`${id}name`} type="text" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={f.group} id={`${id}group`}>
          <input id={`${id}group`} type="text" value={group} list={`${id}groups`} onInput={(event) => setGroup(event.currentTarget.value)} />
          <datalist id={`${id}groups`}>
            {groups.map((one) => (
              <option value={one} />
            ))}
          </datalist>
        </Field>
        <DialogActions close={close} submit={f.invite} />
        <Commands of={[{ title: f.invite, call: { method: 'POST', path: '/v1/fleet/invitations', body: asked }, cli: { words: ['fleet', 'invite', ...Object.entries(asked).flatMap(([key, value]) => [`--${key}`, value])] } }]} />
      </form>
    </Dialog>
  );
}

const assigned = (group: Group): string => (group.proxies ? [...group.proxies, ...(group.workspaces ?? []).map(t.fleet.ofWorkspace)].join(', ') || '–' : t.fleet.everything);

function Assign({ group, close, assign }: { group: Group; close: () => void; assign: (to: { proxies: string[] | null; workspaces?: string[] }) => void }) {
  const f = t.fleet;
  const id = useId();
  const [all, setAll] = useState(group.proxies === null);
  const [text, setText] = useState((group.proxies ?? []).join('\n'));
  const [workspaces, setWorkspaces] = useState((group.workspaces ?? []).join('\n'));
  const to = all ? { proxies: null } : { proxies: lines(text), workspaces: lines(workspaces) };
  const words = all ? ['--all'] : [...lines(text), ...lines(workspaces).flatMap((name) => ['--workspace', name])];
  return (
    <Dialog title={group.name} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          assign(to);
        }}
      >
        <label class="check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> {f.everything}
        </label>
        {!all && (
          <>
            <Field label={f.patterns} hint={f.patternsHint} id={id}>
              <textarea id={id} rows={6} class="mono" value={text} onInput={(event) => setText(event.currentTarget.value)} />
            </Field>
            <Field label={f.workspaces} hint={f.workspacesHint} id={`${id}workspaces`}>
              <textarea id={`${id}workspaces`} rows={3} class="mono" value={workspaces} onInput={(event) => setWorkspaces(event.currentTarget.value)} />
            </Field>
          </>
        )}
        <DialogActions close={close} submit={t.draft.apply} />
        <Commands of={[{ title: t.draft.apply, call: { method: 'PUT', path: `/v1/fleet/groups/${encodeURIComponent(group.name)}`, body: to }, cli: { words: ['fleet', 'assign', group.name, ...words] } }]} />
      </form>
    </Dialog>
  );
}

// Changes that another person has to approve: what waits, what it does to each object, and the decision.
import { useState } from 'preact/hooks';
import { errorText, may, request, session } from '../lib/api';
import { ago } from '../lib/format';
import { href, place } from '../lib/router';
import { t } from '../strings';
import { Empty, Field, Notice, Page, Panel, Tag } from '../ui/basics';
import { type Command, Commands } from '../ui/command-lines';
import { Diff } from '../ui/diff';
import { useAsk } from '../ui/hooks';
import { List } from '../ui/list';

const STATES = ['pending', 'approved', 'rejected', 'withdrawn', 'expired'];
const EVERY = 5000;

export function Approvals() {
  const number = place.value.parts[0];
  return number ? <One number={number} /> : <All />;
}

function All() {
  const a = t.approvals;
  const [state, setState] = useState('pending');
  const asked = useAsk(`/v1/changes?limit=200${state && `&state=${state}`}`, EVERY);
  const rows: any[] = asked.data?.items ?? [];
  return (
    <Page title={a.title} lead={a.lead}>
      {asked.error && <Notice kind="bad">{asked.error}</Notice>}
      {asked.data && !asked.data.rules && <Notice>{a.off}</Notice>}
      <div class="toolbar">
        <select aria-label={a.state} value={state} onChange={(event) => setState(event.currentTarget.value)}>
          <option value="">{`${a.state}: ${t.any}`}</option>
          {STATES.map((one) => (
            <option value={one}>{a.states[one]}</option>
          ))}
        </select>
      </div>
      <div class="fill">
        <List<any>
          label={a.title}
          rows={rows}
          id={(row) => String(row.number)}
          empty={asked.data ? a.empty : t.loading}
          columns={[
            { name: 'number', title: a.number, width: '5rem', cell: (row) => <a href={href('approvals', String(row.number))}>{row.number}</a> },
            { name: 'state', title: a.state, width: '7rem', cell: (row) => <State of={row.state} /> },
            { name: 'author', title: a.author, width: '1fr', cell: (row) => row.author },
            { name: 'objects', title: a.objects, width: '2fr', cell: (row) => named(row.objects) },
            { name: 'note', title: t.draft.message, width: '2fr', minor: true, cell: (row) => row.note },
            { name: 'at', title: a.made, width: '8rem', minor: true, cell: (row) => ago(row.created_at) },
          ]}
        />
      </div>
    </Page>
  );
}

const named = (objects: any[]): string => {
  const first = objects.slice(0, 3).map((one) => `${one.kind}/${one.id}`);
  return objects.length > 3 ? `${first.join(', ')} +${objects.length - 3}` : first.join(', ');
};

function State({ of }: { of: string }) {
  const kinds: Record<string, string> = { pending: 'warn', approved: 'good', rejected: 'bad' };
  return <Tag kind={kinds[of] ?? ''}>{t.approvals.states[of] ?? of}</Tag>;
}

/** The decisions without the console. */
function commandsOf(path: string, number: string, note: string, isOwn: boolean): Command[] {
  const a = t.approvals;
  const query = note && `?note=${encodeURIComponent(note)}`;
  const one = (title: string, method: string, at: string, word: string): Command => ({
    title,
    call: { method, path: `${path}${at}${query}` },
    cli: { words: ['changes', word, number, ...(note ? ['--note', note] : [])] },
  });
  return isOwn ? [one(a.withdraw, 'DELETE', '', 'withdraw')] : [one(a.approve, 'POST', '/approve', 'approve'), one(a.reject, 'POST', '/reject', 'reject')];
}

function One({ number }: { number: string }) {
  const a = t.approvals;
  const path = `/v1/changes/${encodeURIComponent(number)}`;
  const asked = useAsk(path, EVERY);
  const [note, setNote] = useState('');
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const [busy, setBusy] = useState(false);
  const change = asked.data;
  const decide = async (method: string, at: string, done: (revision: number) => string) => {
    setBusy(true);
    setResult(null);
    try {
      const { data } = await request(method, `${path}${at}?note=${encodeURIComponent(note.trim())}`);
      setResult({ kind: 'good', text: done(data?.revision) });
    } catch (error) {
      setResult({ kind: 'bad', text: errorText(error) });
    }
    setBusy(false);
    asked.again();
  };
  if (!change) return <Page title={a.one(number)}>{asked.error ? <Notice kind="bad">{asked.error}</Notice> : <Empty>{t.loading}</Empty>}</Page>;
  const waits = change.state === 'pending';
  const stale = change.changes.filter((one: any) => !one.fits).length;
  const isOwn = change.author === session.value?.name;
  return (
    <Page
      title={a.one(number)}
      lead={a.by(change.author, change.base)}
      actions={
        waits &&
        may('write') && (
          <>
            {isOwn && (
              <button type="button" disabled={busy} onClick={() => void decide('DELETE', '', () => a.withdrawn)}>
                {a.withdraw}
              </button>
            )}
            {!isOwn && (
              <button type="button" class="danger" disabled={busy || !!change.refusal} onClick={() => void decide('POST', '/reject', () => a.rejected)}>
                {a.reject}
              </button>
            )}
            <button type="button" class="primary" disabled={busy || !!change.refusal || stale > 0} onClick={() => void decide('POST', '/approve', a.applied)}>
              {a.approve}
            </button>
          </>
        )
      }
    >
      {result && <Notice kind={result.kind}>{result.text}</Notice>}
      {waits && change.refusal && <Notice>{change.refusal.detail}</Notice>}
      {waits && stale > 0 && <Notice kind="warn">{a.stale(stale)}</Notice>}
      <Panel>
        <p>
          <State of={change.state} /> {change.note}
        </p>
        {waits ? (
          <p class="muted">{a.until(change.expires_at)}</p>
        ) : (
          <p class="muted">
            {change.decided_by && a.decided(change.decided_by)} {change.reason} {change.revision && <a href={href('revisions')}>{`${t.revisions.revision} ${change.revision}`}</a>}
          </p>
        )}
        {waits && may('write') && (
          <Field label={a.note} hint={a.noteHint} id="decision-note">
            <input id="decision-note" type="text" maxLength={500} value={note} onInput={(event) => setNote(event.currentTarget.value)} />
          </Field>
        )}
        {waits && may('write') && <Commands of={commandsOf(path, number, note.trim(), isOwn)} />}
      </Panel>
      {waits
        ? change.changes.map((one: any) => (
            <Panel
              key={`${one.kind}/${one.id}`}
              title={
                <>
                  {one.id} <span class="muted">{one.kind}</span> <Tag kind={{ create: 'good', update: 'warn', delete: 'bad' }[one.action as string] ?? ''}>{one.action}</Tag>{' '}
                  {!one.fits && <Tag kind="bad">{a.changedMeanwhile}</Tag>}
                </>
              }
            >
              <Diff before={one.before} after={one.after} label={`${one.kind} ${one.id}`} />
            </Panel>
          ))
        : change.objects.map((one: any) => (
            <p key={`${one.kind}/${one.id}`}>
              {one.action} {one.kind}/{one.id}
            </p>
          ))}
    </Page>
  );
}

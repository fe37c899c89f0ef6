// The draft: what is different, what the gateway says of it, and applying it as one revision.
import { useState } from 'preact/hooks';
import { canEdit, errorText } from '../lib/api';
import { writtenText } from '../lib/written';
import { merge, same } from '../lib/diff';
import { type Change, type Conflict, apply, batchOf, conflicts, draft, findings, keyOf, propose, validate, withdraw } from '../lib/objects';
import { href } from '../lib/router';
import { pageOf } from '../lib/places';
import { lookAgain } from '../lib/status';
import { t } from '../strings';
import { Empty, Field, Marked, Notice, Page, Panel, ReadOnly, Tag } from '../ui/basics';
import { Diff } from '../ui/diff';
import { CommandLines } from '../ui/command-lines';

export function Review() {
  const changes = [...draft.value.values()];
  const batch = batchOf(changes).body;
  const [note, setNote] = useState('');
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const [applied, setApplied] = useState<{ changes: Change[]; revision: number } | null>(null);
  const [clashes, setClashes] = useState<Conflict[]>([]);
  const found = findings.value;
  const open = clashes.filter(({ change }) => draft.value.get(keyOf(change.kind, change.id)) === change);
  const during = async (work: () => Promise<void>) => {
    setBusy(true);
    setResult(null);
    setApplied(null);
    try {
      await work();
    } catch (error) {
      setResult({ kind: 'bad', text: errorText(error) });
    } finally {
      setBusy(false);
    }
  };
  /** The revision that the gateway checked these changes against; `null` when it refuses them. */
  const check = async (): Promise<string | null> => {
    const clashing = await conflicts(changes);
    setClashes(clashing);
    const checked = await validate(changes);
    findings.value = { at: Date.now(), errors: checked.errors, general: checked.general };
    if (checked.general) {
      setResult({ kind: 'bad', text: t.draft.invalid });
      return null;
    }
    return clashing.length ? null : (checked.etag ?? '');
  };
  const write = () =>
    during(async () => {
      const etag = await check();
      if (etag === null) return;
      try {
        const summary = await apply(changes, note.trim(), etag || null);
        draft.value = new Map();
        findings.value = null;
        setNote('');
        setResult({ kind: 'good', text: writtenText(summary) });
        if (summary.state !== 'pending') {
          setApplied({ changes, revision: summary.revision });
          void lookAgain();
        }
      } catch (error: any) {
        // Somebody was faster between the check and the write: look again.
        if (error.problem?.status === 412) setClashes(await conflicts(changes));
        throw error;
      }
    });
  const validateOnly = () =>
    during(async () => {
      if ((await check()) !== null) setResult({ kind: 'good', text: t.draft.valid });
    });
  return (
    <Page
      title={t.draft.title}
      lead={changes.length ? t.draft.lead : undefined}
      actions={
        changes.length > 0 &&
        canEdit() && (
          <>
            <button
              type="button"
              disabled={busy}
              onClick={() => {
                draft.value = new Map();
                findings.value = null;
                setResult(null);
              }}
            >
              {t.draft.discardAll}
            </button>
            <button type="button" disabled={busy} onClick={validateOnly}>
              {t.draft.validate}
            </button>
            <button type="button" class="primary" disabled={busy || open.length > 0} onClick={write}>
              {busy ? t.draft.applying : t.draft.apply}
            </button>
          </>
        )
      }
    >
      <ReadOnly />
      {result && <Notice kind={result.kind}>{result.text}</Notice>}
      {found?.general && <Findings />}
      {applied && changes.length === 0 && <Next {...applied} />}
      {changes.length === 0 && !result && <Empty>{t.draft.empty}</Empty>}
      {changes.length > 0 && (
        <Panel>
          <Field label={t.draft.message} hint={t.draft.messageHint} id="note">
            <input id="note" type="text" maxLength={500} value={note} onInput={(event) => setNote(event.currentTarget.value)} />
          </Field>
        </Panel>
      )}
      {open.map((conflict) => (
        <ThreeWay key={keyOf(conflict.change.kind, conflict.change.id)} conflict={conflict} />
      ))}
      {changes.map((change) => (
        <Proposed key={keyOf(change.kind, change.id)} change={change} />
      ))}
      {changes.length > 0 && (
        <Panel>
          <details>
            <summary>{t.editor.commands}</summary>
            <CommandLines call={{ method: 'POST', path: `/v1/batch${note.trim() ? `?note=${encodeURIComponent(note.trim())}` : ''}`, body: batch }} cli={batch.delete ? undefined : { words: ['apply', ...(note.trim() ? ['--note', note.trim()] : [])], document: batch }} />
          </details>
        </Panel>
      )}
    </Page>
  );
}

/** Where people go after a change: the objects, their requests, the way back. */
function Next({ changes, revision }: { changes: Change[]; revision: number }) {
  const kept = changes.filter((change) => change.next);
  const proxy = kept.find((change) => change.kind === 'proxies');
  const d = t.draft;
  return (
    <Panel title={d.next}>
      <ul class="plain">
        {kept.slice(0, 20).map((change) => (
          <li>
            <a href={href(pageOf(change.kind), change.id)}>{change.id}</a> <span class="muted">{change.kind}</span>
          </li>
        ))}
        {proxy && (
          <li>
            <a href={href('access')}>{d.nextAccess}</a>
          </li>
        )}
        <li>
          <a href={`${href('logs')}${proxy ? `?proxy=${encodeURIComponent(proxy.id)}` : ''}`}>{d.nextLogs}</a>
        </li>
        <li>
          <a href={href('revisions', String(revision))}>{d.nextRevision(revision)}</a>
        </li>
      </ul>
    </Panel>
  );
}

function Findings() {
  const { errors, general } = findings.value!;
  return (
    <Notice kind="bad">
      {general}
      <ul>
        {[...errors].flatMap(([key, list]) =>
          list.map((error) => (
            <li>
              {key && <strong>{key}</strong>} <code>{error.pointer || '/'}</code> <Marked text={error.detail + (error.remedy ? ` (${error.remedy})` : '')} />
            </li>
          )),
        )}
      </ul>
    </Notice>
  );
}

function Proposed({ change }: { change: Change }) {
  const { kind, id, base, next } = change;
  const [tag, word] = !base ? ['good', t.draft.create] : !next ? ['bad', t.draft.delete] : ['warn', t.draft.update];
  const wrong = findings.value?.errors.get(keyOf(kind, id))?.length ?? 0;
  return (
    <Panel
      title={
        <>
          <a href={href(pageOf(kind), id)}>{id}</a> <span class="muted">{kind}</span> <Tag kind={tag}>{word}</Tag> {wrong > 0 && <Tag kind="bad">{t.editor.problems(wrong)}</Tag>}
        </>
      }
      actions={
        <button type="button" class="small" onClick={() => withdraw(kind, id)} aria-label={`${t.draft.discard}: ${id}`}>
          {t.draft.discard}
        </button>
      }
    >
      <Diff before={base} after={hidden(next)} label={`${kind} ${id}`} />
    </Panel>
  );
}

/** Credentials that were entered show once, where they were entered. */
function hidden(doc: any): any {
  if (!doc?.credentials) return doc;
  const veil = (value: any): any => {
    if (typeof value === 'string') return '•••';
    if (Array.isArray(value)) return value.map(veil);
    if (value && typeof value === 'object') {
      return 'fingerprint' in value ? value : Object.fromEntries(Object.entries(value).map(([key, one]) => [key, veil(one)]));
    }
    return value;
  };
  return { ...doc, credentials: veil(doc.credentials) };
}

function ThreeWay({ conflict }: { conflict: Conflict }) {
  const { change, theirs, revision } = conflict;
  const { kind, id, base, next } = change;
  const { value, conflicts: both } = merge(base ?? undefined, next ?? undefined, theirs ?? undefined);
  const resolve = (doc: any) => {
    if (same(doc ?? null, theirs)) withdraw(kind, id);
    else propose({ kind, id, base: theirs, revision, next: doc ?? null });
  };
  const canMerge = !!next && !!theirs;
  return (
    <section class="panel conflict" aria-label={`${t.draft.conflict}: ${id}`}>
      <header>
        <h2>
          {id} <span class="muted">{kind}</span> <Tag kind="bad">{t.draft.conflict}</Tag>
        </h2>
      </header>
      <div class="panel-body">
        <p>{t.draft.conflictLead}</p>
        <div class="three">
          <div>
            <h3>{`${t.draft.base} → ${t.draft.theirs}`}</h3>
            {theirs ? <Diff before={base} after={theirs} label={t.draft.theirs} /> : <Tag kind="bad">{t.draft.gone}</Tag>}
          </div>
          <div>
            <h3>{`${t.draft.base} → ${t.draft.mine}`}</h3>
            {next ? <Diff before={base} after={hidden(next)} label={t.draft.mine} /> : <Tag kind="bad">{t.draft.delete}</Tag>}
          </div>
          {canMerge && (
            <div>
              <h3>{`${t.draft.theirs} → ${t.draft.merged}`}</h3>
              <Diff before={theirs} after={hidden(value)} label={t.draft.merged} />
              {both.length > 0 && <p class="hint">{t.draft.mergedOpen(both.join(', '))}</p>}
            </div>
          )}
        </div>
        <div class="actions">
          {canMerge && (
            <button type="button" class="primary" onClick={() => resolve(value)}>
              {t.draft.keepMerged}
            </button>
          )}
          <button type="button" onClick={() => resolve(next)}>
            {t.draft.keepMine}
          </button>
          <button type="button" onClick={() => withdraw(kind, id)}>
            {t.draft.keepTheirs}
          </button>
        </div>
      </div>
    </section>
  );
}

// Revisions and the audit.
import { useEffect, useState } from 'preact/hooks';
import { errorText, get, may, request, session } from '../lib/api';
import { ago, time } from '../lib/format';
import { reload } from '../lib/objects';
import { pageOf } from '../lib/places';
import { lookAgain } from '../lib/status';
import { writtenText } from '../lib/written';
import { href, place } from '../lib/router';
import { t } from '../strings';
import { Code, Dialog, Notice, Page, Panel, Tag } from '../ui/basics';
import { Commands } from '../ui/command-lines';
import { Diff } from '../ui/diff';
import { useAsk, useSettled } from '../ui/hooks';
import { List } from '../ui/list';

export function Revisions() {
  const { parts } = place.value;
  if (session.value?.mode === 'file') {
    return (
      <Page title={t.revisions.title} lead={t.revisions.lead}>
        <Notice>{t.revisions.fileMode}</Notice>
      </Page>
    );
  }
  return parts[0] ? <Revision id={parts[0]} key={parts[0]} /> : <All />;
}

/** Pages of a list, the newest first. */
function usePages(path: string) {
  const [items, setItems] = useState<any[]>([]);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState('');
  const [loaded, setLoaded] = useState(false);
  const load = async (before: string | null) => {
    try {
      const page = await get<{ items: any[]; next: string | null }>(`${path}${before ? `${path.includes('?') ? '&' : '?'}before=${encodeURIComponent(before)}` : ''}`);
      setItems((known) => (before ? [...known, ...page.items] : page.items));
      setNext(page.next);
      setError('');
    } catch (failed) {
      setError(errorText(failed));
    }
    setLoaded(true);
  };
  useEffect(() => {
    setLoaded(false);
    void load(null);
  }, [path]);
  return { items, next, error, loaded, more: () => load(next), again: () => load(null) };
}

const changesOf = (row: any): string => [row.created && `+${row.created}`, row.updated && `~${row.updated}`, row.deleted && `−${row.deleted}`].filter(Boolean).join(' ') || '0';

function All() {
  const { items, next, error, loaded, more } = usePages('/v1/revisions?limit=200');
  const r = t.revisions;
  const download = async () => {
    const { data } = await request('GET', '/v1/export');
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([JSON.stringify(data, null, 2)], { type: 'application/json' }));
    link.download = 'ferrum.json';
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <Page title={r.title} lead={r.lead} actions={<button type="button" onClick={download}>{r.export}</button>}>
      {error && <Notice kind="bad">{error}</Notice>}
      <div class="fill">
        <List<any>
          label={r.title}
          rows={items}
          id={(row) => String(row.revision)}
          empty={loaded ? r.empty : t.loading}
          columns={[
            { name: 'revision', title: r.revision, width: '6rem', narrow: '4.2rem', cell: (row) => <a href={href('revisions', String(row.revision))}>{row.revision}</a> },
            { name: 'when', title: r.when, width: '12.5rem', narrow: '10.5rem', cell: (row) => <span title={ago(row.at)}>{time(row.at)}</span> },
            { name: 'who', title: r.who, width: '1fr', minor: true, cell: (row) => <>{row.author} <span class="muted">{row.source}</span></> },
            { name: 'changes', title: r.changes, width: '7rem', minor: true, cell: (row) => <code>{changesOf(row)}</code> },
            { name: 'note', title: r.note, width: '2fr', cell: (row) => row.note || <span class="muted">–</span> },
          ]}
        />
      </div>
      {next && (
        <button type="button" onClick={more}>
          {t.more}
        </button>
      )}
    </Page>
  );
}

function Changes({ changes, truncated }: { changes: any[]; truncated?: boolean }) {
  if (!changes.length) return <p class="muted">{t.revisions.none}</p>;
  return (
    <>
      {changes.map((change) => {
        const [kind, word] = !change.before ? ['good', t.draft.create] : !change.after ? ['bad', t.draft.delete] : ['warn', t.draft.update];
        return (
          <Panel title={<><a href={href(pageOf(change.kind), change.id)}>{change.id}</a> <span class="muted">{change.kind}</span> <Tag kind={kind}>{word}</Tag></>}>
            <Diff before={change.before} after={change.after} label={`${change.kind} ${change.id}`} />
          </Panel>
        );
      })}
      {truncated && <p class="muted">…</p>}
    </>
  );
}

function Revision({ id }: { id: string }) {
  const r = t.revisions;
  const asked = useAsk<any>(`/v1/revisions/${encodeURIComponent(id)}`);
  const [against, setAgainst] = useState<any>(null);
  const [rolling, setRolling] = useState(false);
  const [result, setResult] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const compare = async () => {
    try {
      setAgainst(await get(`/v1/diff?from=${encodeURIComponent(id)}`));
    } catch (error) {
      setResult({ kind: 'bad', text: errorText(error) });
    }
  };
  const data = asked.data;
  return (
    <Page
      title={`${r.revision} ${id}`}
      lead={data ? `${time(data.at)}, ${data.author} (${data.source})${data.note ? `: ${data.note}` : ''}` : ''}
      actions={
        <>
          <button type="button" onClick={compare}>
            {r.compare}
          </button>
          {may('admin') && (
            <button type="button" class="danger" onClick={() => setRolling(true)}>
              {r.rollback}
            </button>
          )}
        </>
      }
    >
      <p class="crumbs">
        <a href={href('revisions')}>{r.title}</a>
      </p>
      {asked.error && <Notice kind="bad">{asked.error}</Notice>}
      {result && <Notice kind={result.kind}>{result.text}</Notice>}
      {against && (
        <>
          <h2>{`${r.compare}: ${against.from} → ${against.to}`}</h2>
          <Changes changes={against.changes} truncated={against.truncated} />
        </>
      )}
      {data && !against && <Changes changes={data.changes} truncated={data.truncated} />}
      {rolling && <Rollback id={id} close={() => setRolling(false)} done={(result) => setResult(result)} />}
    </Page>
  );
}

/** A value of a field, on one line. */
const shortened = (value: unknown): string => {
  const text = value === null ? '–' : JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};

function Rollback({ id, close, done }: { id: string; close: () => void; done: (result: { kind: 'good' | 'bad'; text: string }) => void }) {
  const r = t.revisions;
  const [keep, setKeep] = useState(true);
  const [note, setNote] = useState('');
  const [preview, setPreview] = useState<any>(null);
  const [etag, setEtag] = useState<string | null>(null);
  const [error, setError] = useState('');
  const path = (more: Record<string, string>) => `/v1/revisions/${encodeURIComponent(id)}/rollback?${new URLSearchParams({ details: 'true', ...(keep ? { keep_credentials: 'true' } : {}), ...more })}`;
  useEffect(() => {
    setError('');
    request('POST', path({ validate_only: 'true' })).then(
      ({ data, etag }) => {
        setPreview(data);
        setEtag(etag);
      },
      (failed) => setError(errorText(failed)),
    );
  }, [keep]);
  const noted: Record<string, string> = note.trim() ? { note: note.trim() } : {};
  const run = async () => {
    try {
      const { data } = await request('POST', path(noted), undefined, { etag });
      reload('proxies', 'upstreams', 'plugin_configs', 'consumers');
      void lookAgain();
      done({ kind: 'good', text: writtenText(data) });
      close();
    } catch (failed) {
      setError(errorText(failed));
    }
  };
  return (
    <Dialog title={r.rollback} close={close} wide>
      <p>{r.rollbackLead(Number(id))}</p>
      {error && <Notice kind="bad">{error}</Notice>}
      <label class="check">
        <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} /> {r.keep}
      </label>
      {preview && (
        <>
          <h3>{r.preview}</h3>
          {!preview.changes?.length && <p class="muted">{r.none}</p>}
          <ul class="plain scroll">
            {(preview.changes ?? []).slice(0, 500).map((change: any) => (
              <li>
                <Tag kind={{ create: 'good', update: 'warn', delete: 'bad' }[change.action as string] ?? ''}>{change.action}</Tag> {change.id} <span class="muted">{change.kind}</span>
                {(change.fields ?? []).slice(0, 20).map((field: any) => (
                  <div class="field-change">
                    <code>{field.path.slice(1)}</code>: {shortened(field.before)} → {shortened(field.after)}
                  </div>
                ))}
              </li>
            ))}
          </ul>
        </>
      )}
      <div class="field">
        <label for="rollback-note">{t.draft.message}</label>
        <input id="rollback-note" type="text" value={note} onInput={(event) => setNote(event.currentTarget.value)} />
      </div>
      <div class="actions">
        <button type="button" onClick={close}>
          {t.cancel}
        </button>
        <button type="button" class="danger" disabled={!preview} onClick={run}>
          {r.rollback}
        </button>
      </div>
      <Commands of={[{ title: r.rollback, call: { method: 'POST', path: path(noted) }, cli: { words: ['rollback', id, ...(keep ? ['--keep-credentials'] : []), ...(noted.note ? ['--note', noted.note] : [])] } }]} />
    </Dialog>
  );
}

/** Day and time; on narrow screens the time, since the entry has the day. */
function When({ at }: { at: string }) {
  const [day, clock] = time(at).split(', ');
  return (
    <span title={time(at)}>
      <span class="minor">{`${day}, `}</span>
      {clock}
    </span>
  );
}

export function Audit() {
  const a = t.audit;
  const [actor, setActor] = useState('');
  const [outcome, setOutcome] = useState('');
  const [open, setOpen] = useState<any>(null);
  const [verdict, setVerdict] = useState<{ kind: 'good' | 'bad'; text: string } | null>(null);
  const query = new URLSearchParams({ limit: '100' });
  if (actor.trim()) query.set('actor', actor.trim());
  if (outcome) query.set('outcome', outcome);
  const { items, next, error, loaded, more, again } = usePages(useSettled(`/v1/audit?${query}`, 300));
  const verify = async () => {
    try {
      const found = await get<any>('/v1/audit/verify');
      setVerdict(found.valid ? { kind: 'good', text: a.whole(found.entries) } : { kind: 'bad', text: `${a.broken} ${JSON.stringify(found.broken)}` });
    } catch (failed) {
      setVerdict({ kind: 'bad', text: errorText(failed) });
    }
  };
  return (
    <Page
      title={a.title}
      lead={a.lead}
      actions={
        <>
          <button type="button" onClick={again}>
            {t.refresh}
          </button>
          <button type="button" onClick={verify}>
            {a.verify}
          </button>
        </>
      }
    >
      {error && <Notice kind="bad">{error}</Notice>}
      {verdict && <Notice kind={verdict.kind}>{verdict.text}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={a.actor} placeholder={a.actor} value={actor} onInput={(event) => setActor(event.currentTarget.value)} />
        <select aria-label={a.outcome} value={outcome} onChange={(event) => setOutcome(event.currentTarget.value)}>
          <option value="">{`${a.outcome}: ${t.any}`}</option>
          {['allowed', 'refused', 'failed'].map((one) => (
            <option>{one}</option>
          ))}
        </select>
      </div>
      <div class="fill">
        <List<any>
          label={a.title}
          rows={items}
          id={(row) => `${row.seq} ${row.hash}`}
          empty={loaded ? a.empty : t.loading}
          columns={[
            { name: 'when', title: t.revisions.when, width: '12.5rem', narrow: '4.9rem', cell: (row) => <When at={row.at} /> },
            { name: 'outcome', title: a.outcome, width: '6.5rem', narrow: '4.6rem', cell: (row) => <Tag kind={row.outcome === 'allowed' ? 'good' : row.outcome === 'refused' ? 'warn' : 'bad'}>{row.outcome}</Tag> },
            { name: 'actor', title: a.actor, width: '1fr', cell: (row) => row.actor },
            {
              name: 'action',
              title: a.action,
              width: '2fr',
              cell: (row) => (
                <button type="button" class="link mono" onClick={() => setOpen(row)}>
                  {row.action}
                </button>
              ),
            },
            { name: 'source', title: a.source, width: '7.5rem', minor: true, cell: (row) => row.source },
            { name: 'peer', title: a.peer, width: '1fr', minor: true, cell: (row) => row.peer ?? '–' },
          ]}
        />
      </div>
      {next && (
        <button type="button" onClick={more}>
          {t.more}
        </button>
      )}
      {open && (
        <Dialog title={`${a.title} ${open.seq}`} close={() => setOpen(null)} wide>
          <Code text={JSON.stringify(open, null, 2)} label={a.title} />
        </Dialog>
      )}
    </Page>
  );
}

// One object: as a form, as YAML, as commands, and what is different from what is stored. What is changed goes to the draft
// and is checked with it, so each finding shows at its field before anything is applied.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { canEdit, errorText, type FieldError } from '../lib/api';
import { type Change, DEFINITIONS, type Doc, type Kind, current, draft, drafted, inDraft, judge, keyOf, plain, plugins, propose, schema, shelf, validate, want, withdraw } from '../lib/objects';
import { go, href } from '../lib/router';
import type { Shape } from '../lib/schema';
import { status } from '../lib/status';
import { same } from '../lib/diff';
import { diagnostics, objectFromYaml, toYaml } from '../lib/yaml';
import { t } from '../strings';
import { Dot, Notice, Page, Panel, ReadOnly, Tabs, Tag } from '../ui/basics';
import { Diff } from '../ui/diff';
import { ObjectForm } from '../ui/form';
import { useAsk, useSettled } from '../ui/hooks';
import { CommandLines } from '../ui/command-lines';
import { YamlEditor } from '../ui/yaml-editor';

export interface ObjectPageProps {
  kind: Kind;
  /** `null` for a new object. */
  id: string | null;
  title: string;
  /** What a new object begins with. */
  begin?: Doc;
  common: string[];
  hidden?: string[];
  /** Below the editor, for the object as it is edited. */
  aside?: (doc: Doc, set: (doc: Doc) => void, locked: boolean) => ComponentChildren;
  /** Between the head and the editor. */
  before?: (doc: Doc, set: (doc: Doc) => void, locked: boolean) => ComponentChildren;
  back: string;
}

const CHECK_AFTER = 400;

export const freshId = (): string => Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte) => byte.toString(16).padStart(2, '0')).join('');

export function shapeOf(kind: Kind, doc: Doc): Shape | null {
  const root = schema.value;
  if (!root) return null;
  const whole = root.$defs[DEFINITIONS[kind]];
  if (kind !== 'plugin_configs') return { schema: whole, root };
  const plugin = plugins.value.find((one) => one.name === doc.plugin_name);
  if (!plugin) return { schema: whole, root };
  // The plugin's own definitions are in a document of their own.
  const merged = { ...root, $defs: { ...root.$defs, ...plugin.schema.$defs } };
  const { $defs: _, title: _title, ...config } = plugin.schema;
  return { schema: { ...whole, properties: { ...whole.properties, config } }, root: merged };
}

export function ObjectPage(props: ObjectPageProps) {
  const { kind, id } = props;
  const [stored, setStored] = useState<Doc | null | undefined>(id === null ? null : undefined);
  const [error, setError] = useState('');
  useEffect(() => {
    let gone = false;
    setError('');
    setStored(id === null ? null : undefined);
    if (id === null) return;
    const known = shelf(kind).items.find((item) => item.id === id);
    if (known && inDraft(kind, id)) setStored(known);
    current(kind, id).then(
      (object) => !gone && setStored(object),
      (failed) => !gone && setError(errorText(failed)),
    );
    return () => {
      gone = true;
    };
  }, [kind, id]);
  const isReady = stored !== undefined && schema.value;
  const isMissing = isReady && id !== null && stored === null && !inDraft(kind, id);
  if (error || isMissing || !isReady) {
    return (
      <Page title={id ?? props.title}>
        <p class="crumbs">
          <a href={href(props.back)}>{t.nav[props.back as keyof typeof t.nav]}</a>
        </p>
        {error ? <Notice kind="bad">{error}</Notice> : isMissing ? <Notice kind="warn">{t.editor.missing}</Notice> : <p class="muted">{t.loading}</p>}
      </Page>
    );
  }
  return <Editing key={`${kind}/${id}`} {...props} stored={stored} />;
}

function Editing({ kind, id, title, begin, common, hidden, aside, before, back, stored }: ObjectPageProps & { stored: Doc | null }) {
  const isOnEdges = !!id && !!stored && status.value?.fleet?.role === 'control-plane';
  const locked = !canEdit();
  const pending = id === null ? undefined : inDraft(kind, id);
  const base = pending ? pending.base : stored && plain(stored);
  const revision = pending ? pending.revision : (stored?.revision ?? null);
  const [doc, setDoc] = useState<Doc>(pending?.next ?? base ?? begin ?? {});
  const [tab, setTab] = useState('form');
  const [text, setText] = useState<string | null>(null);
  const parsed = useMemo(() => (text === null ? null : objectFromYaml(text, id)), [text]);
  const isDeleted = pending !== undefined && pending.next === null;
  const key = id ?? (typeof doc.id === 'string' ? doc.id : '');
  // A new object that nobody has typed anything into is not told what it lacks.
  const isChanged = !same(doc, base ?? begin ?? {}) && !isDeleted;
  const { errors, general, verdict } = useCheck(kind, key, id === null, doc, base, revision, isChanged && !locked);
  want('upstreams', 'proxies');
  const shape = shapeOf(kind, doc);
  const set = (next: Doc) => {
    setText(null);
    setDoc(next);
    // A known object is in the draft as soon as it differs; a new one once it has its id and is added.
    if (id !== null) keep(next);
  };
  const keep = (next: Doc) => {
    if (same(next, base ?? {})) withdraw(kind, id!);
    else propose({ kind, id: id!, base, revision, next });
  };
  const type = (next: string) => {
    setText(next);
    const { value, errors } = objectFromYaml(next, id);
    if (!errors.length) {
      setDoc(value);
      if (id !== null) keep(value);
    }
  };
  const add = () => {
    const { id: own, ...rest } = doc;
    const name = typeof own === 'string' && own ? own : freshId();
    propose({ kind, id: name, base: null, revision: null, next: { id: name, ...rest } });
    go(href('review'));
  };
  const remove = () => {
    if (id !== null && base && confirm(t.editor.deleteSure(id))) {
      propose({ kind, id, base, revision, next: null });
      go(href('review'));
    }
  };
  const revert = () => {
    if (id !== null) withdraw(kind, id);
    setText(null);
    setDoc(base ?? begin ?? {});
  };
  const yaml = text ?? toYaml(doc);
  const findings = parsed?.errors.length ? parsed.errors : diagnostics(yaml, errors);
  const isUnreadable = !!parsed?.errors.length;
  // The gateway checked the last text that could be read.
  const wrong = isUnreadable ? parsed!.errors.length : errors.length;
  return (
    <Page
      title={id ?? title}
      actions={
        <>
          {!locked && (isChanged || isDeleted) && (
            <span class="state" role="status">
              <Verdict verdict={isUnreadable ? 'wrong' : verdict} problems={wrong} isDeleted={isDeleted} />
            </span>
          )}
          {!locked && (isChanged || isDeleted) && (base || id !== null) && (
            <button type="button" onClick={revert}>
              {t.editor.revert}
            </button>
          )}
          {!locked && id !== null && base && !isDeleted && (
            <button type="button" class="danger" onClick={remove}>
              {t.editor.delete}
            </button>
          )}
          {!locked &&
            (id === null ? (
              <button type="button" class="primary" onClick={add} disabled={isUnreadable}>
                {t.editor.review}
              </button>
            ) : (
              (isChanged || isDeleted) &&
              // The draft has the last text that could be read.
              !isUnreadable && (
                <a class="button primary" href={href('review')}>
                  {t.editor.review}
                </a>
              )
            ))}
        </>
      }
    >
      <p class="crumbs">
        <a href={href(back)}>{t.nav[back as keyof typeof t.nav]}</a>
      </p>
      <ReadOnly />
      {general && !errors.length && <Notice kind="bad">{general}</Notice>}
      {before?.(doc, set, locked)}
      <div class="columns">
        <Panel
          title={
            <Tabs
              label={title}
              chosen={tab}
              choose={setTab}
              tabs={[
                ['form', t.editor.form],
                ['yaml', t.editor.yaml],
                ['commands', t.editor.commands],
                ...(isChanged && base ? [['difference', t.editor.difference] as [string, string]] : []),
              ]}
            />
          }
        >
          {tab === 'form' && shape && <ObjectForm shape={shape} value={doc} change={set} at="" errors={errors} locked={locked} label={title} common={common} hidden={[...(hidden ?? []), ...(id === null ? [] : ['id'])]} known={known} />}
          {tab === 'yaml' && <YamlEditor text={yaml} label={`${title}: ${t.editor.yaml}`} locked={locked} shape={shape} findings={findings} changed={type} />}
          {tab === 'yaml' && wrong > 0 && (
            <ul class="errors">
              {parsed?.errors.map((error) => (
                <li>{error.message}</li>
              ))}
              {!isUnreadable && errors.map((error) => (
                <li>
                  <code>{error.pointer || '/'}</code> {error.detail}
                  {error.remedy ? ` (${error.remedy})` : ''}
                </li>
              ))}
            </ul>
          )}
          {tab === 'commands' && <ObjectCommands kind={kind} id={key} doc={doc} />}
          {tab === 'difference' && <Diff before={base} after={doc} label={t.editor.difference} />}
        </Panel>
        {(aside || isOnEdges) && (
          <div class="side">
            {aside?.(doc, set, locked)}
            {isOnEdges && <OnEdges kind={kind} id={id!} />}
          </div>
        )}
      </div>
    </Page>
  );
}

/** Names that other objects have, for fields that refer to them. */
function known(pointer: string): string[] | undefined {
  if (pointer === '/upstream_id') return drafted('upstreams').map((one) => one.id);
  if (pointer === '/proxy_id') return drafted('proxies').map((one) => one.id);
  if (pointer === '/plugin_name' || pointer === '/before' || pointer === '/after') return plugins.value.map((one) => one.name);
  return undefined;
}

/** What a check came to. `others`: the object has no problem, but the draft it belongs to has. */
type Judged = 'checking' | 'unchecked' | 'wrong' | 'others' | 'valid';

function Verdict({ verdict, problems, isDeleted }: { verdict: Judged; problems: number; isDeleted: boolean }) {
  if (verdict === 'checking') return <>{t.editor.checking}</>;
  if (verdict === 'unchecked') return <Tag kind="warn">{t.editor.unchecked}</Tag>;
  if (verdict === 'wrong') return <Tag kind="bad">{t.editor.problems(Math.max(problems, 1))}</Tag>;
  if (isDeleted) return <Tag kind="bad">{t.draft.delete}</Tag>;
  return verdict === 'others' ? <Tag kind="warn">{t.editor.otherProblems}</Tag> : <Tag kind="good">{t.editor.ok}</Tag>;
}

/** What the gateway says of an object as it is edited, together with the rest of the draft. */
function useCheck(kind: Kind, key: string, isNew: boolean, doc: Doc, base: Doc | null, revision: number | null, wanted: boolean) {
  const [state, setState] = useState<{ errors: FieldError[]; general: string; verdict: Judged; of: string }>({ errors: [], general: '', verdict: 'valid', of: '' });
  const text = JSON.stringify([doc, [...draft.value.keys()]]);
  const settled = useSettled(text, CHECK_AFTER);
  useEffect(() => {
    if (!wanted) return setState({ errors: [], general: '', verdict: 'valid', of: settled });
    const ends = new AbortController();
    const id = key || 'unnamed';
    const change: Change = { kind, id, base, revision, next: isNew && !key ? { ...doc, id } : doc };
    const others = [...draft.value.values()].filter((one) => keyOf(one.kind, one.id) !== keyOf(kind, id));
    validate([...others, change], ends.signal).then(
      (checked) => setState({ ...judge(checked, keyOf(kind, id)), of: settled }),
      (failed) => !ends.signal.aborted && setState({ errors: [], general: errorText(failed), verdict: 'unchecked', of: settled }),
    );
    return () => ends.abort();
  }, [settled, wanted]);
  return wanted && (settled !== text || state.of !== settled) ? { ...state, verdict: 'checking' as const } : state;
}

/** At a control plane: which edges serve the object as it is stored, and why others do not. */
function OnEdges({ kind, id }: { kind: Kind; id: string }) {
  const f = t.fleet;
  const { data } = useAsk<{ edges: { id: string; name: string; group: string; serves: boolean; why: string | null }[] }>(`/v1/fleet/objects/${kind}/${encodeURIComponent(id)}`, 3000);
  if (!data) return null;
  const late = data.edges.filter((edge) => !edge.serves);
  return (
    <Panel title={f.edges}>
      <p>
        <Dot kind={late.length ? 'bad' : 'good'} label={f.serving(data.edges.length - late.length, data.edges.length)} />
      </p>
      <ul class="plain">
        {late.slice(0, 50).map((edge) => (
          <li>
            <strong>{edge.name || edge.id}</strong> <span class="muted">{edge.group}</span> {edge.why}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** The same change of one object without the console. */
function ObjectCommands({ kind, id, doc }: { kind: Kind; id: string; doc: Doc }) {
  const name = id || 'NAME';
  const object = { ...doc, id: name };
  const call = { method: 'PUT', path: `/v1/${kind}/${encodeURIComponent(name)}`, body: object };
  return <CommandLines call={call} cli={{ words: ['apply'], document: { [kind]: [object] } }} />;
}

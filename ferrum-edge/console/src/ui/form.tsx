// Forms made from the JSON Schema. A form shows what is set and what most people set; every other setting is found by its
// name or meaning and added. Findings of the gateway stand at their fields.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { FieldError } from '../lib/api';
import { type Shape, choices, firstSentence, initial, resolve, titleOf, types, variantOf, variants, widget } from '../lib/schema';
import { t } from '../strings';
import { Marked } from './basics';
import { useId } from './hooks';
import { YamlField } from './yaml-editor';

export interface FormProps {
  shape: Shape;
  value: any;
  change: (value: any) => void;
  /** Where this value is, as a JSON pointer. */
  at: string;
  errors: FieldError[];
  locked: boolean;
  label: string;
  /** Fields that show although they are not set. */
  common?: string[];
  /** Fields that others than this form are for. */
  hidden?: string[];
  /** Choices that are known beside the schema, by pointer. */
  known?: (pointer: string) => string[] | undefined;
}

const escaped = (name: string): string => name.replace(/~/g, '~0').replace(/\//g, '~1');
const NEVER = ['created_at', 'updated_at', 'namespace', 'revision'];

const errorsAt = (errors: FieldError[], at: string): FieldError[] => errors.filter((error) => error.pointer === at);
const errorsBelow = (errors: FieldError[], at: string): FieldError[] => errors.filter((error) => error.pointer.startsWith(`${at}/`));

function Errors({ list, id }: { list: FieldError[]; id: string }) {
  if (!list.length) return null;
  return (
    <p class="error" id={`${id}-error`}>
      <Marked text={list.map((error) => error.detail + (error.remedy ? ` (${error.remedy})` : '')).join('; ')} />
    </p>
  );
}

/** The fields of an object. */
export function ObjectForm({ shape, value, change, at, errors, locked, label, common = [], hidden = [], known }: FormProps) {
  const { schema, root } = resolve(shape);
  const properties: Record<string, any> = schema.properties ?? {};
  const required: string[] = schema.required ?? [];
  const object = value && typeof value === 'object' ? value : {};
  const order = Object.keys(properties).filter((name) => !NEVER.includes(name) && !hidden.includes(name));
  const hasError = (name: string) => errors.some(({ pointer }) => pointer === `${at}/${escaped(name)}` || pointer.startsWith(`${at}/${escaped(name)}/`));
  const isShown = (name: string) => name in object || required.includes(name) || common.includes(name) || hasError(name);
  const shown = order.filter(isShown);
  // What the schema does not know stays visible: the gateway says what is wrong with it.
  const strange = Object.keys(object).filter((name) => !(name in properties) && !hidden.includes(name) && !NEVER.includes(name));
  const set = (name: string, next: any) => {
    const { [name]: _, ...rest } = object;
    change(next === undefined ? rest : { ...object, [name]: next });
  };
  // A finding about the whole, or about what no field shows, stands above all fields.
  const elsewhere = at === '' ? errors.filter(({ pointer }) => pointer === '' || ![...shown, ...strange].some((name) => pointer === `/${escaped(name)}` || pointer.startsWith(`/${escaped(name)}/`))) : [];
  return (
    <div class="form">
      {elsewhere.length > 0 && (
        <ul class="errors">
          {elsewhere.map((error) => (
            <li>
              {error.pointer && <code>{error.pointer}</code>} <Marked text={error.detail + (error.remedy ? ` (${error.remedy})` : '')} />
            </li>
          ))}
        </ul>
      )}
      {shown.map((name) => (
        <FormField
          key={name}
          name={name}
          shape={{ schema: properties[name], root }}
          value={object[name]}
          change={(next) => set(name, next)}
          remove={required.includes(name) || locked ? undefined : () => set(name, undefined)}
          at={`${at}/${escaped(name)}`}
          errors={errors}
          locked={locked}
          label={name}
          known={known}
          required={required.includes(name)}
        />
      ))}
      {strange.map((name) => (
        <FormField key={name} name={name} shape={{ schema: {}, root }} value={object[name]} change={(next) => set(name, next)} remove={locked ? undefined : () => set(name, undefined)} at={`${at}/${escaped(name)}`} errors={errors} locked={locked} label={name} known={known} />
      ))}
      {!locked && order.length > shown.length && (
        <AddField
          label={label}
          fields={order.filter((name) => !isShown(name)).map((name) => ({ name, meaning: resolve({ schema: properties[name], root }).schema.description ?? '' }))}
          add={(name) => set(name, initial({ schema: properties[name], root }))}
        />
      )}
    </div>
  );
}

interface FieldProps extends FormProps {
  name: string;
  remove?: () => void;
  required?: boolean;
}

/** A field with its name, meaning, value and findings. */
function FormField(props: FieldProps) {
  const { name, shape, value, at, errors, remove, required, locked } = props;
  const id = useId();
  const { schema } = resolve(shape);
  const kind = widget(shape);
  const own = errorsAt(errors, at);
  const isNested = value !== undefined && (kind === 'object' || kind === 'list' || kind === 'map' || kind === 'variants');
  const meaning = schema.description ?? '';
  const body = <Value {...props} id={id} />;
  const head = (
    <>
      <span class="field-name">{name}</span>
      {required && <span class="required" title="required">*</span>}
    </>
  );
  const clear = remove && value !== undefined && (
    <button type="button" class="quiet small" onClick={remove} aria-label={`${t.editor.unset}: ${name}`} title={t.editor.unset}>
      ✕
    </button>
  );
  if (isNested) {
    return (
      <fieldset class={`nested${own.length ? ' wrong' : ''}`} data-pointer={at} aria-describedby={own.length ? `${id}-error` : undefined}>
        <legend>
          {head}
          {clear}
        </legend>
        {meaning && <Meaning text={meaning} id={id} />}
        {body}
        <Errors list={own} id={id} />
      </fieldset>
    );
  }
  return (
    <div class={`field${own.length ? ' wrong' : ''}`} data-pointer={at}>
      <div class="field-head">
        <label for={id}>{head}</label>
        {clear}
      </div>
      {body}
      {meaning && <Meaning text={meaning} id={id} />}
      <Errors list={[...own, ...(kind === 'texts' || kind === 'any' || locked ? errorsBelow(errors, at) : [])]} id={id} />
    </div>
  );
}

/** The first sentence, and the rest for those who want it. */
function Meaning({ text, id }: { text: string; id: string }) {
  const [open, setOpen] = useState(false);
  const clean = text.replace(/\s+/g, ' ').replace(/`/g, '').trim();
  const first = firstSentence(clean);
  const rest = clean.length > first.length;
  return (
    <p class="hint" id={`${id}-hint`}>
      {open ? clean : first}
      {rest && (
        <button type="button" class="link" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? 'less' : 'more'}
        </button>
      )}
    </p>
  );
}

/** The control for a value. */
function Value(props: FieldProps & { id: string }) {
  const { shape, value, change, at, errors, locked, label, id, known } = props;
  const { schema, root } = resolve(shape);
  const own = errorsAt(errors, at);
  const aria = { 'aria-invalid': own.length > 0, 'aria-describedby': `${id}-hint${own.length ? ` ${id}-error` : ''}` };
  const suggestions = known?.(at);
  switch (widget(shape)) {
    case 'switch':
      return (
        <select id={id} {...aria} disabled={locked} value={value === undefined || value === null ? '' : String(value)} onChange={(event) => change(event.currentTarget.value === '' ? undefined : event.currentTarget.value === 'true')}>
          <option value="">{fallback(schema)}</option>
          <option value="true">true</option>
          <option value="false">false</option>
        </select>
      );
    case 'choice': {
      const listed = choices(shape);
      return (
        <select id={id} {...aria} disabled={locked} value={value === undefined || value === null ? '' : String(value)} onChange={(event) => change(listed.find((choice) => String(choice.value) === event.currentTarget.value)?.value)}>
          <option value="">{fallback(schema)}</option>
          {listed.map((choice) => (
            <option value={String(choice.value)} title={choice.meaning}>
              {String(choice.value)}
            </option>
          ))}
        </select>
      );
    }
    case 'number':
      return <NumberInput {...{ id, value, change, locked, aria, schema }} />;
    case 'text':
      return (
        <>
          <input
            id={id}
            {...aria}
            type="text"
            class={types(schema).includes('string') ? '' : 'short'}
            spellcheck={false}
            autocomplete="off"
            readOnly={locked}
            list={suggestions ? `${id}-known` : undefined}
            placeholder={fallback(schema)}
            value={value === undefined || value === null ? '' : String(value)}
            onInput={(event) => change(textOf(event.currentTarget.value, schema))}
          />
          {suggestions && (
            <datalist id={`${id}-known`}>
              {suggestions.slice(0, 500).map((one) => (
                <option value={one} />
              ))}
            </datalist>
          )}
        </>
      );
    case 'texts':
      return <Texts {...{ id, value, change, locked, aria }} />;
    case 'list':
      return <Items {...props} />;
    case 'map':
      return <Entries {...props} />;
    case 'object':
      if (value === undefined) return <Begin {...{ id, locked, change, shape }} />;
      return <ObjectForm {...{ shape: { schema, root }, value, change, at, errors, locked, label, known }} />;
    case 'variants':
      if (value === undefined) return <Begin {...{ id, locked, change, shape }} />;
      return <Variants {...props} />;
    default:
      return <YamlField {...{ id, value, change, locked, label }} />;
  }
}

/** A number where the schema takes one and the text is one: durations and sizes are either. */
function textOf(text: string, schema: any): any {
  if (text === '') return undefined;
  return types(schema).includes('integer') && /^\d+$/.test(text) ? Number(text) : text;
}

const fallback = (schema: any): string =>
  schema.default !== undefined && schema.default !== null && typeof schema.default !== 'object' ? `default: ${schema.default}` : (/Default (?:is )?(\S+?)[.,:;]?(?:\s|$)/.exec(schema.description ?? '')?.[1] ? `default: ${/Default (?:is )?(\S+?)[.,:;]?(?:\s|$)/.exec(schema.description)![1]!.replace(/`/g, '')}` : '');

function NumberInput({ id, value, change, locked, aria, schema }: any) {
  const [text, setText] = useState<string | null>(null);
  return (
    <input
      id={id}
      {...aria}
      type="text"
      inputMode="decimal"
      class="short"
      readOnly={locked}
      placeholder={fallback(schema)}
      value={text ?? (value === undefined || value === null ? '' : String(value))}
      onBlur={() => setText(null)}
      onInput={(event: any) => {
        const next = event.currentTarget.value;
        setText(next);
        // What is no number goes to the gateway as it is, which says what is wrong.
        if (next === '') change(undefined);
        else change(Number.isFinite(Number(next)) ? Number(next) : next);
      }}
    />
  );
}

/** A list of texts, one a line. */
function Texts({ id, value, change, locked, aria }: any) {
  const list: string[] = Array.isArray(value) ? value : [];
  const text = useRef<string | null>(null);
  const shown = text.current !== null && lines(text.current).join('\n') === list.map(String).join('\n') ? text.current : list.join('\n');
  return (
    <textarea
      id={id}
      {...aria}
      class="mono"
      rows={Math.max(1, Math.min(12, shown.split('\n').length))}
      spellcheck={false}
      readOnly={locked}
      placeholder="one a line"
      value={shown}
      onInput={(event: any) => {
        text.current = event.currentTarget.value;
        const next = lines(text.current!);
        change(next.length ? next : undefined);
      }}
    />
  );
}

export const lines = (text: string): string[] => text.split('\n').map((line) => line.trim()).filter(Boolean);

function Begin({ id, locked, change, shape }: any) {
  if (locked) return <span class="muted">–</span>;
  return (
    <button type="button" class="small" id={id} onClick={() => change(initial(shape))}>
      {t.add}
    </button>
  );
}

function Items({ shape, value, change, at, errors, locked, label, known, id }: FieldProps & { id: string }) {
  const { schema, root } = resolve(shape);
  const list: any[] = Array.isArray(value) ? value : [];
  const item: Shape = { schema: schema.items, root };
  const set = (n: number, next: any) => change(list.map((one, at) => (at === n ? next : one)));
  return (
    <div class="items">
      {list.map((one, n) => (
        <fieldset class="item" data-pointer={`${at}/${n}`}>
          <legend>
            {t.editor.item(n + 1)}
            {!locked && (
              <button type="button" class="quiet small" aria-label={`${t.remove}: ${label} ${n + 1}`} onClick={() => change(list.filter((_, at) => at !== n))}>
                ✕
              </button>
            )}
          </legend>
          <Value name={label} shape={item} value={one} change={(next) => set(n, next)} at={`${at}/${n}`} errors={errors} locked={locked} label={`${label} ${n + 1}`} known={known} id={`${id}-${n}`} />
          <Errors list={errorsAt(errors, `${at}/${n}`)} id={`${id}-${n}`} />
        </fieldset>
      ))}
      {!locked && (
        <button type="button" class="small" id={value === undefined ? id : undefined} onClick={() => change([...list, initial(item)])}>
          {t.editor.addItem}
        </button>
      )}
    </div>
  );
}

function Entries({ shape, value, change, at, errors, locked, label, known, id }: FieldProps & { id: string }) {
  const { schema, root } = resolve(shape);
  const entries = Object.entries<any>(value && typeof value === 'object' ? value : {});
  const item: Shape = { schema: schema.additionalProperties, root };
  const put = (n: number, name: string, next: any) => change(Object.fromEntries(entries.map((entry, at) => (at === n ? [name, next] : entry))));
  return (
    <div class="entries">
      {entries.map(([name, one], n) => (
        <div class="entry" data-pointer={`${at}/${escaped(name)}`}>
          <input type="text" aria-label={`${label}: ${t.editor.key}`} value={name} readOnly={locked} onChange={(event) => put(n, event.currentTarget.value, one)} />
          <div>
            <Value name={name} shape={item} value={one} change={(next) => put(n, name, next ?? '')} at={`${at}/${escaped(name)}`} errors={errors} locked={locked} label={`${label} ${name}`} known={known} id={`${id}-${n}`} />
            <Errors list={errorsAt(errors, `${at}/${escaped(name)}`)} id={`${id}-${n}`} />
          </div>
          {!locked && (
            <button type="button" class="quiet small" aria-label={`${t.remove}: ${name}`} onClick={() => change(Object.fromEntries(entries.filter((_, at) => at !== n)))}>
              ✕
            </button>
          )}
        </div>
      ))}
      {!locked && (
        <button type="button" class="small" id={id} onClick={() => change({ ...Object.fromEntries(entries), [freeName(entries)]: initial(item) })}>
          {t.add}
        </button>
      )}
    </div>
  );
}

const freeName = (entries: [string, any][]): string => {
  const taken = new Set(entries.map(([name]) => name));
  for (let n = 1; ; n += 1) if (!taken.has(`name-${n}`)) return `name-${n}`;
};

function Variants(props: FieldProps & { id: string }) {
  const { shape, value, change, id, label, locked } = props;
  const all = variants(shape);
  const chosen = variantOf(shape, value);
  return (
    <div class="variants">
      {all.length > 1 && (
        <select id={id} aria-label={`${label}: form`} disabled={locked} value={String(chosen)} onChange={(event) => change(initial(all[Number(event.currentTarget.value)]!))}>
          {all.map((one, n) => (
            <option value={String(n)}>{titleOf(one)}</option>
          ))}
        </select>
      )}
      <Value {...props} shape={all[chosen]!} id={`${id}-v`} />
    </div>
  );
}

function AddField({ fields, add, label }: { fields: { name: string; meaning: string }[]; add: (name: string) => void; label: string }) {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState('');
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (open) input.current?.focus();
  }, [open]);
  const wanted = text.toLowerCase();
  const found = fields.filter(({ name, meaning }) => name.includes(wanted.replace(/\s+/g, '_')) || meaning.toLowerCase().includes(wanted));
  if (!open) {
    return (
      <button type="button" class="add-field" onClick={() => setOpen(true)} aria-label={`${t.editor.addField}: ${label}`}>
        + {t.editor.addField}
        <span class="muted"> ({fields.length})</span>
      </button>
    );
  }
  return (
    <div class="add-fields">
      <div class="row">
        <input type="search" aria-label={t.editor.addFieldHint} placeholder={t.editor.addFieldHint} value={text} onInput={(event) => setText(event.currentTarget.value)} ref={input} />
        <button type="button" class="quiet" onClick={() => setOpen(false)}>
          {t.close}
        </button>
      </div>
      <ul>
        {found.map(({ name, meaning }) => (
          <li>
            <button
              type="button"
              onClick={() => {
                add(name);
                setOpen(false);
                setText('');
              }}
            >
              <strong>{name}</strong>
              <span>{firstSentence(meaning.replace(/\s+/g, ' ').replace(/`/g, ''))}</span>
            </button>
          </li>
        ))}
        {!found.length && <li class="muted">{t.editor.noField}</li>}
      </ul>
    </div>
  );
}

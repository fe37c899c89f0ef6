// CodeMirror with YAML, completion from the JSON Schema, and the gateway's findings at their lines. It lives in a shadow
// root, where its styles are constructed sheets: the page's policy allows no inline ones. Loaded when it is first needed.
import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, setDiagnostics } from '@codemirror/lint';
import { Compartment, EditorState } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { type Shape, choices, firstSentence, resolve, shapeAt, types, variants } from '../lib/schema';

const colors = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--key)' },
  { tag: [tags.string, tags.special(tags.string), tags.content], color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: 'var(--accent-text)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: [tags.punctuation, tags.separator], color: 'var(--muted)' },
]);

const theme = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'var(--panel)', fontSize: '13px', maxHeight: '65vh' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', minHeight: '14rem' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-1px' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--muted)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--select)' },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', border: '1px solid var(--line-strong)', borderRadius: '6px', color: 'var(--text)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--on-accent)' },
  '.cm-completionInfo': { maxWidth: '24rem', padding: '6px 10px' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
});

/** The path of keys to the line of the cursor, by indentation; items of lists are numbers. */
export function pathAt(text: string, line: number): (string | number)[] {
  const lines = text.split('\n');
  const here = lines[line] ?? '';
  let indent = /^\s*/.exec(here)![0].length;
  const path: (string | number)[] = [];
  // Blank lines belong to where the cursor stands.
  const dashed = /^(\s*)((?:- )+)/.exec(here);
  if (dashed) {
    path.unshift(0);
    indent = dashed[1]!.length + 0.5;
  }
  for (let n = line - 1; n >= 0; n -= 1) {
    const match = /^(\s*)((?:- )*)(?:(["']?)([\w.$-]+)\3\s*:)?/.exec(lines[n]!);
    if (!match || !lines[n]!.trim() || lines[n]!.trim().startsWith('#')) continue;
    const at = match[1]!.length;
    const keyAt = at + match[2]!.length;
    if (match[4] && keyAt < indent) {
      path.unshift(match[4]);
      indent = keyAt;
    }
    if (match[2] && at < indent) {
      path.unshift(0);
      indent = at + 0.5;
    }
  }
  return path;
}

const completion = (shape: () => Shape | null) => (context: CompletionContext): CompletionResult | null => {
  const whole = shape();
  if (!whole) return null;
  const line = context.state.doc.lineAt(context.pos);
  const before = line.text.slice(0, context.pos - line.from);
  const path = pathAt(context.state.doc.toString(), line.number - 1);
  const value = /^\s*(?:- )*([\w.-]+):\s+(\S*)$/.exec(before);
  if (value) {
    const field = shapeAt(whole, [...path, value[1]!]);
    if (!field) return null;
    const listed = choices(field);
    const all = listed.length ? listed : types(field.schema).includes('boolean') ? [{ value: true, meaning: '' }, { value: false, meaning: '' }] : [];
    return all.length
      ? { from: context.pos - value[2]!.length, options: all.map((one) => ({ label: String(one.value), info: one.meaning || undefined, type: 'constant' })) }
      : null;
  }
  const key = /^(\s*(?:- )*)([\w.-]*)$/.exec(before);
  if (!key || (!key[2] && !context.explicit)) return null;
  const object = shapeAt(whole, path);
  if (!object) return null;
  const options = [object, ...variants(object)].flatMap((one) => Object.entries<any>(one.schema.properties ?? {}).map(([name, field]) => ({ name, field, root: one.root })));
  return {
    from: context.pos - key[2]!.length,
    options: options.map(({ name, field, root }) => {
      const { schema } = resolve({ schema: field, root });
      const nested = types(schema).some((type) => type === 'object' || type === 'array');
      return { label: name, type: 'property', apply: nested ? `${name}:` : `${name}: `, info: firstSentence(schema.description ?? '') || undefined };
    }),
  };
};

export interface Finding {
  from: number;
  to: number;
  message: string;
}

export interface Editor {
  set: (text: string) => void;
  mark: (findings: Finding[]) => void;
  lock: (locked: boolean) => void;
  destroy: () => void;
}

export function start(host: HTMLElement, text: string, label: string, locked: boolean, shape: () => Shape | null, changed: (text: string) => void): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const editable = new Compartment();
  const access = (locked: boolean) => [EditorState.readOnly.of(locked), EditorView.editable.of(!locked)];
  let quiet = false;
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        highlightActiveLineGutter(),
        highlightActiveLine(),
        history(),
        drawSelection(),
        indentOnInput(),
        indentUnit.of('  '),
        bracketMatching(),
        closeBrackets(),
        autocompletion({ override: [completion(shape)], icons: false }),
        yaml(),
        syntaxHighlighting(colors),
        lintGutter(),
        theme,
        editable.of(access(locked)),
        EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
        // Escape, then Tab, leaves the editor.
        keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !quiet) changed(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    set: (next) => {
      if (view.state.doc.toString() === next) return;
      quiet = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
      quiet = false;
    },
    mark: (findings) => {
      const end = view.state.doc.length;
      view.dispatch(setDiagnostics(view.state, findings.map((one) => ({ from: Math.min(one.from, end), to: Math.min(one.to, end), message: one.message, severity: 'error' as const }))));
    },
    lock: (locked) => view.dispatch({ effects: editable.reconfigure(access(locked)) }),
    destroy: () => view.destroy(),
  };
}

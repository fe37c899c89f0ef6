// The YAML view of an object, and the small one for values that no form fits.
import { useEffect, useRef, useState } from 'preact/hooks';
import { Echoes } from '../lib/echoes';
import { fromYaml, toYaml } from '../lib/yaml';
import type { Shape } from '../lib/schema';
import { t } from '../strings';
import type { Editor, Finding } from './code-editor';

interface Props {
  text: string;
  label: string;
  locked?: boolean;
  shape: Shape | null;
  findings: Finding[];
  changed: (text: string) => void;
}

export function YamlEditor({ text, label, locked = false, shape, findings, changed }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  // What was typed comes back as `text` a little later, when more has been typed: it must not be set again.
  const echoes = useRef(new Echoes());
  const now = useRef({ text, shape, findings, changed, locked });
  now.current = { text, shape, findings, changed, locked };
  useEffect(() => {
    let gone = false;
    void import('./code-editor').then(({ start }) => {
      if (gone || !host.current) return;
      editor.current = start(host.current, now.current.text, label, now.current.locked, () => now.current.shape, (text) => {
        echoes.current.typed(text);
        now.current.changed(text);
      });
      editor.current.mark(now.current.findings);
    });
    return () => {
      gone = true;
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);
  useEffect(() => {
    if (!echoes.current.receive(text)) editor.current?.set(text);
  }, [text]);
  useEffect(() => editor.current?.mark(findings), [findings]);
  useEffect(() => editor.current?.lock(locked), [locked]);
  return <div class="code-editor" ref={host} />;
}

/** A value as a few lines of YAML. */
export function YamlField({ value, change, label, id, locked }: { value: any; change: (value: any) => void; label: string; id: string; locked?: boolean }) {
  const written = value === undefined ? '' : toYaml(value);
  const [text, setText] = useState(written);
  const [error, setError] = useState('');
  const own = useRef(written);
  useEffect(() => {
    if (own.current !== written) {
      own.current = written;
      setText(written);
    }
  }, [written]);
  const input = (next: string) => {
    setText(next);
    const { value, errors } = fromYaml(next);
    setError(errors[0]?.message ?? '');
    if (!errors.length) {
      own.current = toYaml(value);
      change(value);
    }
  };
  return (
    <>
      <textarea
        id={id}
        class="mono"
        rows={Math.min(14, Math.max(2, text.split('\n').length))}
        spellcheck={false}
        readOnly={locked}
        aria-label={label}
        aria-invalid={!!error}
        value={text}
        onInput={(event) => input(event.currentTarget.value)}
      />
      {error && <p class="error">{`${t.editor.yamlError} ${error}`}</p>}
    </>
  );
}

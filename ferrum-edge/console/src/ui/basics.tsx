// Small pieces that every page is made of.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { canEdit, session } from '../lib/api';
import { status } from '../lib/status';
import { t } from '../strings';

type Kids = { children?: ComponentChildren };

export function Page({ title, lead, actions, children }: Kids & { title: string; lead?: string; actions?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · ${t.product}`;
  }, [title]);
  return (
    <main id="content" tabIndex={-1}>
      <header class="page-head">
        <div>
          <h1>{title}</h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </main>
  );
}

/** Why nothing can be changed here, where that is so. */
export function ReadOnly() {
  if (canEdit()) return null;
  const why = status.value?.fleet?.role === 'edge' ? t.readOnly.edge : session.value?.mode === 'file' ? t.readOnly.file : t.readOnly.role;
  return <p class="notice info">{why}</p>;
}

export function Panel({ title, actions, children, flush, id }: Kids & { title?: ComponentChildren; actions?: ComponentChildren; flush?: boolean; id?: string }) {
  return (
    <section class={`panel${flush ? ' flush' : ''}`} id={id}>
      {(title || actions) && (
        <header>
          <h2>{title}</h2>
          {actions && <div class="actions">{actions}</div>}
        </header>
      )}
      <div class="panel-body">{children}</div>
    </section>
  );
}

export function Notice({ kind = 'info', children }: Kids & { kind?: 'info' | 'good' | 'bad' | 'warn' }) {
  return (
    <div class={`notice ${kind}`} role={kind === 'bad' ? 'alert' : 'status'}>
      {children}
    </div>
  );
}

export const Tag = ({ kind = '', children, title }: Kids & { kind?: string; title?: string }) => (
  <span class={`tag ${kind}`} title={title}>
    {children}
  </span>
);

/** A text of the gateway, with the parts between backticks as code. */
export const Marked = ({ text }: { text: string }) => <>{text.split('`').map((part, n) => (n % 2 ? <code>{part}</code> : part))}</>;

export const Empty = ({ children }: Kids) => <div class="empty">{children}</div>;

export function Copy({ text, label = t.copy }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a secure context there is no clipboard to write to: a selection is what is left.
      const area = document.createElement('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="small" onClick={copy} aria-live="polite">
      {done ? t.copied : label}
    </button>
  );
}

export function Code({ text, copy = true, label }: { text: string; copy?: boolean; label?: string }) {
  return (
    <div class="code">
      {copy && <Copy text={text} />}
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
    </div>
  );
}

export function Tabs({ tabs, chosen, choose, label }: { tabs: [string, string][]; chosen: string; choose: (name: string) => void; label: string }) {
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([name]) => name === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    choose(next[0]);
    list.current?.querySelector<HTMLElement>(`[data-tab="${next[0]}"]`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
      {tabs.map(([name, text]) => (
        <button
          type="button"
          role="tab"
          data-tab={name}
          aria-selected={name === chosen}
          tabIndex={name === chosen ? 0 : -1}
          onClick={() => choose(name)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** The two buttons at the end of a form in a dialog. */
export function DialogActions({ close, submit }: { close: () => void; submit: string }) {
  return (
    <div class="actions">
      <button type="button" onClick={close}>
        {t.cancel}
      </button>
      <button type="submit" class="primary">
        {submit}
      </button>
    </div>
  );
}

export function Dialog({ title, close, children, wide }: Kids & { title: string; close: () => void; wide?: boolean }) {
  const at = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    at.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={at}
      class={wide ? 'wide' : ''}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" class="quiet" onClick={close} aria-label={t.close}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}

export function Field({ label, hint, children, id, error }: Kids & { label: string; hint?: string; id: string; error?: string }) {
  return (
    <div class={`field${error ? ' wrong' : ''}`}>
      <label for={id}>{label}</label>
      {children}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="error" id={`${id}-error`}>
          {error}
        </p>
      )}
    </div>
  );
}

export const Dot = ({ kind, label }: { kind: string; label: string }) => (
  <span class={`dot ${kind}`}>
    <i aria-hidden="true" />
    {label}
  </span>
);

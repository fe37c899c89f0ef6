// Settings in force and where each came from.
import { useMemo, useState } from 'preact/hooks';
import { t } from '../strings';
import { Dialog, Marked, Notice, Page, Tag } from '../ui/basics';
import { useAsk } from '../ui/hooks';
import { List, byText } from '../ui/list';

interface Row {
  setting: string;
  value: unknown;
  origin: 'file' | 'environment' | 'flag' | 'default';
  variable: string | null;
  meaning: string;
}

const shown = (value: unknown): string => (value === null || value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value));

export function Settings() {
  const s = t.settings;
  const asked = useAsk<{ items: Row[] }>('/v1/settings');
  const [text, setText] = useState('');
  const [changed, setChanged] = useState(false);
  const [open, setOpen] = useState<Row | null>(null);
  const wanted = text.trim().toLowerCase();
  const all = asked.data?.items ?? [];
  const rows = useMemo(() => all.filter((row) => (!changed || row.origin !== 'default') && `${row.setting} ${row.variable ?? ''} ${row.meaning} ${shown(row.value)}`.toLowerCase().includes(wanted)), [all, wanted, changed]);
  return (
    <Page title={s.title} lead={s.lead}>
      {asked.error && <Notice kind="bad">{asked.error}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <label class="check">
          <input type="checkbox" checked={changed} onChange={(event) => setChanged(event.currentTarget.checked)} /> {s.changed}
        </label>
        <span class="muted" role="status">{t.routes.of(rows.length, all.length)}</span>
      </div>
      <div class="fill">
        <List<Row>
          label={s.title}
          rows={rows}
          id={(row) => row.setting}
          empty={asked.data ? t.routes.emptyFilter : t.loading}
          columns={[
            { name: 'setting', title: s.setting, width: '1.6fr', cell: (row) => <button type="button" class="link mono" onClick={() => setOpen(row)}>{row.setting}</button>, sort: byText((row) => row.setting) },
            { name: 'value', title: s.value, width: '1.4fr', cell: (row) => (row.origin === 'default' ? <span class="muted">{fallback(row)}</span> : <span title={shown(row.value)}>{shown(row.value)}</span>) },
            { name: 'from', title: s.from, width: '8.5rem', narrow: '4.6rem', cell: (row) => <Tag kind={row.origin === 'default' ? '' : 'info'} title={row.variable ?? ''}>{s.origin[row.origin] ?? row.origin}</Tag>, sort: byText((row) => row.origin) },
            { name: 'meaning', title: s.meaning, width: '3fr', minor: true, cell: (row) => <span title={row.meaning}><Marked text={row.meaning} /></span> },
          ]}
        />
      </div>
      {open && (
        <Dialog title={open.setting} close={() => setOpen(null)}>
          <dl>
            <dt>{s.value}</dt>
            <dd>{open.origin === 'default' ? fallback(open) : shown(open.value)}</dd>
            <dt>{s.from}</dt>
            <dd>{s.origin[open.origin] ?? open.origin}</dd>
            {open.variable && (
              <>
                <dt>{s.variable}</dt>
                <dd>
                  <code>{open.variable}</code>
                </dd>
              </>
            )}
            <dt>{s.meaning}</dt>
            <dd>
              <Marked text={open.meaning} />
            </dd>
          </dl>
        </Dialog>
      )}
    </Page>
  );
}

/** What the documentation of a setting says it defaults to. */
export const fallback = (row: Row): string => /Default:? ((?:`[^`]*`|[^.:;,`]|[.:](?=\S))+)/.exec(row.meaning)?.[1]?.replace(/`/g, '').trim() ?? '–';

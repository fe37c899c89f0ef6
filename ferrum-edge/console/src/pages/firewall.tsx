// What the firewall finds, by rule, and exclusions from a record.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { hour } from '../lib/format';
import { type Doc, drafted, inDraft, plain, propose, shelf, want } from '../lib/objects';
import { href } from '../lib/router';
import { useTail } from '../lib/tail';
import { t } from '../strings';
import { Empty, Notice, Page, Panel, Tag } from '../ui/basics';
import { List } from '../ui/list';
import { Whole, urlOf } from './logs';
import { pluginsOf } from './routes';

export interface Match {
  rule: string;
  text: string;
  /** Such as `ARGS:id`. */
  target: string;
}

/** `1000400 SQL in a value (ARGS:id: 1' or 1=1--); 1000404 …` */
export function matchesOf(text: string): Match[] {
  return text
    .split(/; (?=\d+ )/)
    .map((part) => /^(\d+) (.*?)(?: \(([^()]*?): .*\))?$/s.exec(part))
    .filter((match) => !!match)
    .map((match) => ({ rule: match![1]!, text: match![2]!, target: match![3] ?? '' }));
}

const isAbout = (record: any): boolean => record['waf.matches'] !== undefined || record['waf.rules'] !== undefined;

export function Firewall() {
  want('plugin_configs', 'proxies');
  const f = t.firewall;
  const tail = useTail('/v1/access-log', true, isAbout);
  const [open, setOpen] = useState<any>(null);
  const [done, setDone] = useState('');
  const configs = drafted('plugin_configs').filter((one) => one.plugin_name === 'waf');
  const rules = useMemo(() => {
    const all = new Map<string, { rule: string; text: string; count: number }>();
    for (const record of tail.records) {
      for (const match of matchesOf(record['waf.matches'] ?? '')) {
        const known = all.get(match.rule) ?? { rule: match.rule, text: match.text, count: 0 };
        all.set(match.rule, { ...known, count: known.count + 1 });
      }
    }
    return [...all.values()].sort((a, b) => b.count - a.count);
  }, [tail.records]);
  const isUnused = !configs.length && shelf('plugin_configs').complete && !tail.records.length;
  const exclude = (record: any) => {
    const proxy = drafted('proxies').find((one) => one.id === record['proxy.id']);
    const config = proxy && pluginsOf(proxy, configs)[0];
    if (!config) return setDone(f.cannot);
    const next = withExclusion(config, record);
    const before = inDraft('plugin_configs', config.id);
    const stored = shelf('plugin_configs').items.find((one) => one.id === config.id);
    propose({ kind: 'plugin_configs', id: config.id, base: before ? before.base : stored ? plain(stored) : null, revision: before ? before.revision : (stored?.revision ?? null), next });
    setDone(f.excluded);
  };
  return (
    <Page title={f.title} lead={f.lead} actions={canEdit() && <a class="button" href={`${href('plugins', 'new')}?plugin=waf`}>{f.add}</a>}>
      {tail.error && <Notice kind="bad">{tail.error}</Notice>}
      {done && (
        <Notice kind="warn">
          {done} {done === f.excluded && <a href={href('review')}>{t.editor.review}</a>}
        </Notice>
      )}
      {isUnused ? (
        <Empty>{f.none}</Empty>
      ) : (
        <>
          <div class="fill half">
            <List<any>
              label={f.title}
              rows={tail.records}
              id={(row) => String(row.serial)}
              empty={f.empty}
              columns={[
                { name: 'when', title: t.logs.when, width: '5.5rem', cell: (row) => hour(row.timestamp) },
                { name: 'outcome', title: f.outcome, width: '7.5rem', cell: (row) => <Tag kind={row['waf.outcome'] === 'refused' ? 'bad' : 'warn'}>{row['waf.outcome'] ?? ''}</Tag> },
                { name: 'score', title: f.score, width: '4rem', right: true, cell: (row) => row['waf.score'] ?? '' },
                {
                  name: 'request',
                  title: t.logs.request,
                  width: '2fr',
                  cell: (row) => (
                    <button type="button" class="link mono" title={urlOf(row)} onClick={() => setOpen(row)}>
                      {urlOf(row)}
                    </button>
                  ),
                },
                { name: 'matches', title: f.matches, width: '2fr', minor: true, cell: (row) => <span title={row['waf.matches']}>{matchesOf(row['waf.matches'] ?? '').map((match) => `${match.rule} ${match.text}`).join('; ')}</span> },
                ...(canEdit() ? [{ name: 'do', title: '', width: '8rem', right: true, cell: (row: any) => <button type="button" class="small" onClick={() => exclude(row)}>{f.exclude}</button> }] : []),
              ]}
            />
          </div>
          <div class="columns even">
            <Panel title={f.byRule}>
              {!rules.length && <p class="muted">{t.none}</p>}
              <ul class="plain">
                {rules.slice(0, 50).map((one) => (
                  <li>
                    <strong>{one.count}</strong> × <code>{one.rule}</code> {one.text}
                  </li>
                ))}
              </ul>
            </Panel>
            <Panel title={f.configs}>
              {!configs.length && <p class="muted">{t.none}</p>}
              <ul class="plain">
                {configs.map((one) => (
                  <li>
                    <a href={href('plugins', one.id)}>{one.id}</a> <span class="muted">{one.proxy_id ?? one.scope}</span> <Tag>{one.config?.mode ?? ''}</Tag>
                  </li>
                ))}
              </ul>
            </Panel>
          </div>
        </>
      )}
      {open && <Whole record={open} close={() => setOpen(null)} />}
    </Page>
  );
}

/** The config with the rules of a record left out for its path and its fields. Rules that only add scores up stay. */
export function withExclusion(config: Doc, record: any): Doc {
  const found = matchesOf(record['waf.matches'] ?? '').filter((match) => match.target && !match.target.startsWith('TX:'));
  const exclusion = {
    when: { path: { exact: record['url.path'] } },
    rules: [...new Set(found.map((match) => match.rule))],
    targets: [...new Set(found.map((match) => match.target))],
  };
  return { ...config, config: { ...config.config, exclusions: [...(config.config?.exclusions ?? []), exclusion] } };
}

// Plugin configs, with forms made of the plugins' own schemas.
import { useMemo, useState } from 'preact/hooks';
import { canEdit } from '../lib/api';
import { type Doc, drafted, inDraft, plugins, shelf, want } from '../lib/objects';
import { initial, resolve } from '../lib/schema';
import { href, place } from '../lib/router';
import { t } from '../strings';
import { Code, Dot, Marked, Notice, Page, Panel, ReadOnly } from '../ui/basics';
import { List, byNumber, byText } from '../ui/list';
import { ObjectPage, freshId } from './object';

export function Plugins() {
  const { parts, query } = place.value;
  want('plugin_configs', 'proxies');
  if (parts[0] === 'new') {
    const name = query.get('plugin');
    return name ? <One id={null} begin={beginning(name, query.get('proxy'))} key={name} /> : <Choose proxy={query.get('proxy')} />;
  }
  return parts[0] ? <One id={parts[0]} /> : <All />;
}

function beginning(name: string, proxy: string | null): Doc {
  const plugin = plugins.value.find((one) => one.name === name);
  const short = name.replace(/_/g, '-');
  const config: Doc = {};
  if (plugin) {
    const { schema } = resolve({ schema: plugin.schema, root: plugin.schema });
    for (const field of [...(schema.required ?? []), ...needed(schema)]) config[field] ??= initial({ schema: schema.properties[field], root: plugin.schema });
  }
  return { id: `${proxy ? `${proxy}-` : ''}${short}-${freshId().slice(0, 4)}`, plugin_name: name, scope: proxy ? 'proxy' : 'global', ...(proxy ? { proxy_id: proxy } : {}), config };
}

/** Fields whose documentation says that they are required. */
export const needed = (schema: any): string[] => Object.entries<any>(schema.properties ?? {}).filter(([, field]) => /\brequired\.?$/i.test(String(field.description ?? '').split('\n')[0]!.trim())).map(([name]) => name);

export const scopeText = (one: Doc): string => (one.scope === 'global' ? t.plugins.global : (one.proxy_id ?? t.plugins.group));

function State({ of }: { of: Doc }) {
  const change = inDraft('plugin_configs', of.id);
  if (change) {
    return (
      <span title={t.draft.unsaved}>
        <Dot kind="info" label={change.base ? t.draft.update : t.draft.create} />
      </span>
    );
  }
  if (of.enabled === false) return <Dot kind="" label={t.plugins.off} />;
  return <Dot kind="good" label={of.when ? t.plugins.conditional : t.routes.ok} />;
}

function All() {
  const [text, setText] = useState('');
  const { loading, error } = shelf('plugin_configs');
  const all = drafted('plugin_configs');
  const order = useMemo(() => new Map(plugins.value.map((one, n) => [one.name, n])), [plugins.value]);
  const wanted = text.trim().toLowerCase();
  const rows = useMemo(() => {
    const found = all.filter((one) => `${one.id} ${one.plugin_name} ${one.proxy_id ?? ''} ${one.scope}`.toLowerCase().includes(wanted));
    return found.sort((a, b) => (order.get(a.plugin_name) ?? 0) - (order.get(b.plugin_name) ?? 0));
  }, [all, wanted, order]);
  const p = t.plugins;
  return (
    <Page title={p.title} lead={p.lead} actions={canEdit() && <a class="button primary" href={href('plugins', 'new')}>{p.add}</a>}>
      <ReadOnly />
      {error && <Notice kind="bad">{error}</Notice>}
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <span class="muted" role="status">{t.routes.of(rows.length, all.length)}</span>
      </div>
      <div class="fill">
        <List<Doc>
          label={p.title}
          rows={rows}
          id={(row) => row.id}
          empty={loading ? t.loading : wanted ? t.routes.emptyFilter : p.empty}
          mark={(row) => (row.enabled === false ? 'faded' : '')}
          columns={[
            { name: 'plugin', title: p.plugin, width: '1.2fr', cell: (row) => <a href={href('plugins', row.id)}>{row.plugin_name}</a>, sort: byText((row) => row.plugin_name) },
            { name: 'id', title: 'ID', width: '1.2fr', cell: (row) => row.id, sort: byText((row) => row.id) },
            { name: 'scope', title: p.scope, width: '1.2fr', cell: (row) => (row.proxy_id ? <a href={href('routes', row.proxy_id)}>{row.proxy_id}</a> : scopeText(row)), sort: byText(scopeText) },
            { name: 'on', title: t.routes.state, width: '8rem', cell: (row) => <State of={row} />, sort: byNumber((row) => (row.enabled === false ? 1 : 0)) },
          ]}
        />
      </div>
    </Page>
  );
}

const families = Object.keys(t.plugins.families);
/** A newer gateway may have families that this console does not know. */
const familyOf = ({ family }: { family: string }): string => (family in t.plugins.families ? family : 'other');

function Choose({ proxy }: { proxy: string | null }) {
  const [text, setText] = useState('');
  const wanted = text.trim().toLowerCase();
  const found = plugins.value.filter((one) => `${one.name} ${one.summary}`.toLowerCase().includes(wanted));
  return (
    <Page title={t.plugins.choose} lead={proxy ? `${t.plugins.scope} ${proxy}` : undefined}>
      <ReadOnly />
      <div class="toolbar">
        <input type="search" aria-label={t.search} placeholder={t.search} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      {!found.length && <p class="muted" role="status">{t.plugins.noneFound}</p>}
      {families.map((family) => {
        const these = found.filter((one) => familyOf(one) === family);
        return these.length > 0 && (
          <section class="family" key={family}>
            <h2>{t.plugins.families[family]}</h2>
            <ul class="cards">
              {these.map((one) => (
                <li key={one.name}>
                  <a href={`${href('plugins', 'new')}?plugin=${encodeURIComponent(one.name)}${proxy ? `&proxy=${encodeURIComponent(proxy)}` : ''}`}>
                    <strong>{one.name}</strong>
                    <span>
                      <Marked text={one.summary} />
                    </span>
                  </a>
                </li>
              ))}
            </ul>
          </section>
        );
      })}
    </Page>
  );
}

function One({ id, begin }: { id: string | null; begin?: Doc }) {
  return (
    <ObjectPage
      kind="plugin_configs"
      id={id}
      title={begin ? `${t.plugins.add}: ${begin.plugin_name}` : t.plugins.add}
      begin={begin}
      common={['id', 'plugin_name', 'scope', 'proxy_id', 'enabled', 'config']}
      back="plugins"
      aside={(doc) => <About name={doc.plugin_name} />}
    />
  );
}

function About({ name }: { name: string }) {
  const plugin = plugins.value.find((one) => one.name === name);
  if (!plugin) return null;
  return (
    <Panel title={t.plugins.about}>
      <p>
        <Marked text={plugin.summary} />
      </p>
      {plugin.example && (
        <details>
          <summary>{t.plugins.example}</summary>
          <Code text={plugin.example} label={t.plugins.example} />
        </details>
      )}
    </Panel>
  );
}

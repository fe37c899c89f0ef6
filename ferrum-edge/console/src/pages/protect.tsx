// Puts plugins that recognise, admit and limit callers before a proxy, or before a path of it.
import { useState } from 'preact/hooks';
import { type Doc, drafted, propose } from '../lib/objects';
import { href } from '../lib/router';
import { t } from '../strings';
import { Dialog, DialogActions, Field } from '../ui/basics';
import { lines } from '../ui/form';
import { useId } from '../ui/hooks';
import { freshId } from './object';

const WAYS = ['key_auth', 'basic_auth', 'jwt_auth', 'hmac_auth', 'mtls_auth'] as const;

export function Protect({ doc, close }: { doc: Doc; close: () => void }) {
  const a = t.access;
  const id = useId();
  const [how, setHow] = useState<string>('key_auth');
  const [groups, setGroups] = useState('');
  const [consumers, setConsumers] = useState('');
  const [path, setPath] = useState('');
  const [rate, setRate] = useState('');
  const known = drafted('consumers');
  const add = (plugin: string, config: Doc) => {
    const name = `${doc.id}-${plugin.replace(/_/g, '-')}-${freshId().slice(0, 4)}`;
    const when = path.trim() ? { when: { path: path.trim() } } : {};
    propose({ kind: 'plugin_configs', id: name, base: null, revision: null, next: { id: name, plugin_name: plugin, scope: 'proxy', proxy_id: doc.id, config, ...when } });
  };
  const submit = (event: Event) => {
    event.preventDefault();
    add(how, {});
    const [allowed_groups, allowed_consumers] = [lines(groups), lines(consumers)];
    if (allowed_groups.length || allowed_consumers.length) {
      add('access_control', { ...(allowed_groups.length ? { allowed_groups } : {}), ...(allowed_consumers.length ? { allowed_consumers } : {}) });
    }
    if (Number(rate) > 0) add('rate_limiting', { limits: [{ rate: Number(rate), per: '1m' }], limit_by: 'consumer' });
    close();
    location.hash = href('review').slice(1);
  };
  return (
    <Dialog title={a.protectTitle(doc.id)} close={close}>
      <form onSubmit={submit}>
        <Field label={a.how} id={`${id}how`}>
          <select id={`${id}how`} value={how} onChange={(event) => setHow(event.currentTarget.value)}>
            {WAYS.map((name) => (
              <option value={name}>{`${a.ways[name]} (${name})`}</option>
            ))}
          </select>
        </Field>
        <Field label={a.groups} hint={a.groupsHint} id={`${id}groups`}>
          <textarea id={`${id}groups`} rows={2} value={groups} onInput={(event) => setGroups(event.currentTarget.value)} placeholder={[...new Set(known.flatMap((one) => one.acl_groups ?? []))].slice(0, 3).join(', ')} />
        </Field>
        <Field label={a.consumers} id={`${id}consumers`}>
          <textarea id={`${id}consumers`} rows={2} value={consumers} onInput={(event) => setConsumers(event.currentTarget.value)} placeholder={known.slice(0, 3).map((one) => one.username).join(', ')} />
        </Field>
        <Field label={a.pathOnly} hint={a.pathHint} id={`${id}path`}>
          <input id={`${id}path`} type="text" value={path} placeholder="/admin" onInput={(event) => setPath(event.currentTarget.value)} />
        </Field>
        <Field label={a.rate} hint={a.rateHint} id={`${id}rate`}>
          <input id={`${id}rate`} type="number" min="1" value={rate} onInput={(event) => setRate(event.currentTarget.value)} />
        </Field>
        <DialogActions close={close} submit={a.make} />
      </form>
    </Dialog>
  );
}

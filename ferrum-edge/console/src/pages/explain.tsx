// Which way a request takes, and why.
import { useEffect, useState } from 'preact/hooks';
import { errorText, request } from '../lib/api';
import { href } from '../lib/router';
import { t } from '../strings';
import { Field, Marked, Notice, Page, Panel, Tag } from '../ui/basics';
import { lines } from '../ui/form';
import { Record, question, urlOf } from './logs';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

export function Explain() {
  const from = question.value;
  const [method, setMethod] = useState<string>(from?.['http.request.method'] ?? 'GET');
  const [url, setUrl] = useState<string>(from ? urlOf(from) : 'http://');
  const [client, setClient] = useState<string>(from?.['client.address'] ?? '');
  const [headers, setHeaders] = useState(from?.['user_agent.original'] ? `user-agent: ${from['user_agent.original']}` : '');
  // A record names its caller and has no credential, without which an authentication plugin would refuse the question.
  const caller: string | undefined = from?.['enduser.id'];
  const [answer, setAnswer] = useState<any>(null);
  const [error, setError] = useState('');
  const ask = async () => {
    setError('');
    try {
      const fields = lines(headers).map((line) => {
        const at = line.indexOf(':');
        return at < 0 ? [line, ''] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      });
      const { data } = await request('POST', '/v1/explain', { method, url, headers: fields, ...(client.trim() ? { client: client.trim() } : {}), ...(caller ? { recorded_caller: caller } : {}) });
      setAnswer(data);
    } catch (failed) {
      setAnswer(null);
      setError(errorText(failed));
    }
  };
  useEffect(() => {
    if (from) void ask();
  }, []);
  const e = t.explain;
  return (
    <Page title={e.title} lead={e.lead}>
      {from?.timestamp && (
        <Panel title={e.recorded}>
          <Record record={from} />
          {caller && <p class="hint">{e.asCaller(caller)}</p>}
        </Panel>
      )}
      <Panel>
        <form
          class="question"
          onSubmit={(event) => {
            event.preventDefault();
            void ask();
          }}
        >
          <Field label={e.method} id="method">
            <select id="method" value={method} onChange={(event) => setMethod(event.currentTarget.value)}>
              {[...new Set([method, ...METHODS])].map((one) => (
                <option>{one}</option>
              ))}
            </select>
          </Field>
          <Field label={e.url} id="url">
            <input id="url" type="text" required value={url} spellcheck={false} onInput={(event) => setUrl(event.currentTarget.value)} />
          </Field>
          <Field label={e.client} id="client">
            <input id="client" type="text" value={client} placeholder="127.0.0.1" onInput={(event) => setClient(event.currentTarget.value)} />
          </Field>
          <Field label={e.headers} hint={e.headersHint} id="headers">
            <textarea id="headers" class="mono" rows={2} value={headers} onInput={(event) => setHeaders(event.currentTarget.value)} />
          </Field>
          <div class="actions">
            <button type="submit" class="primary">
              {e.ask}
            </button>
          </div>
        </form>
      </Panel>
      {error && <Notice kind="bad">{error}</Notice>}
      {answer && <Answer data={answer} />}
    </Page>
  );
}

/** Why a target is unhealthy, or that the last attempt at it failed. */
const trouble = (target: any): string =>
  target.healthy === false ? target.unhealthy_because || t.upstreams.unhealthy : target.last_attempt_failed_because ? t.upstreams.failing(target.last_attempt_failed_because, '') : '';

function Answer({ data }: { data: any }) {
  const e = t.explain;
  const taken = data.proxy;
  return (
    <div aria-live="polite">
      <Panel title={taken ? <>{e.takes} <a href={href('routes', taken.id)}>{taken.id}</a></> : e.nobody}>
        <dl>
          {data.refusal && (
            <>
              <dt>{e.refusal}</dt>
              <dd class="bad-text">
                <Marked text={typeof data.refusal === 'string' ? data.refusal : Object.values(data.refusal).join(' – ')} />
              </dd>
            </>
          )}
          {taken && (
            <>
              <dt>{e.because}</dt>
              <dd>{taken.reason}</dd>
              {taken.answered_by && (
                <>
                  <dt>{e.answered}</dt>
                  <dd>{typeof taken.answered_by === 'string' ? taken.answered_by : JSON.stringify(taken.answered_by)}</dd>
                </>
              )}
              {taken.forwards?.length > 0 && (
                <>
                  <dt>{e.forwards}</dt>
                  <dd>
                    <ul class="plain">
                      {taken.forwards.map((one: string) => (
                        <li>
                          <code>{one}</code>
                        </li>
                      ))}
                    </ul>
                  </dd>
                </>
              )}
              {taken.targets?.some(trouble) && (
                <>
                  <dt>{e.targets}</dt>
                  <dd>
                    <ul class="plain">
                      {taken.targets.filter(trouble).map((one: any) => (
                        <li class="bad-text">{`${one.address}: ${trouble(one)}`}</li>
                      ))}
                    </ul>
                  </dd>
                </>
              )}
            </>
          )}
        </dl>
        {taken?.plugins?.length > 0 && (
          <>
            <h3>{e.plugins}</h3>
            <ol class="steps">
              {taken.plugins.map((one: any) => (
                <li class={one.runs ? '' : 'faded'}>
                  <a href={href('plugins', one.id)}>{one.plugin_name}</a> <span class="muted">{one.id}</span> <Tag kind={one.runs ? 'good' : ''}>{one.runs ? e.runs : e.skipped}</Tag>
                  {one.reason && <span class="muted"> {one.reason}</span>}
                </li>
              ))}
            </ol>
          </>
        )}
      </Panel>
      {data.not_chosen?.length > 0 && (
        <Panel title={e.others}>
          <ul class="plain">
            {data.not_chosen.map((one: any) => (
              <li>
                <a href={href('routes', one.proxy)}>{one.proxy}</a> – {one.reason}
              </li>
            ))}
            {data.others > 0 && <li class="muted">{e.andOthers(data.others)}</li>}
          </ul>
        </Panel>
      )}
    </div>
  );
}

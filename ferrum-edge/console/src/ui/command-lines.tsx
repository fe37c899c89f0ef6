// The same change without the console.
import { type Call, type CliWords, cliLine, curlLine } from '../lib/commands';
import { t } from '../strings';
import { Code } from './basics';

/** A change by curl; where there is a command for it, also by the command line. */
export function CommandLines({ call, cli, title }: { call: Call; cli?: CliWords; title?: string }) {
  const name = (way: string) => (title ? `${title}: ${way}` : way);
  return (
    <>
      <h3>{name(t.editor.curl)}</h3>
      <Code text={curlLine(location.origin, call)} label={name(t.editor.curl)} />
      {call.secrets && <p class="hint">{t.editor.secrets(Object.values(call.secrets).join(', '))}</p>}
      {cli && (
        <>
          <h3>{name(t.editor.cli)}</h3>
          <Code text={cliLine(location.origin, cli)} label={name(t.editor.cli)} />
          {cli.words[0] === 'apply' && <p class="hint">{t.editor.cliHint}</p>}
        </>
      )}
    </>
  );
}

export interface Command {
  title: string;
  call: Call;
  cli?: CliWords;
}

/** The changes of a form or dialog, folded. */
export function Commands({ of }: { of: Command[] }) {
  return (
    <details class="commands">
      <summary>{t.editor.commands}</summary>
      {of.map((one) => (
        <CommandLines {...one} title={of.length > 1 ? one.title : undefined} />
      ))}
    </details>
  );
}

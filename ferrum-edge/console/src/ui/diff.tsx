// What is different between two objects, as lines of YAML.
import { useMemo, useState } from 'preact/hooks';
import { type Line, diffLines } from '../lib/diff';
import { toYaml } from '../lib/yaml';
import { t } from '../strings';

const CONTEXT = 3;
const SIGNS = { same: ' ', add: '+', remove: '−' };

export function Diff({ before, after, label }: { before: unknown; after: unknown; label: string }) {
  const [whole, setWhole] = useState(false);
  const lines = useMemo(() => diffLines(before == null ? '' : toYaml(before), after == null ? '' : toYaml(after)), [before, after]);
  if (lines.every((line) => line.kind === 'same')) return <p class="muted">{t.draft.same}</p>;
  const shown = whole ? lines : near(lines);
  return (
    <div class="diff" role="region" tabIndex={0} aria-label={label}>
      {shown.map((line) =>
        line === null ? (
          <button type="button" class="gap" onClick={() => setWhole(true)}>
            ⋯
          </button>
        ) : (
          <div class={line.kind}>
            <span aria-hidden="true">{SIGNS[line.kind]}</span>
            {line.kind !== 'same' && <span class="hidden">{line.kind === 'add' ? 'added: ' : 'removed: '}</span>}
            {line.text}
          </div>
        ),
      )}
    </div>
  );
}

/** Changed lines with those around them; `null` stands for what is left out. */
function near(lines: Line[]): (Line | null)[] {
  const keep = lines.map((_, n) => lines.slice(Math.max(0, n - CONTEXT), n + CONTEXT + 1).some((line) => line.kind !== 'same'));
  const shown: (Line | null)[] = [];
  lines.forEach((line, n) => {
    if (keep[n]) shown.push(line);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}

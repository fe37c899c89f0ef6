// Lines that two texts have in common, and those they don't (Myers' algorithm, with a limit on its effort).

export interface Line {
  kind: 'same' | 'add' | 'remove';
  text: string;
}

const MOST = 3000;

export function diffLines(before: string, after: string): Line[] {
  const a = before === '' ? [] : before.replace(/\n$/, '').split('\n');
  const b = after === '' ? [] : after.replace(/\n$/, '').split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const lines: Line[] = a.slice(0, head).map((text) => ({ kind: 'same', text }));
  lines.push(...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)));
  lines.push(...a.slice(a.length - tail).map((text) => ({ kind: 'same' as const, text })));
  return lines;
}

function middle(a: string[], b: string[]): Line[] {
  const whole = (): Line[] => [
    ...a.map((text) => ({ kind: 'remove' as const, text })),
    ...b.map((text) => ({ kind: 'add' as const, text })),
  ];
  if (!a.length || !b.length || a.length + b.length > MOST) return whole();
  const most = a.length + b.length;
  const trace: Int32Array[] = [];
  const v = new Int32Array(2 * most + 2);
  for (let d = 0; d <= most; d += 1) {
    trace.push(v.slice());
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && v[most + k - 1]! < v[most + k + 1]!);
      let x = down ? v[most + k + 1]! : v[most + k - 1]! + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x += 1;
        y += 1;
      }
      v[most + k] = x;
      if (x >= a.length && y >= b.length) return back(a, b, trace, most);
    }
  }
  return whole();
}

function back(a: string[], b: string[], trace: Int32Array[], most: number): Line[] {
  const lines: Line[] = [];
  let [x, y] = [a.length, b.length];
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const v = trace[d]!;
    const k = x - y;
    const down = k === -d || (k !== d && v[most + k - 1]! < v[most + k + 1]!);
    const from = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : v[most + from]!;
    const fromY = d === 0 ? 0 : fromX - from;
    while (x > fromX && y > fromY) {
      x -= 1;
      y -= 1;
      lines.push({ kind: 'same', text: a[x]! });
    }
    if (d === 0) break;
    if (down) {
      y -= 1;
      lines.push({ kind: 'add', text: b[y]! });
    } else {
      x -= 1;
      lines.push({ kind: 'remove', text: a[x]! });
    }
  }
  return lines.reverse();
}

export type Merged = { value: unknown; conflicts: string[] };

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
export const same = (a: unknown, b: unknown): boolean => {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, n) => same(item, b[n]));
  if (isObject(a) && isObject(b)) {
    const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
    return [...keys].every((key) => same(a[key], b[key]));
  }
  return false;
};

/** Combines two changes of one object, field by field. Where both changed a field, `mine` stands and its pointer is named. */
export function merge(base: unknown, mine: unknown, theirs: unknown, at = ''): Merged {
  if (same(mine, theirs) || same(base, theirs)) return { value: mine, conflicts: [] };
  if (same(base, mine)) return { value: theirs, conflicts: [] };
  if (!isObject(mine) || !isObject(theirs)) return { value: mine, conflicts: [at || '/'] };
  const origin = isObject(base) ? base : {};
  const value: Record<string, unknown> = {};
  const conflicts: string[] = [];
  for (const key of new Set([...Object.keys(mine), ...Object.keys(theirs)])) {
    const pointer = `${at}/${key.replace(/~/g, '~0').replace(/\//g, '~1')}`;
    const merged = merge(origin[key], mine[key], theirs[key], pointer);
    if (merged.value !== undefined) value[key] = merged.value;
    conflicts.push(...merged.conflicts);
  }
  return { value, conflicts };
}

// Numbers and times for people.
const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function rate(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  if (value >= 100) return value.toFixed(0);
  return value === 0 ? '0' : value.toFixed(1);
}

export function bytes(value: number): string {
  let n = 0;
  while (value >= 1024 && n < SIZES.length - 1) {
    value /= 1024;
    n += 1;
  }
  return `${value >= 100 || n === 0 ? value.toFixed(0) : value.toFixed(1)} ${SIZES[n]}`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return span(value);
}

export function span(value: number): string {
  const steps: [number, string][] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const n = steps.findIndex(([size]) => value >= size);
  if (n < 0) return '0 s';
  const [size, unit] = steps[n]!;
  const next = steps[n + 1];
  const rest = next ? Math.floor((value % size) / next[0]) : 0;
  return `${Math.floor(value / size)} ${unit}${rest && next ? ` ${rest} ${next[1]}` : ''}`;
}

const clock = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const hours = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export const time = (text: string | null | undefined): string => {
  const date = new Date(text ?? '');
  return Number.isNaN(date.getTime()) ? (text ?? '–') : clock.format(date);
};
export const hour = (text: string | null | undefined): string => {
  const date = new Date(text ?? '');
  return Number.isNaN(date.getTime()) ? (text ?? '–') : hours.format(date);
};
export function ago(text: string | null | undefined): string {
  const date = new Date(text ?? '').getTime();
  if (Number.isNaN(date)) return '–';
  const passed = (Date.now() - date) / 1000;
  return passed < 0 ? `in ${span(-passed)}` : `${span(passed)} ago`;
}
export const count = (value: number): string => value.toLocaleString('en-GB');

/** The duration that a share of a histogram's requests did not exceed, by linear interpolation within its bucket. */
export function percentile(bounds: number[], buckets: number[], share: number): number | null {
  const total = buckets.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  let left = total * share;
  for (let n = 0; n < buckets.length; n += 1) {
    const here = buckets[n]!;
    const low = n === 0 ? 0 : bounds[n - 1]!;
    const high = bounds[n] ?? low;
    if (left <= here) return here ? low + ((high - low) * left) / here : low;
    left -= here;
  }
  return bounds.at(-1) ?? null;
}

/** A word for a POSIX shell. */
export const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`);

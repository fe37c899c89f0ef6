// Charts by uPlot: lines over time, drawn on a canvas, with the same numbers as text for screen readers.
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export interface Series {
  label: string;
  /** The name of a colour in the style sheet, such as `--ok`. */
  color: string;
  values: (number | null)[];
  fill?: boolean;
}

interface Props {
  label: string;
  times: number[];
  series: Series[];
  show: (value: number) => string;
  height?: number;
}

const style = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart({ label, times, series, show, height = 180 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const data = [times, ...series.map((one) => one.values)] as uPlot.AlignedData;
  const newest = useRef(data);
  newest.current = data;
  const names = series.map((one) => one.label).join();
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      const axis = { stroke: style('--muted'), grid: { stroke: style('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
      plot.current = new uPlot(
        {
          width: box.current!.clientWidth || 600,
          height,
          cursor: { y: false, points: { size: 6 } },
          hooks: { setCursor: [(plot) => setAt(plot.cursor.idx ?? null)] },
          legend: { show: false },
          // Room for the lowest number also while there is no time axis.
          padding: [8, 28, 6, 0],
          scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
          axes: [
            { ...axis, values: (_plot, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString('en-GB')), space: 90, size: 30 },
            { ...axis, values: (_plot, ticks) => ticks.map(show), size: 62 },
          ],
          series: [
            {},
            ...series.map((one) => ({
              label: one.label,
              stroke: style(one.color),
              width: 1.5,
              fill: one.fill ? `${style(one.color)}22` : undefined,
              points: { show: false },
            })),
          ],
        },
        newest.current,
        box.current!,
      );
    };
    draw();
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: box.current?.clientWidth || 600, height }));
    resize.observe(box.current!);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', draw);
    addEventListener('ferrum-theme', draw);
    return () => {
      resize.disconnect();
      dark.removeEventListener('change', draw);
      removeEventListener('ferrum-theme', draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, height]);
  useEffect(() => {
    plot.current?.setData(newest.current);
  }, [times, series]);
  const last = (one: Series) => (at === null ? one.values.at(-1) : one.values[at]);
  const summary = series.map((one) => `${one.label} ${last(one) == null ? '–' : show(last(one)!)}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        {label}
        <span class="legend" aria-hidden="true">
          {at !== null && times[at] !== undefined && <em>{new Date(times[at]! * 1000).toLocaleTimeString('en-GB')}</em>}
          {series.map((one) => (
            <span>
              <svg viewBox="0 0 12 12">
                <rect width="12" height="12" rx="2" fill={`var(${one.color})`} />
              </svg>
              {one.label} <strong>{last(one) == null ? '–' : show(last(one)!)}</strong>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={box} role="img" aria-label={`${label}: ${summary}`} />
    </figure>
  );
}

/** A line of the last values, as small as a word. */
export function Spark({ values, label }: { values: number[]; label: string }) {
  const width = 120;
  const height = 22;
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, n) => `${((n / Math.max(1, values.length - 1)) * width).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={points.join(' ')} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" />
    </svg>
  );
}

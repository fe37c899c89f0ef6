// A table that draws only the rows in view, so that 30,000 rows cost what 40 do. Rows are a fixed height.
import type { ComponentChildren } from 'preact';
import { t } from '../strings';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

export interface Column<T> {
  name: string;
  title: string;
  /** A grid track, such as `2fr` or `8rem`. */
  width: string;
  cell: (row: T, at: number) => ComponentChildren;
  sort?: (a: T, b: T) => number;
  /** The track on narrow screens, if another. */
  narrow?: string;
  right?: boolean;
  /** Left out on narrow screens. */
  minor?: boolean;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  empty: ComponentChildren;
  height?: number;
  mark?: (row: T) => string;
}

/** More height of a row on narrow screens, where a cell may have two lines. */
const SECOND_LINE = 18;

/** Whether the screen is narrow, as in style.css. */
function useIsNarrow(): boolean {
  const query = useMemo(() => matchMedia('(max-width: 46rem)'), []);
  const [isNarrow, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, [query]);
  return isNarrow;
}

export function List<T>({ label, columns, rows, id, empty, height: line = 38, mark }: Props<T>) {
  const height = line + (useIsNarrow() ? SECOND_LINE : 0);
  const body = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, space: 800 });
  const [order, setOrder] = useState<{ name: string; down: boolean } | null>(null);
  useLayoutEffect(() => {
    const box = body.current;
    if (!box) return;
    const measure = () => setView({ top: box.scrollTop, space: box.clientHeight || 800 });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    box.addEventListener('scroll', measure, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener('scroll', measure);
    };
  }, [rows.length === 0]);
  const sorted = useMemo(() => {
    const column = order && columns.find((column) => column.name === order.name);
    if (!column?.sort) return rows;
    const all = rows.slice().sort(column.sort);
    return order!.down ? all.reverse() : all;
  }, [rows, order]);
  if (!rows.length) return <div class="empty">{empty}</div>;
  const first = Math.max(0, Math.min(Math.floor(view.top / height) - 8, sorted.length - 1));
  const last = Math.min(sorted.length, first + Math.ceil(view.space / height) + 16);
  const sort = (column: Column<T>) => {
    if (!order || order.name !== column.name) setOrder({ name: column.name, down: false });
    else if (!order.down) setOrder({ name: column.name, down: true });
    else setOrder(null);
  };
  // Rows and head have the same tracks, at full width and on narrow screens.
  const tracks = columns.map((column) => `minmax(0, ${column.width})`).join(' ');
  const narrow = columns.filter((column) => !column.minor).map((column) => `minmax(0, ${column.narrow ?? column.width})`).join(' ');
  const style = { '--tracks': tracks, '--narrow': narrow, '--row': `${height}px` } as any;
  return (
    <div class="list" role="table" aria-label={label} aria-rowcount={sorted.length + 1} style={style}>
      <div class="list-head" role="row" aria-rowindex={1}>
        {columns.map((column) => {
          const direction = order?.name === column.name ? (order.down ? 'descending' : 'ascending') : 'none';
          return (
            <div
              role="columnheader"
              class={`${column.right ? 'right' : ''}${column.minor ? ' minor' : ''}`}
              aria-sort={column.sort ? (direction as any) : undefined}
            >
              {column.sort ? (
                <button type="button" class="sort" onClick={() => sort(column)}>
                  {column.title}
                  <span aria-hidden="true">{direction === 'ascending' ? ' ↑' : direction === 'descending' ? ' ↓' : ''}</span>
                </button>
              ) : (
                column.title || <span class="hidden">{t.actions}</span>
              )}
            </div>
          );
        })}
      </div>
      <div class="list-body" role="rowgroup" ref={body} tabIndex={0} aria-label={label}>
        <div style={{ height: `${first * height}px` }} role="presentation" />
        {sorted.slice(first, last).map((row, n) => (
          <div class={`list-row ${mark?.(row) ?? ''}`} role="row" aria-rowindex={first + n + 2} key={id(row)}>
            {columns.map((column) => (
              <div role="cell" class={`${column.right ? 'right' : ''}${column.minor ? ' minor' : ''}`}>
                {column.cell(row, first + n)}
              </div>
            ))}
          </div>
        ))}
        <div style={{ height: `${(sorted.length - last) * height}px` }} role="presentation" />
      </div>
    </div>
  );
}

export const byText = <T,>(text: (row: T) => string) => (a: T, b: T) => text(a).localeCompare(text(b), 'en', { numeric: true });
export const byNumber = <T,>(number: (row: T) => number) => (a: T, b: T) => number(a) - number(b);

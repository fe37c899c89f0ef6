// Asking the gateway again and again, and only while somebody looks.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { errorText, get, session } from '../lib/api';

export interface Asked<T> {
  data: T | null;
  error: string;
  status: number;
  again: () => void;
}

/** Asks for `path` now and every `every` milliseconds (0: once), not while the page is hidden. */
export function useAsk<T = any>(path: string | null, every = 0, each?: (data: T) => void): Asked<T> {
  const [state, set] = useState<{ data: T | null; error: string; status: number }>({ data: null, error: '', status: 0 });
  const [turn, setTurn] = useState(0);
  const latest = useRef(each);
  latest.current = each;
  useEffect(() => {
    if (path === null) return;
    const ends = new AbortController();
    let timer = 0;
    const ask = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const data = await get<T>(path, ends.signal);
          if (ends.signal.aborted) return;
          latest.current?.(data);
          set({ data, error: '', status: 200 });
        } catch (error: any) {
          if (ends.signal.aborted) return;
          set((before) => ({ ...before, error: errorText(error), status: error.problem?.status ?? 0 }));
        }
      }
      if (every && !ends.signal.aborted && session.value) timer = window.setTimeout(ask, every);
    };
    const wake = () => {
      if (!document.hidden && every) void ask();
    };
    void ask();
    document.addEventListener('visibilitychange', wake);
    return () => {
      ends.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', wake);
    };
  }, [path, every, turn]);
  return { ...state, again: useCallback(() => setTurn((turn) => turn + 1), []) };
}

let last = 0;
/** An id that is unique within the page. */
export function useId(prefix = 'f'): string {
  const id = useRef('');
  if (!id.current) id.current = `${prefix}${(last += 1)}`;
  return id.current;
}

/** The value as it was before the last changes, once there are none for `wait` milliseconds. */
export function useSettled<T>(value: T, wait: number): T {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), wait);
    return () => clearTimeout(timer);
  }, [value, wait]);
  return settled;
}

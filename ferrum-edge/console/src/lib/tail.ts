// Access records as they come, with a limit on how many are held.
import { useEffect, useRef, useState } from 'preact/hooks';
import { errorText, follow, session } from './api';

export const MOST = 2000;
/** Records are shown at most so often, in milliseconds. */
const DRAW = 250;
const AGAIN = 2000;

export interface Tail {
  records: any[];
  lost: number;
  error: string;
  isFollowing: boolean;
  clear: () => void;
}

let serial = 0;

/** Follows `path` while `wanted`; `keep` picks the records to hold. The newest come first. */
export function useTail(path: string, wanted: boolean, keep: (record: any) => boolean = () => true): Tail {
  const [, turn] = useState(0);
  const state = useRef({ records: [] as any[], lost: 0, error: '', isFollowing: false });
  const filter = useRef(keep);
  filter.current = keep;
  useEffect(() => {
    if (!wanted) return;
    const ends = new AbortController();
    let timer = 0;
    const draw = () => {
      if (!timer && !ends.signal.aborted) {
        timer = window.setTimeout(() => {
          timer = 0;
          turn((n) => n + 1);
        }, DRAW);
      }
    };
    const run = async () => {
      while (!ends.signal.aborted && session.value) {
        try {
          state.current.isFollowing = true;
          state.current.error = '';
          draw();
          await follow(path, ends.signal, (records) => {
            for (const record of records) {
              if (record.kind === 'lost') state.current.lost += record.records;
              else if (filter.current(record)) state.current.records.unshift({ ...record, serial: (serial += 1) });
            }
            state.current.records.length = Math.min(state.current.records.length, MOST);
            draw();
          });
        } catch (error) {
          if (ends.signal.aborted) break;
          state.current.error = errorText(error);
        }
        state.current.isFollowing = false;
        draw();
        await new Promise((done) => setTimeout(done, AGAIN));
      }
    };
    void run();
    return () => {
      ends.abort();
      clearTimeout(timer);
      state.current.isFollowing = false;
    };
  }, [path, wanted]);
  return {
    ...state.current,
    records: state.current.records.slice(),
    clear: () => {
      state.current.records = [];
      state.current.lost = 0;
      turn((n) => n + 1);
    },
  };
}

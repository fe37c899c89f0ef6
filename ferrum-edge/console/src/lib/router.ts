// Where the console is: `#/page/part?key=value`. What may be secret never gets into the address.
import { computed, signal } from '@preact/signals';

export interface Place {
  page: string;
  parts: string[];
  query: URLSearchParams;
}

const read = (): string => location.hash.replace(/^#\/?/, '');
const hash = signal(read());
addEventListener('hashchange', () => (hash.value = read()));

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

export const place = computed<Place>(() => {
  const [path, query] = hash.value.split('?');
  const [page, ...parts] = (path ?? '').split('/').map(decoded);
  return { page: page || 'now', parts: parts.filter(Boolean), query: new URLSearchParams(query ?? '') };
});

export const href = (page: string, ...parts: string[]): string =>
  `#/${[page, ...parts].map(encodeURIComponent).join('/')}`;

/** Asks before leaving what would be lost; `null` when nothing would be. */
export const go = (to: string, replace = false): void => {
  if (replace) {
    history.replaceState(null, '', to);
    hash.value = read();
  } else {
    location.hash = to.slice(1);
  }
};

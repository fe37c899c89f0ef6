// Objects as YAML, with places for pointers (RFC 6901).
import { LineCounter, isMap, isSeq, parseDocument, stringify } from 'yaml';
import { t } from '../strings';
import type { FieldError } from './api';

export const toYaml = (value: unknown): string => stringify(value, { lineWidth: 100, aliasDuplicateObjects: false });

export interface Parsed {
  value: any;
  errors: { from: number; to: number; message: string }[];
}

export function fromYaml(text: string): Parsed {
  const document = parseDocument(text, { uniqueKeys: true, maxAliasCount: 20 } as any);
  const errors = document.errors.map((error) => ({
    from: error.pos[0],
    to: Math.max(error.pos[1], error.pos[0] + 1),
    message: error.message.split('\n')[0] ?? '',
  }));
  let value: any = null;
  if (!errors.length) {
    try {
      value = document.toJS({ maxAliasCount: 20 });
    } catch (error) {
      errors.push({ from: 0, to: 1, message: (error as Error).message });
    }
  }
  return { value, errors };
}

/** An object from its text. One that is stored keeps its id, which the text may leave out. */
export function objectFromYaml(text: string, id: string | null): Parsed {
  const { value, errors } = fromYaml(text);
  if (errors.length) return { value: null, errors };
  const wrong = (place: { from: number; to: number }, message: string) => ({ value: null, errors: [{ ...place, message }] });
  if (!value || typeof value !== 'object' || Array.isArray(value)) return wrong({ from: 0, to: Math.max(1, text.length) }, t.editor.notObject);
  if (id === null) return { value, errors };
  if ((value.id ?? id) !== id) return wrong(placeOf(text, '/id'), t.editor.keepsId(id));
  return { value: 'id' in value ? { ...value, id } : { id, ...value }, errors };
}

export const parts = (pointer: string): string[] =>
  pointer.split('/').slice(1).map((part) => part.replace(/~1/g, '/').replace(/~0/g, '~'));

export const pointerOf = (path: (string | number)[]): string =>
  path.map((part) => `/${String(part).replace(/~/g, '~0').replace(/\//g, '~1')}`).join('');

/** Where a pointer's value is in a text; the nearest parent's place where it has none itself. */
export function placeOf(text: string, pointer: string): { from: number; to: number } {
  const document = parseDocument(text, { lineCounter: new LineCounter() } as any);
  let node: any = document.contents;
  let place = { from: 0, to: Math.max(1, text.indexOf('\n')) };
  for (const part of parts(pointer)) {
    if (isMap(node)) {
      const pair: any = node.items.find((item: any) => String(item.key?.value ?? item.key) === part);
      if (!pair) break;
      if (pair.key?.range) place = { from: pair.key.range[0], to: pair.key.range[1] };
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[Number(part)];
      if (node?.range) place = { from: node.range[0], to: Math.max(node.range[0] + 1, Math.min(node.range[1], node.range[0] + 80)) };
    } else break;
  }
  return place;
}

export const diagnostics = (text: string, errors: FieldError[]) =>
  errors.map((error) => ({ ...placeOf(text, error.pointer), message: error.detail + (error.remedy ? ` (${error.remedy})` : '') }));

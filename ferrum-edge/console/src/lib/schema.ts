// JSON Schema as forms and completion read it.

export interface Shape {
  schema: any;
  root: any;
}

export type Widget = 'text' | 'number' | 'switch' | 'choice' | 'texts' | 'list' | 'object' | 'map' | 'variants' | 'any';

/** Follows `$ref`, and leaves the `null` of an optional field out. */
export function resolve({ schema, root }: Shape): Shape {
  let here = schema ?? {};
  for (let depth = 0; depth < 32; depth += 1) {
    if (typeof here.$ref === 'string') {
      const target = here.$ref.replace(/^#\//, '').split('/').reduce((at: any, part: string) => at?.[part], root);
      here = { ...target, ...without(here, '$ref') };
      continue;
    }
    const options = here.anyOf ?? here.oneOf;
    if (Array.isArray(options)) {
      const real = options.filter((option: any) => option.type !== 'null');
      if (real.length === 1) {
        here = { ...real[0], ...without(without(here, 'anyOf'), 'oneOf') };
        continue;
      }
    }
    break;
  }
  return { schema: here, root };
}

function without(object: any, key: string): any {
  const { [key]: _, ...rest } = object;
  return rest;
}

export const types = (schema: any): string[] =>
  ([] as string[]).concat(schema?.type ?? []).filter((type) => type !== 'null');

/** The values that a field may have, each with what it means; none where it is free. */
export function choices(shape: Shape): { value: any; meaning: string }[] {
  const { schema, root } = resolve(shape);
  if (Array.isArray(schema.enum)) {
    return schema.enum.filter((value: any) => value !== null).map((value: any) => ({ value, meaning: '' }));
  }
  if ('const' in schema) return [{ value: schema.const, meaning: schema.description ?? '' }];
  const options = (schema.oneOf ?? schema.anyOf ?? []).filter((option: any) => option.type !== 'null');
  const each = options.map((option: any) => choices({ schema: option, root }));
  return each.length && each.every((list: any[]) => list.length) ? each.flat() : [];
}

export function variants(shape: Shape): Shape[] {
  const { schema, root } = resolve(shape);
  const options = (schema.oneOf ?? schema.anyOf ?? []).filter((option: any) => option.type !== 'null');
  if (options.length) return options.map((option: any) => resolve({ schema: option, root }));
  const several = types(schema);
  return several.length > 1 ? several.map((type) => ({ schema: { ...schema, type }, root })) : [];
}

export function widget(shape: Shape): Widget {
  const { schema, root } = resolve(shape);
  if (choices(shape).length) return 'choice';
  const kinds = types(schema);
  if (schema.format === 'duration' || schema['x-unit'] !== undefined) return 'text';
  if (kinds.length === 1 || (kinds.length === 2 && kinds.includes('integer') && kinds.includes('string'))) {
    switch (kinds.length === 2 ? 'string' : kinds[0]) {
      case 'string':
        return 'text';
      case 'integer':
      case 'number':
        return 'number';
      case 'boolean':
        return 'switch';
      case 'array': {
        const item = widget({ schema: schema.items ?? {}, root });
        return item === 'text' ? 'texts' : schema.items ? 'list' : 'any';
      }
      case 'object':
        if (schema.properties) return 'object';
        return typeof schema.additionalProperties === 'object' ? 'map' : 'any';
    }
  }
  return variants(shape).length > 1 ? 'variants' : 'any';
}

/** What an empty value of a shape is. */
export function initial(shape: Shape): any {
  const { schema } = resolve(shape);
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  switch (widget(shape)) {
    case 'switch':
      return true;
    case 'number':
      return schema.minimum ?? 0;
    case 'choice':
      return choices(shape)[0]?.value;
    case 'texts':
      return [];
    case 'list':
      return [initial({ schema: schema.items, root: shape.root })];
    case 'object': {
      const value: any = {};
      for (const name of schema.required ?? []) value[name] = initial({ schema: schema.properties[name], root: shape.root });
      return value;
    }
    case 'map':
      return {};
    case 'variants':
      return initial(variants(shape)[0]!);
    case 'text':
      return '';
    default:
      return {};
  }
}

/** Which of several shapes a value has. */
export function variantOf(shape: Shape, value: any): number {
  const all = variants(shape);
  const fits = (one: Shape): boolean => {
    const kinds = types(one.schema);
    const of = Array.isArray(value) ? 'array' : typeof value === 'object' && value ? 'object' : typeof value;
    if (kinds.length && !kinds.includes(of) && !(of === 'number' && kinds.includes('integer'))) return false;
    const listed = choices(one);
    if (listed.length && !listed.some((choice) => choice.value === value)) return false;
    if (of !== 'object') return true;
    const known = one.schema.properties ?? {};
    const isClosed = one.schema.additionalProperties === false;
    return (
      Object.keys(value).every((key) => !isClosed || key in known) &&
      (one.schema.required ?? []).every((key: string) => key in value) &&
      Object.entries(known).every(([key, field]: any) => !('const' in (field ?? {})) || value[key] === field.const)
    );
  };
  const n = all.findIndex(fits);
  return n < 0 ? 0 : n;
}

export function titleOf(shape: Shape): string {
  const { schema, root } = resolve(shape);
  if (schema.title) return schema.title;
  const listed = choices(shape);
  if (listed.length) return listed.map((choice) => String(choice.value)).join(' or ');
  const kinds = types(schema);
  if (kinds[0] === 'array') return `list of ${titleOf({ schema: schema.items ?? {}, root })}`;
  const required: string[] = schema.required ?? [];
  if (kinds[0] === 'object') return required.length ? required.join(', ') : 'fields';
  return { string: 'text', integer: 'number', number: 'number', boolean: 'yes or no' }[kinds[0] ?? ''] ?? 'value';
}

/** The shape at a path within a shape, for completion. */
export function shapeAt(shape: Shape, path: (string | number)[]): Shape | null {
  let here: Shape | null = resolve(shape);
  for (const part of path) {
    if (!here) return null;
    const { schema, root } = here as Shape;
    const options: Shape[] = [here as Shape, ...variants(here as Shape)];
    let next: Shape | null = null;
    for (const option of options) {
      const field =
        typeof part === 'number'
          ? option.schema.items
          : (option.schema.properties?.[part] ??
            (typeof option.schema.additionalProperties === 'object' ? option.schema.additionalProperties : undefined));
      if (field) {
        next = resolve({ schema: field, root: option.root ?? root });
        break;
      }
    }
    if (!next && !schema) return null;
    here = next;
  }
  return here;
}

export const firstSentence = (text: string): string => /^.*?[.:](?=\s|$)/s.exec(text.trim())?.[0] ?? text;

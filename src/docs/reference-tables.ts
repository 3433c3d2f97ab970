import { type Html, html, table } from './html.ts';
import { renderInline } from './markdown.ts';
import type { Parameter, Schema } from './reference.ts';

/** Name, place and type, and description of each parameter. */
export function parameterTable(parameters: readonly Parameter[]): Html {
  return table(
    ['Parameter', 'Type', 'Meaning'],
    parameters.map(({ name, in: place, required, description = '', schema }) =>
      row(name, schema, { place, required, description: [description, limitText(schema)] }),
    ),
  );
}

/** Name, type and description of each property of an object; for input, also whether it is required and its limits. */
export function propertyTable(schema: Schema, { isInput }: { isInput: boolean }): Html {
  return table(['Field', 'Type', 'Meaning'], propertyRows(schema, isInput, ''));
}

/** The properties of objects in a list come after the list, with its name before theirs. */
function propertyRows({ properties = {}, required = [] }: Schema, isInput: boolean, prefix: string): Html[][] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const description = [schema.description ?? '', isInput ? limitText(schema) : ''];
    const own = row(`${prefix}${name}`, schema, { required: isInput && required.includes(name), description });
    return [own, ...(schema.items ? propertyRows(schema.items, isInput, `${prefix}${name}[].`) : [])];
  });
}

interface RowOptions {
  place?: string;
  required: boolean;
  description: string[];
}

function row(name: string, schema: Schema, { place, required, description }: RowOptions): Html[] {
  const flag = required ? html` <span class="required">required</span>` : '';
  const type = [place, typeText(schema)].filter(Boolean).join(', ');
  return [html`<code>${name}</code>${flag}`, html`${type}`, renderInline(description.filter(Boolean).join(' '))];
}

function typeText({ type, anyOf, format, enum: values, items, const: only }: Schema): string {
  if (anyOf) return anyOf.map(typeText).join(' or ');
  if (only !== undefined) return JSON.stringify(only);
  if (values) return values.map(value => JSON.stringify(value)).join(' or ');
  if (type === 'array') return `list of ${items?.properties ? 'objects' : typeText(items ?? {})}`;
  if (format && type === 'string') return formatNames[format] ?? format;
  return [type].flat().filter(Boolean).join(' or ') || 'any';
}

const formatNames: Record<string, string> = { 'date-time': 'time', uuid: 'UUID', email: 'e-mail address' };

/** `At most 50 characters.`, `From 1 to 9. By default 1.` */
function limitText({ maxLength, minimum, maximum, maxItems, default: value, anyOf }: Schema): string {
  const inner = anyOf?.[0] ?? {}; // of a nullable field, the schema of its values
  const maxCharacters = maxLength ?? inner.maxLength;
  const [from, to] = [minimum ?? inner.minimum, maximum ?? inner.maximum].map(shown);
  return [
    maxCharacters === undefined ? '' : `At most ${maxCharacters.toLocaleString('en')} characters.`,
    maxItems === undefined ? '' : `At most ${maxItems} items.`,
    from && to ? `From ${from} to ${to}.` : from ? `At least ${from}.` : to ? `At most ${to}.` : '',
    value === undefined || value === null ? '' : `By default \`${JSON.stringify(value)}\`.`,
  ]
    .filter(Boolean)
    .join(' ');
}

/** A bound as text; undefined for the bounds of the number types, which say nothing. */
function shown(bound: number | undefined): string | undefined {
  if (bound === undefined || Math.abs(bound) >= 2 ** 31 - 1) return undefined;
  return bound.toLocaleString('en');
}

import { type Html, html } from './html.ts';

/** The keywords of JSON Schema that the OpenAPI document of the service uses. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  enum?: unknown[];
  default?: unknown;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  anyOf?: Schema[];
  maxLength?: number;
  minimum?: number;
  maximum?: number;
}

interface Parameter {
  name: string;
  in: string;
  required: boolean;
  description?: string;
  schema: Schema;
}

/** Name, place and type, and description of each parameter. */
export function parameterTable(parameters: Parameter[]): Html {
  return table(
    parameters.map(({ name, in: place, required, description = '', schema }) =>
      row(name, `${place}, ${typeText(schema)}`, required, description),
    ),
  );
}

/** Name and type of each property of an object; for input, also whether it is required and its limits. */
export function propertyTable({ properties = {}, required = [] }: Schema, { isInput }: { isInput: boolean }): Html {
  return table(
    Object.entries(properties).map(([name, schema]) =>
      row(name, typeText(schema), isInput && required.includes(name), isInput ? limitText(schema) : undefined),
    ),
  );
}

function table(rows: Html[]): Html {
  return html`<div class="table"><table>${rows}</table></div>`;
}

/** @param note the third column; undefined: the table has two columns */
function row(name: string, type: string, required: boolean, note?: string): Html {
  const lastCell = note === undefined ? '' : html`<td>${note}</td>`;
  return html`<tr><td><code>${name}</code></td><td>${type}${required ? ', required' : ''}</td>${lastCell}</tr>`;
}

function typeText({ type, anyOf, format, enum: values, items }: Schema): string {
  if (anyOf) return anyOf.map(typeText).join(' or ');
  if (values) return values.map(value => JSON.stringify(value)).join(' or ');
  if (type === 'array') return `list of ${typeText(items ?? {})}`;
  return [type, format].filter(Boolean).join(', ') || 'any';
}

/** `at most 50 characters`, `from 1 to 9, 1 by default` */
function limitText({ maxLength, minimum, maximum, default: value, anyOf }: Schema): string {
  const inner = anyOf?.[0] ?? {}; // of a nullable field, the schema of its values
  const maxCharacters = maxLength ?? inner.maxLength;
  const range = [
    ['from', minimum ?? inner.minimum],
    ['to', maximum ?? inner.maximum],
  ] as const;
  return [
    maxCharacters === undefined ? '' : `at most ${maxCharacters.toLocaleString('en')} characters`,
    range.flatMap(([word, bound]) => (bound === undefined ? [] : [`${word} ${bound.toLocaleString('en')}`])).join(' '),
    value === undefined || value === null ? '' : `${JSON.stringify(value)} by default`,
  ]
    .filter(Boolean)
    .join(', ');
}

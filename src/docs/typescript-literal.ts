/** Code in place of a value. */
export class Expression {
  readonly code: string;
  constructor(code: string) {
    this.code = code;
  }
}

/** Maximum characters of a line of an example: the column of the examples is narrow. */
export const maxLine = 60;

/** A value as a literal of TypeScript, on one line if it is short. */
export function literal(value: unknown, indent = ''): string {
  if (value instanceof Expression) return value.code;
  if (typeof value === 'string') return `'${value.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  if (typeof value !== 'object' || value === null) return String(value);
  const items = itemsOf(value, indent).join(', ');
  const line = Array.isArray(value) ? `[${items}]` : items === '' ? '{}' : `{ ${items} }`;
  return indent.length + line.length <= maxLine && !line.includes('\n') ? line : broken(value, indent);
}

/** The literal of an object or a list, with each of its items on lines of its own. */
export function broken(value: object, indent: string): string {
  const inner = `${indent}  `;
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const lines = itemsOf(value, inner).map(item => `${inner}${item},\n`);
  return `${open}\n${lines.join('')}${indent}${close}`;
}

function itemsOf(value: object, indent: string): string[] {
  if (Array.isArray(value)) return value.map(each => literal(each, indent));
  const named = (name: string): string => (/^\w+$/.test(name) ? name : `'${name}'`);
  return Object.entries(value).map(([name, each]) => `${named(name)}: ${literal(each, indent)}`);
}

import { type Problem, type ProblemCode, problem } from '../errors.ts';
import { lengths, text } from '../http/fields.ts';
import { camelCase } from '../http/read-fields.ts';
import { type Condition, columnOf } from '../postgres/table-statements.ts';

/** A body's fields as properties of the entity; what was not sent is not there. */
export function toRow(fields: Record<string, unknown>): Record<string, unknown> {
  const sent = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(sent.map(([name, value]) => [camelCase(name), value]));
}

/** `countryCode` → `CountryCode`. */
export function pascalCase(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** The condition that finds a code without regard to letter case, as the unique index has it; undefined for no code at all. */
export function byCode(property: string, value: unknown): Condition | undefined {
  const code = text({ max: lengths.code }).safeParse(value);
  return code.success ? [`lower(${columnOf(property)}) = lower(?)`, code.data] : undefined;
}

/** Refuses a record for what one of its fields is or refers to. */
export function refuse(field: string, message: string, code: ProblemCode = 'validation_failed'): Problem {
  return problem(code, { errors: { [field]: [message] } });
}

import { raw } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import { type Problem, type ProblemCode, problem } from '../errors.ts';
import { lengths, text } from '../http/fields.ts';
import { camelCase } from '../http/read-fields.ts';

/** A body's fields as properties of the entity; what was not sent is not there. */
export function toRow(fields: Record<string, unknown>): Record<string, unknown> {
  const sent = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(sent.map(([name, value]) => [camelCase(name), value]));
}

/** Writes exactly the fields that a view names, from the properties of a row: a new column never leaves by itself. */
export function renderer(view: z.ZodObject): (row: object) => Record<string, unknown> {
  const fields = Object.keys(view.shape).map(name => [name, camelCase(name)] as const);
  return row => {
    const properties = row as Record<string, unknown>;
    return Object.fromEntries(fields.map(([name, property]) => [name, toWire(properties[property])]));
  };
}

function toWire(value: unknown): unknown {
  return value instanceof Date ? value.toISOString() : (value ?? null);
}

/** `countryCode` → `CountryCode`. */
export function pascalCase(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** All of these conditions; to be made anew for each query. */
export function all(...conditions: (object | undefined)[]): never {
  return { $and: conditions.filter(condition => condition !== undefined) } as never;
}

/** The condition that finds a code without regard to letter case, as the unique index has it; undefined for no code at all. */
export function byCode(property: string, value: unknown): object | undefined {
  const code = text({ max: lengths.code }).safeParse(value);
  if (!code.success) return undefined;
  const column = property.replace(/[A-Z]/g, capital => `_${capital.toLowerCase()}`);
  return { [raw(`lower(${column}) = lower(?)`, [code.data])]: [] };
}

/** Refuses a record for what one of its fields is or refers to. */
export function refuse(field: string, message: string, code: ProblemCode = 'validation_failed'): Problem {
  return problem(code, { errors: { [field]: [message] } });
}

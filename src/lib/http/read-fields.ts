import type { z } from 'zod';
import { problem } from '../errors.ts';
import { camelCase } from '../runtime/casing.ts';
import { inexactNumber } from '../runtime/exact-number.ts';
import type { FieldErrors } from '../runtime/field-error.ts';
import { fieldErrorOf } from './field-error-of.ts';

/**
 * Reads the fields of a contract from a parsed JSON body. A field may have its own name or its
 * name in camelCase. Other members are ignored.
 * @param unknown errors of other members, if they are refused
 * @throws {Problem} `validation_failed`, which names every invalid field
 */
export function readFields<Shape extends z.ZodRawShape>(
  contract: z.ZodObject<Shape>,
  body: object,
  unknown: FieldErrors = {},
): z.output<z.ZodObject<Shape>> {
  const errors: FieldErrors = { ...unknown };
  const values: Record<string, unknown> = {};
  const members = body as Record<string, unknown>;

  for (const [name, other] of spellingsOf(contract)) {
    const hasOther = Object.hasOwn(members, other);
    if (!Object.hasOwn(members, name)) {
      if (hasOther) values[name] = members[other];
      continue;
    }
    if (hasOther && !isSame(members[name], members[other])) {
      errors[name] = [
        {
          message: `is given twice with different values, as ${name} and ${other}`,
          code: 'ambiguous',
        },
      ];
    }
    values[name] = members[name];
  }

  return validate(contract, values, errors);
}

const spellings = new WeakMap<z.ZodObject, readonly (readonly [string, string])[]>();

/**
 * The name and the camelCase name of each field. Computed once: imports read 100,000 bodies of
 * a contract.
 */
function spellingsOf(contract: z.ZodObject): readonly (readonly [string, string])[] {
  let known = spellings.get(contract);
  if (!known) {
    known = Object.keys(contract.shape).map(name => [name, camelCase(name)]);
    spellings.set(contract, known);
  }
  return known;
}

/**
 * Reads the parameters of a route from a query string. Each parameter may occur once; other
 * parameters are ignored.
 * @param unknown errors of other parameters, if they are refused
 * @throws {Problem} `validation_failed`, which names every invalid parameter
 */
export function readQuery<Shape extends z.ZodRawShape>(
  parameters: z.ZodObject<Shape>,
  search: URLSearchParams,
  unknown: FieldErrors = {},
): z.output<z.ZodObject<Shape>> {
  const errors: FieldErrors = { ...unknown };
  const values: Record<string, unknown> = {};
  for (const name of Object.keys(parameters.shape)) {
    refuseRepeated(name, search, errors);
    const value = search.get(name);
    if (value !== null) values[name] = value;
  }
  return validate(parameters, values, errors);
}

/** Adds an error for a parameter that occurs twice, or as `limit[]`. */
export function refuseRepeated(name: string, search: URLSearchParams, errors: FieldErrors): void {
  if (
    search.getAll(name).length > 1 ||
    [...search.keys()].some(key => key.startsWith(`${name}[`))
  ) {
    errors[name] = [{ message: 'must be given once, as a plain value', code: 'ambiguous' }];
  }
}

function validate<Shape extends z.ZodRawShape>(
  contract: z.ZodObject<Shape>,
  values: Record<string, unknown>,
  errors: FieldErrors,
): z.output<z.ZodObject<Shape>> {
  const parsed = contract.safeParse(values);
  for (const issue of parsed.error?.issues ?? []) {
    const field = String(issue.path[0] ?? '');
    errors[field] ??= [fieldErrorOf(issue, values[field])];
  }
  if (!parsed.success || Object.keys(errors).length > 0) {
    throw problem('validation_failed', { errors });
  }
  return parsed.data;
}

/**
 * Compares scalars and lists of scalars. Deeper values are never equal: they are invalid in any
 * case.
 */
function isSame(one: unknown, other: unknown): boolean {
  if (!Array.isArray(one) || !Array.isArray(other)) return one === other;
  return one.length === other.length && one.every((item, index) => item === other[index]);
}

/**
 * Reads the fields that a JSON merge patch changes (RFC 7396), by the contract of the whole
 * record: a field that is not sent stays as it is. Null removes the value of a field. The field
 * is then null if it may be, and otherwise has the value that it has in a record that is
 * created without it.
 * @param unknown errors of other members, if they are refused
 * @throws {Problem} `validation_failed`, which names every invalid field, and those that cannot
 *   be removed
 */
export function readPatch(
  contract: z.ZodObject,
  patch: object,
  unknown: FieldErrors = {},
): Record<string, unknown> {
  const members = { ...patch } as Record<string, unknown>;
  const sent: Record<string, true> = {};
  for (const [name, field] of Object.entries(contract.shape)) {
    for (const spelling of new Set([name, camelCase(name)])) {
      if (!Object.hasOwn(members, spelling)) continue;
      sent[name] = true;
      if (members[spelling] === null && !takesNull(field as z.ZodType)) {
        members[spelling] = undefined;
      }
    }
  }

  return readFields(contract.pick(sent), members, unknown);
}

/** True when null is a value of the field. */
export function takesNull(field: z.ZodType): boolean {
  return field.safeParse(null).success;
}

/**
 * True if the header `Prefer` asks for strict handling (RFC 7240 §4.4), which refuses unknown
 * names.
 */
export function prefersStrict(header: string | undefined): boolean {
  return isPreferred(header, /^handling="?strict"?$/i);
}

/** True if the header `Prefer` asks for the number of all records of a list. */
export function prefersCount(header: string | undefined): boolean {
  return isPreferred(header, /^count="?exact"?$/i);
}

function isPreferred(header: string | undefined, wanted: RegExp): boolean {
  return (
    header?.split(/[,;]/).some(preference => wanted.test(preference.replace(/\s/g, ''))) ?? false
  );
}

/**
 * Returns an error for each name that is neither a field of the contract nor its camelCase
 * spelling.
 */
export function unknownNames(
  names: Iterable<string>,
  contract: z.ZodObject,
  message: string,
): FieldErrors {
  const known = new Set(Object.keys(contract.shape).flatMap(field => [field, camelCase(field)]));
  const unknown = [...new Set(names)].filter(name => !known.has(name));
  return Object.fromEntries(unknown.map(name => [name, [{ message, code: 'unknown' as const }]]));
}

/**
 * Returns an error for each field of the contract whose number has more digits than JavaScript
 * keeps.
 */
export function inexactErrors(names: readonly string[], contract: z.ZodObject): FieldErrors {
  if (names.length === 0) return {};
  const fields = Object.keys(contract.shape).filter(
    field => names.includes(field) || names.includes(camelCase(field)),
  );

  return Object.fromEntries(fields.map(field => [field, [inexactNumber]]));
}

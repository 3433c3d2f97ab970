import type { z } from 'zod';
import { Problem } from '../../problems.ts';
import { camelCase } from '../../runtime/casing.ts';
import { inexactNumber } from '../../runtime/exact-number.ts';
import type { FieldErrors } from '../../runtime/field-error.ts';
import { schemaOf } from '../schema-of.ts';
import { fieldErrorsOf, fieldNameOf, maxErrors, memberOf } from './field-error-of.ts';
import type { MemberPath } from './read-body.ts';

/**
 * The refusal of a body, or of parameters, by a contract. A route may check the fields that the
 * contract takes, so that a client learns all errors at once.
 */
export class InvalidFields extends Problem {
  override readonly errors: FieldErrors;
  readonly #contract: z.ZodObject;
  readonly #values: Record<string, unknown>;

  constructor(errors: FieldErrors, contract: z.ZodObject, values: Record<string, unknown>) {
    super('validation_failed', { errors });
    this.errors = errors;
    this.#contract = contract;
    this.#values = values;
  }

  /**
   * The values of the fields that have no error, as the contract reads them. A list whose members
   * alone have errors has undefined in their places.
   */
  get valid(): Record<string, unknown> {
    const members = Object.keys(this.errors).map(fieldNameOf);
    const read = Object.entries(this.#contract.shape)
      .filter(([name]) => !Object.hasOwn(this.errors, name))
      .map(([name, field]) => {
        const value = this.#values[name];
        // A client may name a member `Name[0]`, too, which is then refused as unknown.
        if (!members.includes(name) || !Array.isArray(value)) {
          return [name, schemaOf(field).safeParse(value).data];
        }

        const member = schemaOf(memberOf(field, [0]));
        const isValid = (index: number) => !Object.hasOwn(this.errors, `${name}[${index}]`);
        const read = value.map((each, index) =>
          isValid(index) ? member.safeParse(each).data : undefined,
        );
        return [name, read];
      });

    return Object.fromEntries(read);
  }
}

/**
 * Reads the fields of a contract from a parsed JSON body. A field may have its own name or its
 * name in camelCase. Other members are ignored. Null is no value, unless the field may be null:
 * the field is then required, or has its default.
 * @param unknown errors of other members, if they are refused
 * @throws {InvalidFields} which names every invalid field
 */
export function readFields<Shape extends z.ZodRawShape>(
  contract: z.ZodObject<Shape>,
  body: object,
  unknown: FieldErrors = {},
): z.output<z.ZodObject<Shape>> {
  const errors: FieldErrors = { ...unknown };
  const values: Record<string, unknown> = {};
  const members = body as Record<string, unknown>;

  for (const { name, other, takesNull } of spellingsOf(contract)) {
    const hasOther = Object.hasOwn(members, other);
    const hasName = Object.hasOwn(members, name);
    if (hasName && hasOther && !isSame(members[name], members[other])) {
      errors[name] = [
        {
          message: `is given twice with different values, as ${name} and ${other}`,
          code: 'ambiguous',
        },
      ];
    }

    const value = members[hasName ? name : other];
    if ((hasName || hasOther) && (value !== null || takesNull)) values[name] = value;
  }

  return validate(contract, values, errors);
}

/** The name of a field, its name in camelCase, and whether null is a value of it. */
interface Spelling {
  readonly name: string;
  readonly other: string;
  readonly takesNull: boolean;
}

const spellings = new WeakMap<z.ZodObject, readonly Spelling[]>();

/** The names of each field. Computed once: imports read 100,000 bodies of a contract. */
function spellingsOf(contract: z.ZodObject): readonly Spelling[] {
  let known = spellings.get(contract);
  if (!known) {
    known = Object.entries(contract.shape).map(([name, field]) => ({
      name,
      other: camelCase(name),
      takesNull: takesNull(schemaOf(field)),
    }));
    spellings.set(contract, known);
  }
  return known;
}

/**
 * Reads the parameters of a route from a query string. Each parameter may occur once; other
 * parameters are ignored.
 * @param unknown errors of other parameters, if they are refused
 * @throws {InvalidFields} which names every invalid parameter
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
  if (parsed.success && Object.keys(errors).length === 0) return parsed.data;

  const ofContract = fieldErrorsOf(contract, parsed.error?.issues ?? [], values);
  throw new InvalidFields({ ...ofContract, ...errors }, contract, values);
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
 * record: a field that is not sent stays as it is. Null removes the value of a field, which is
 * then read as `readFields` reads a field that is not sent.
 * @param unknown errors of other members, if they are refused
 * @throws {InvalidFields} which names every invalid field, and those that cannot be removed
 */
export function readPatch(
  contract: z.ZodObject,
  patch: object,
  unknown: FieldErrors = {},
): Record<string, unknown> {
  const sent = spellingsOf(contract)
    .filter(({ name, other }) => Object.hasOwn(patch, name) || Object.hasOwn(patch, other))
    .map(({ name }) => [name, true as const]);

  return readFields(contract.pick(Object.fromEntries(sent)), patch, unknown);
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
 * Returns an error for each field of the contract, and for each member of one, whose number has
 * more digits than JavaScript keeps.
 */
export function inexactErrors(paths: readonly MemberPath[], contract: z.ZodObject): FieldErrors {
  const errors: FieldErrors = {};

  for (const [sent, index] of paths.slice(0, maxErrors)) {
    const field = Object.keys(contract.shape).find(
      each => each === sent || camelCase(each) === sent,
    );
    if (field === undefined) continue;
    errors[index === undefined ? field : `${field}[${index}]`] = [inexactNumber];
  }
  return errors;
}

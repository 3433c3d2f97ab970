import { z } from 'zod';
import { readDecimal } from '../../../runtime/exact-number.ts';
import type { FieldError } from '../../../runtime/field-error.ts';
import { schemaOf } from '../../schema-of.ts';
import { emailPart, readEmail } from '../email.ts';
import { fieldErrorOf } from '../field-error-of.ts';
import { codeFormat, controlCharacters, maxInt32, moment, normalText } from '../fields.ts';
import { isUuid } from '../uuid.ts';

export type ListFieldKind =
  | 'text'
  | 'code'
  | 'email'
  | 'choice'
  | 'integer'
  | 'decimal'
  | 'boolean'
  | 'timestamp'
  | 'uuid';

const maxLong = Number.MAX_SAFE_INTEGER;

/** A field of a view that a list can be filtered by. */
export interface ListField {
  readonly name: string;
  readonly kind: ListFieldKind;
  readonly isNullable: boolean;
  readonly isSortable: boolean;
  /** True for a list of ids: a filter finds the records that have one of its values. */
  readonly isList: boolean;
  /** True for a value of another table, which no index serves. */
  readonly isComputed: boolean;
  /**
   * The largest value of the column of an integer, an int or a long; the smallest is
   * `-max - 1`.
   */
  readonly max: number;
  /** The values of a choice. */
  readonly values: readonly string[];
  /** The schema of a value, as responses have it: of a list, that of its members. */
  readonly schema: z.ZodType;
}

/**
 * Returns the field of a view; undefined for an object, and for a list of anything but ids.
 */
export function listField(
  name: string,
  schema: z.ZodType,
  { isSortable, isComputed }: Pick<ListField, 'isSortable' | 'isComputed'>,
): ListField | undefined {
  const isNullable = schema instanceof z.ZodNullable;
  const inner = isNullable ? schemaOf(schema.unwrap()) : schema;
  const isList = inner instanceof z.ZodArray;
  const one = isList ? schemaOf(inner.element) : inner;
  const kind = kindOf(one);
  if (!kind || (isList && kind !== 'integer')) return undefined;

  return {
    name,
    kind,
    isNullable,
    isSortable: isSortable && !isList,
    isList,
    isComputed,
    max: one instanceof z.ZodNumber && (one.maxValue ?? 0) > maxInt32 ? maxLong : maxInt32,
    values: one instanceof z.ZodEnum ? one.options.map(String) : [],
    schema: one,
  };
}

function kindOf(schema: z.ZodType): ListFieldKind | undefined {
  if (schema instanceof z.ZodISODateTime) return 'timestamp';
  if (schema instanceof z.ZodEnum) return 'choice';
  if (schema instanceof z.ZodBoolean) return 'boolean';
  if (schema instanceof z.ZodNumber) return schema.isInt ? 'integer' : 'decimal';
  if (schema instanceof z.ZodString) return kindsOfFormats[String(schema.meta()?.format)] ?? 'text';
  return undefined;
}

const kindsOfFormats: Readonly<Record<string, ListFieldKind>> = {
  uuid: 'uuid',
  [codeFormat]: 'code',
  'idn-email': 'email',
};

/** A value that SQL compares, as text; or the fault of the text that a client sent. */
export type FieldValue =
  | { readonly value: string; readonly error?: undefined }
  | { readonly error: FieldError };

/**
 * Reads the value of a filter, by the function that reads the field in a body: so a stored
 * value is found, and a value that cannot be stored is refused with the same reason.
 * @param isPart true for a part of a text, as of `prefix`: its white space belongs to the
 *   searched text
 */
export function readValue(field: ListField, text: string, isPart = false): FieldValue {
  switch (field.kind) {
    case 'text':
    case 'code':
      if (controlCharacters.test(text)) return { error: hasControlCharacters };
      return { value: isPart ? text.normalize('NFC') : normalText(text) };
    case 'email': {
      if (controlCharacters.test(text)) return { error: hasControlCharacters };
      if (isPart) return { value: emailPart(text) };

      const { address, error } = readEmail(text);
      return error ? { error } : { value: address };
    }
    case 'choice':
      return readChoice(text, field.values);
    case 'boolean':
      return readChoice(text, ['true', 'false']);
    case 'integer':
      if (!/^-?(0|[1-9]\d{0,19})$/.test(text)) {
        return {
          error: { message: 'must be a whole number', code: 'wrong_type', expected: 'int' },
        };
      }
      if (Number(text) > field.max || Number(text) < -field.max - 1) {
        return { error: { message: 'is out of range', code: 'out_of_range' } };
      }

      return { value: text };
    case 'decimal':
      return readNumber(text);
    case 'uuid':
      if (!isUuid(text.toLowerCase())) {
        return { error: { message: 'must be a UUID', code: 'wrong_format' } };
      }
      return { value: text };
    case 'timestamp':
      return isDay(text) ? { value: text } : readMoment(text);
  }
}

/**
 * True for a date without a time, such as `2026-01-31`, which stands for that day in UTC. A day
 * that no calendar has is read as a time, and refused as one.
 */
export function isDay(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false;
  const start = new Date(`${text}T00:00:00Z`);
  return (
    !Number.isNaN(start.getTime()) &&
    start.toISOString().startsWith(text) &&
    start.getUTCFullYear() > 0
  );
}

/**
 * Reads the value that a cursor holds: as PostgreSQL prints it. Null stands for null.
 * @returns undefined for a value that the field cannot have, which SQL would refuse
 */
export function readCursorValue(field: ListField, text: string | null): string | null | undefined {
  if (text === null) return field.isNullable ? null : undefined;
  if (field.kind === 'timestamp') return isPrintedTimestamp(text) ? text : undefined;
  if (['text', 'code', 'email', 'choice'].includes(field.kind)) {
    return text.includes('\0') ? undefined : text;
  }
  const { value, error } = { value: undefined, ...readValue(field, text) };
  return error ? undefined : value;
}

/** The error of a text that has control characters, which no stored text has. */
export const hasControlCharacters: FieldError = {
  message: 'must not contain control characters',
  code: 'invalid_text',
};

function readNumber(text: string): FieldValue {
  const { error } = readDecimal(text);
  return error ? { error } : { value: text };
}

/** Reads a value that must be one of several. */
export function readChoice(text: string, values: readonly string[]): FieldValue {
  if (values.includes(text)) return { value: text };
  return { error: { message: `must be one of ${values.join(', ')}`, code: 'not_allowed', values } };
}

function readMoment(text: string): FieldValue {
  const { data, error } = moment().safeParse(text);
  return error ? { error: fieldErrorOf(error.issues[0]!, text) } : { value: data.toISOString() };
}

/** `2026-01-31 12:00:00.123456+00`, and a date that exists: the first year is 1. */
function isPrintedTimestamp(text: string): boolean {
  const [, date, time] = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{1,6})?\+00$/.exec(text) ?? [];
  const moment = new Date(`${date}T${time}Z`);
  return (
    !Number.isNaN(moment.getTime()) &&
    moment.toISOString() === `${date}T${time}.000Z` &&
    moment.getUTCFullYear() > 0
  );
}

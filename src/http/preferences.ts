import type { z } from 'zod';
import { camelCase } from '../runtime/casing.ts';
import type { FieldErrors } from '../runtime/field-error.ts';

/** Whether the header `Prefer` asks for strict handling (RFC 7240 §4.4), which refuses what is else ignored. */
export function prefersStrict(header: string | undefined): boolean {
  return isPreferred(header, /^handling="?strict"?$/i);
}

/** Whether the header `Prefer` asks for the number of all records of a list. */
export function prefersCount(header: string | undefined): boolean {
  return isPreferred(header, /^count="?exact"?$/i);
}

function isPreferred(header: string | undefined, wanted: RegExp): boolean {
  return header?.split(/[,;]/).some(preference => wanted.test(preference.replace(/\s/g, ''))) ?? false;
}

/** Returns an error for each name that is neither a field of the contract nor its camelCase spelling. */
export function unknownNames(names: Iterable<string>, contract: z.ZodObject, message: string): FieldErrors {
  const known = new Set(Object.keys(contract.shape).flatMap(field => [field, camelCase(field)]));
  const unknown = [...new Set(names)].filter(name => !known.has(name));
  return Object.fromEntries(unknown.map(name => [name, [{ message, code: 'unknown' as const }]]));
}

import type { z } from 'zod';
import { camelCase } from '../runtime/casing.ts';
import type { FieldErrors } from '../runtime/field-error.ts';
import { readFields } from './read-fields.ts';

/**
 * Reads the fields that a JSON merge patch changes (RFC 7396), by the contract of the whole record: a field that is not
 * sent stays as it is. Null removes the value of a field. The field is then null if it may be, and otherwise has the value
 * that it has in a record that is created without it.
 * @param unknown errors of other members, if they are refused
 * @throws {Problem} `validation_failed`, which names every invalid field, and those that cannot be removed
 */
export function readPatch(contract: z.ZodObject, patch: object, unknown: FieldErrors = {}): Record<string, unknown> {
  const members = { ...patch } as Record<string, unknown>;
  const sent: Record<string, true> = {};
  for (const [name, field] of Object.entries(contract.shape)) {
    for (const spelling of new Set([name, camelCase(name)])) {
      if (!Object.hasOwn(members, spelling)) continue;
      sent[name] = true;
      if (members[spelling] === null && !takesNull(field as z.ZodType)) members[spelling] = undefined;
    }
  }
  return readFields(contract.pick(sent), members, unknown);
}

/** True when null is a value of the field. */
export function takesNull(field: z.ZodType): boolean {
  return field.safeParse(null).success;
}

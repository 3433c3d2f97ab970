import type { RowValues, RunStatement } from '../../../lib/postgres/statement.ts';
import { problem } from '../../../lib/problems.ts';
import { pascalCase } from '../../../lib/runtime/casing.ts';
import type { FieldError, FieldErrors } from '../../../lib/runtime/field-error.ts';
import { codeCondition } from '../record.ts';
import { type Reference, ReferredRecords } from './references.ts';
import type { ResourceDefinition } from './resource-definition.ts';

/** A record before it is written. */
export interface UncheckedRecord {
  /** The values that it shall have. A check replaces a key by its stored spelling. */
  readonly row: RowValues;
  /** The stored record; empty for a new one. */
  readonly before: RowValues;
  /** The errors of its fields. A check adds those that it finds. */
  readonly errors: FieldErrors;
  /** The titles that a file has in the place of keys of other records, by property. */
  readonly titles?: Readonly<Record<string, string>>;
}

/**
 * Requires that a record may be written: its references exist, and its fields agree. Reads all
 * of them with one statement, and nothing for a record whose references stay. A reference that
 * does not change is not checked again.
 * @throws {Problem} `validation_failed`, which has the error of each field: also of a code that
 *   is taken, if there are others
 */
export async function requireValid(
  resource: ResourceDefinition,
  record: UncheckedRecord,
  query: RunStatement,
): Promise<void> {
  const { references = {} } = resource;
  const referred = new ReferredRecords(references);

  wantReferences(resource, record, referred);
  await referred.read(query);
  resolveReferences(resource, record, referred);
  applyRules(resource, record);
  if (Object.keys(record.errors).length === 0) return;

  Object.assign(record.errors, await takenError(resource, record, query));
  throw problem('validation_failed', { errors: record.errors });
}

/** Remembers the records that a record names, for the next statement. */
export function wantReferences(
  { references = {} }: ResourceDefinition,
  record: UncheckedRecord,
  referred: ReferredRecords,
): void {
  for (const [property, reference] of Object.entries(references)) {
    if (hasError(record, property)) continue;
    const { title, keys, isDefault } = namedBy(record, property, reference);

    if (title !== undefined) referred.want(property, 'title', title);
    if (isDefault) referred.want(property, 'default');
    for (const key of keys) referred.want(property, 'key', String(key));
  }
}

/** The records that a property of a record names, and that must be looked up. */
function namedBy(
  { row, before, titles }: UncheckedRecord,
  property: string,
  { byDefault }: Reference,
): { title?: string; keys: readonly unknown[]; isDefault?: boolean } {
  const title = titles?.[property];
  if (title !== undefined) return { title, keys: [] };

  const value = row[property];
  if (Array.isArray(value)) {
    const stored = before[property];
    const known = new Set<unknown>(Array.isArray(stored) ? stored : []);
    return { keys: value.filter(key => key !== undefined && !known.has(key)) };
  }

  const isNone = value === undefined || value === null || value === 0;
  if (isNone) return { keys: [], isDefault: byDefault !== undefined };
  return { keys: value === before[property] ? [] : [value] };
}

/** Puts the keys of the records that were found into a record; the others are errors. */
export function resolveReferences(
  { references = {} }: ResourceDefinition,
  record: UncheckedRecord,
  referred: ReferredRecords,
): void {
  const { row, errors } = record;

  for (const [property, reference] of Object.entries(references)) {
    if (hasError(record, property)) continue;

    const field = pascalCase(property);
    const value = row[property];
    const { title, keys, isDefault } = namedBy(record, property, reference);
    const unknown: FieldError = { message: `is not ${reference.noun}`, code: 'unknown_reference' };

    if (title !== undefined) {
      const found = referred.find(property, 'title', title);
      const exact = found.filter(each => each.title === title);
      const [one, other] = exact.length > 0 ? exact : found;
      if (!one) errors[field] = [unknown];
      else if (other) errors[field] = [severalRecords];
      else row[property] = one.key;
    } else if (isDefault) {
      const [one] = referred.find(property, 'default');
      if (one) row[property] = one.key;
      else errors[field] = [{ message: 'is required', code: 'required' }];
    } else if (Array.isArray(value)) {
      const missing = new Set(
        keys.filter(key => referred.find(property, 'key', String(key)).length === 0),
      );
      for (const [index, key] of value.entries()) {
        if (missing.has(key)) errors[`${field}[${index}]`] = [unknown];
      }
      row[property] = [...new Set(value)];
    } else if (keys.length > 0) {
      const [one] = referred.find(property, 'key', String(value));
      if (one) row[property] = one.key;
      else errors[field] = [unknown];
    }
  }
}

const severalRecords: FieldError = {
  message: 'is the title of several records: give the number of one',
  code: 'ambiguous',
};

/** Adds the errors of the rules between the fields of a record. */
export function applyRules({ rules }: ResourceDefinition, record: UncheckedRecord): void {
  for (const [field, errors] of Object.entries(rules?.(record.row) ?? {})) {
    if (!hasError(record, field)) record.errors[field] = errors;
  }
}

/** @param name of a field or a property */
function hasError({ errors }: UncheckedRecord, name: string): boolean {
  return Object.hasOwn(errors, pascalCase(name));
}

/** Returns the error of a code that another record has; empty for a code that is free. */
async function takenError(
  resource: ResourceDefinition,
  record: UncheckedRecord,
  query: RunStatement,
): Promise<FieldErrors> {
  const { key, table, unique } = resource;
  const isKept = 'code' in key && Object.keys(record.before).length > 0;
  const code = unique === undefined ? undefined : record.row[unique];
  if (unique === undefined || isKept || hasError(record, unique)) return {};

  const condition = codeCondition(unique, code);
  const [taker] = condition ? await query(table.select([condition])) : [];
  if (!taker || ('id' in key && taker.Id === record.before.id)) return {};
  return takenBy(unique, taker);
}

/** Returns the errors of a code that a record has. */
export function takenBy(unique: string, taker: RowValues | undefined): FieldErrors {
  const deleted = taker?.IsDeleted === true;
  const message = deleted ? 'is taken by a record that is marked as deleted' : 'is taken';

  return { [pascalCase(unique)]: [{ message, code: 'taken', ...(deleted ? { deleted } : {}) }] };
}

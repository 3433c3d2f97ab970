import { sqlState } from '../../lib/postgres/database-error.ts';
import { pascalCase } from '../../lib/runtime/casing.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import type { RowError } from './import-report.ts';

/** The table may not grow: no further row can be written. */
export class TableFullError extends Error {
  override name = 'TableFullError';
}

/** The reason why the database refuses a row, by SQLSTATE. */
const reasons: [RegExp, Omit<RowError, 'Field'>][] = [
  [/^23503$/, { Code: 'unknown_reference', Reason: 'refers to a record that does not exist' }],
  [/^(22...|23...)$/, { Code: 'invalid', Reason: 'is not valid' }],
];

/**
 * Returns the errors of a row that the database refused.
 * @throws {TableFullError} when the table may not grow
 * @throws the error itself when it is not about a row
 */
export function databaseErrors(error: unknown, { unique }: ResourceDefinition): RowError[] {
  const state = sqlState(error) ?? '';
  if (state === 'SB001') throw new TableFullError('the table may not grow', { cause: error });
  if (state === '23505') {
    return [{ Field: unique ? pascalCase(unique) : '', Code: 'taken', Reason: 'is taken' }];
  }

  const found = reasons.find(([pattern]) => pattern.test(state));
  if (!found) throw error;
  return [{ Field: '', ...found[1] }];
}

import { createHash } from 'node:crypto';
import type { SortKey } from './list-contract.ts';
import { readCursorValue } from './list-field.ts';

/**
 * Makes the cursor of a record: base64url of a JSON array with the binding and the values of
 * the sorted fields, exactly as PostgreSQL prints them. A timestamp has microseconds there, so
 * that records of the same millisecond keep their order. A cursor is never only digits, which
 * would be an id in the list of entities.
 *
 * It is not secret and not signed, because it only says where a page starts: the rights of the
 * caller are checked for each page.
 */
export function cursorOf(binding: string, values: readonly (string | null)[]): string {
  return Buffer.from(JSON.stringify([binding, ...values])).toString('base64url');
}

/** Returns the values that a cursor holds; undefined unless it is one of this binding. */
export function readCursor(
  cursor: string,
  binding: string,
  sort: readonly SortKey[],
): (string | null)[] | undefined {
  const items = parse(cursor);
  if (!Array.isArray(items) || items.length !== sort.length + 1 || items[0] !== binding) {
    return undefined;
  }
  const values = sort.map(({ field }, i) => {
    const item: unknown = items[i + 1];
    return item === null || typeof item === 'string' ? readCursorValue(field, item) : undefined;
  });
  return values.every(value => value !== undefined) ? values : undefined;
}

/** @param parts the list, its order and its filters */
export function bindingOf(parts: unknown): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 12);
}

function parse(cursor: string): unknown {
  try {
    return JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    return undefined;
  }
}

import type { EntityManager } from '@mikro-orm/postgresql';
import { code } from '../../lib/http/fields.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { snakeCase } from '../../lib/runtime/casing.ts';

/**
 * The condition that finds a code in any letter case; undefined for an invalid code. The unique
 * index uses the same function of the database.
 */
export function codeCondition(property: string, value: unknown): Condition | undefined {
  const code = codeText.safeParse(value);
  return code.success ? [`code_key(${snakeCase(property)}) = code_key(?)`, code.data] : undefined;
}

/**
 * The contract of a code in a path or a file. Made once, because making it takes as long as a
 * query.
 */
export const codeText = code();

const maxLookups = 10_000;

/** The lookups that were made with an entity manager, by their keys. */
const lookups = new WeakMap<EntityManager, Map<string, Promise<unknown>>>();

/**
 * Lets `lookUp` with this entity manager read each key once from now on: many records may refer
 * to the same one.
 */
export function rememberLookups(em: EntityManager): void {
  lookups.set(em, new Map());
}

/**
 * Reads a thing that a record refers to.
 * @param key the same for equal reads
 */
export function lookUp<T>(em: EntityManager, key: string, read: () => Promise<T>): Promise<T> {
  const known = lookups.get(em);
  if (!known) return read();
  const found = known.get(key);
  if (found !== undefined) return found as Promise<T>;
  if (known.size >= maxLookups) known.clear();
  const result = read();
  known.set(key, result);
  result.catch(() => known.delete(key));
  return result;
}

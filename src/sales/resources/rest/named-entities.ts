import type { Condition } from '../../../lib/postgres/statement.ts';
import { type OwnEntity, ownEntityId } from '../../../tenancy/own-entity.ts';

/*
 * Records that name business entities, such as a promotion for some of them. A caller of scope
 * `Self` reads the records that name no entity or the own one, and of the ids the own one
 * alone. Every way to read such a record decides by these functions: lists, single reads, CSV,
 * changes, streams.
 */

/** True if a caller of scope `Self` reads a record that names these entities. */
export function isForEntity(ids: readonly number[], ownEntity: number): boolean {
  return ids.length === 0 || ids.includes(ownEntity);
}

/** Returns the ids of a record that a caller of scope `Self` reads. */
export function idsShownTo(ids: readonly number[], ownEntity: number): number[] {
  return ids.filter(id => id === ownEntity);
}

/** The condition of `isForEntity` for the rows of a table, with a column of `bigint[]`. */
export function forEntity(column: string, own: OwnEntity): Condition {
  const [sql, ...values] = ownEntityId(own);
  return [`(${column} = '{}' or ${column} @> array[${sql}]::bigint[])`, ...values];
}

/**
 * SQL: `isForEntity` for the JSON of a row in the audit log; false for null.
 * @param ownEntity a parameter
 */
export function jsonForEntity(json: string, column: string, ownEntity: string): string {
  const ids = `${json}->'${column}'`;
  return `coalesce(${ids} = '[]' or ${ids} @> to_jsonb(${ownEntity}), false)`;
}

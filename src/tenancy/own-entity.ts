import { type Condition, preparedStatement, type Statement } from '../lib/postgres/statement.ts';
import type { Caller } from './caller.ts';

/**
 * The business entity that a caller of scope `Self` is limited to: its number, and the time at
 * which it was created. The number alone is not enough: the users are in the control database,
 * and a tenant database that has lost its last commits (a failover, a server that was put back
 * to an earlier time) gives numbers again. Then the caller reads and writes nothing of the
 * entity that has the number now.
 */
export interface OwnEntity {
  readonly id: number;
  readonly since: string | null;
}

/** Returns the entity that a caller is limited to; undefined: all are reached. */
export function ownEntityOf({
  scope,
  entityId,
  entitySince,
}: Pick<Caller, 'scope' | 'entityId' | 'entitySince'>): OwnEntity | undefined {
  return scope === 'Self' ? { id: entityId ?? 0, since: entitySince } : undefined;
}

/**
 * SQL with its values: the number of the entity of a caller; null if the database does not have
 * that entity. PostgreSQL looks it up once for a statement, by its key.
 */
export function ownEntityId({ id, since }: OwnEntity): Condition {
  return ['(select own.id from entities own where own.id = ? and own.created_at = ?)', id, since];
}

/** Returns the condition for rows whose column names the entity of a caller. */
export function ofOwnEntity(column: string, own: OwnEntity): Condition {
  const [sql, ...values] = ownEntityId(own);
  return [`${column} = ${sql}`, ...values];
}

/** Selects a row without columns if the database has the entity of a caller. */
export function selectOwnEntity({ id, since }: OwnEntity): Statement {
  return preparedStatement('select from entities where id = $1 and created_at = $2', [id, since]);
}

/** True if a loaded entity, which has the number of that of a user, is that of the user. */
export function isSameEntity(entity: { createdAt: Date }, since: string | null): boolean {
  return since !== null && entity.createdAt.getTime() === new Date(since).getTime();
}

import { lockKey, lockSpaces } from '../lib/postgres/advisory-locks.ts';
import type { QueryControl } from './database.ts';

const keyOf = (tenantId: number): number[] => [lockSpaces.people, lockKey(String(tenantId))];

/**
 * Locks the users and roles of a tenant as `tryLockPeople` does, but waits for the lock. For
 * commands of an operator.
 */
export async function lockPeople(query: QueryControl, tenantId: number): Promise<void> {
  await query('lock_people', 'select pg_advisory_xact_lock($1, $2)', keyOf(tenantId));
}

/**
 * Locks the users and roles of a tenant until the transaction ends, so that changes of them
 * follow one another. Does not wait: a waiter would hold one of the few connections to the
 * control database.
 * @returns false when another transaction has the lock
 */
export async function tryLockPeople(query: QueryControl, tenantId: number): Promise<boolean> {
  const [row] = await query<{ locked: boolean }>(
    'try_lock_people',
    'select pg_try_advisory_xact_lock($1, $2) as locked',
    keyOf(tenantId),
  );
  return row?.locked === true;
}

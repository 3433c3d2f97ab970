import { OperatorError } from '../../operator-error.ts';
import { lockSpaces } from '../../postgres/advisory-locks.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';

/**
 * Runs `work` under a shared lock, with which no migration, move or purge changes the database of a tenant.
 * @throws {OperatorError} when one of them has begun
 */
export async function withTenantUnchanged(
  control: Queryable,
  tenantId: string,
  work: () => Promise<void>,
): Promise<void> {
  const lock = [lockSpaces.tenant, Number(tenantId)];
  const { rows } = await control.query<{ locked: boolean }>(
    'select pg_try_advisory_lock_shared($1, $2) as locked',
    lock,
  );
  if (!rows[0]?.locked) throw new OperatorError('another command works on it (migrate, move or purge): run this again');
  try {
    await work();
  } finally {
    await control.query('select pg_advisory_unlock_shared($1, $2)', lock);
  }
}

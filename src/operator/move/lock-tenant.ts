import type pg from 'pg';
import { OperatorError } from '../../operator-error.ts';
import { lockSpaces } from '../../postgres/advisory-locks.ts';

/**
 * Locks a tenant against migrations, purges and other moves, until the connection ends.
 * @throws {OperatorError} when another command works on the tenant
 */
export async function lockTenant(control: pg.Client, tenantId: number, slug: string): Promise<void> {
  const { rows } = await control.query<{ locked: boolean }>('select pg_try_advisory_lock($1, $2) as locked', [
    lockSpaces.tenant,
    tenantId,
  ]);
  if (!rows[0]?.locked)
    throw new OperatorError(
      `Another command works on ${slug} at the moment (a move, a migration, a rollback or a change of its data): ` +
        'wait until it has ended',
    );
}

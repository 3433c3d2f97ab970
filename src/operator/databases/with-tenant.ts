import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findTenant } from '../tenants/tenants.ts';
import type { LockedTenant } from './database-store.ts';

/**
 * Runs work on the databases of a tenant while no other command does, until the connection to the control database ends.
 * @throws {TenantBusyError} when another command works on the tenant
 */
export async function withTenant<T>(
  installation: Installation,
  slug: string,
  work: (control: pg.Client, tenant: LockedTenant) => Promise<T>,
): Promise<T> {
  const { id, guid } = await findTenant(installation, slug);
  return withConnection(installation.controlUrl, async control => {
    await lockTenant(control, id, slug);
    return work(control, { id, guid, slug });
  });
}

/** Another command works on the tenant. */
export class TenantBusyError extends OperatorError {
  override name = 'TenantBusyError';

  constructor(slug: string) {
    super(
      `Another command works on ${slug} at the moment (a move, a migration, a rollback or a change of its data): ` +
        'wait until it has ended',
    );
  }
}

/** @throws {TenantBusyError} when another command works on the tenant */
export async function lockTenant(control: pg.Client, tenantId: number, slug: string): Promise<void> {
  const { rows } = await control.query<{ locked: boolean }>('select pg_try_advisory_lock($1, $2) as locked', [
    lockSpaces.tenant,
    tenantId,
  ]);
  if (!rows[0]?.locked) throw new TenantBusyError(slug);
}

import type pg from 'pg';
import type { Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { lockSpaces, releaseLock, tryLock } from '../../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import { findTenant, requireNamed } from '../../registry/tenants.ts';
import type { LockedTenant } from '../store/database-store.ts';

/**
 * Runs work on the databases of a tenant while no other command does, until the connection to
 * the control database ends.
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

/**
 * Runs `work` under a shared lock, with which no migration, move or purge changes the database
 * of a tenant.
 * @throws {OperatorError} when one of them has begun
 */
export async function withTenantUnchanged(
  control: Queryable,
  tenantId: string,
  work: () => Promise<void>,
): Promise<void> {
  const lock = [lockSpaces.tenant, Number(tenantId), 'shared'] as const;
  if (!(await tryLock(control, ...lock))) {
    throw new OperatorError('another command works on it (migrate, move or purge): run this again');
  }
  try {
    await work();
  } finally {
    await releaseLock(control, ...lock);
  }
}

/** Another command works on the tenant. */
export class TenantBusyError extends OperatorError {
  override name = 'TenantBusyError';

  constructor(slug: string) {
    super(
      `Another command works on ${slug} at the moment (a move, a migration, a rollback or a ` +
        'change of its data): wait until it has ended',
    );
  }
}

/**
 * Locks a tenant until the connection ends: it has the same slugs for as long.
 * @throws {TenantBusyError} when another command works on the tenant
 * @throws {OperatorError} when the slug does not lead to the tenant any more
 */
export async function lockTenant(
  control: pg.Client,
  tenantId: number,
  slug: string,
): Promise<void> {
  if (!(await tryLock(control, lockSpaces.tenant, tenantId))) throw new TenantBusyError(slug);
  await requireNamed(control, tenantId, slug);
}

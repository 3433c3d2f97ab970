import type { Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { findTenant } from '../../registry/tenants.ts';
import { requireUsableTenant } from '../../registry/usable-tenant.ts';
import {
  findNewer,
  type NewerDatabase,
  newerError,
  requireNoneNewer,
} from '../protocol/newer-database.ts';
import { retreatIfFenced } from '../protocol/retreat-tenant.ts';
import type { RunContext } from '../protocol/run-databases.ts';

/** The differences between verbs. */
interface FreeOptions {
  /** True for a verb that can put a newer database of the tenant in place. */
  readonly adopts?: boolean;
  /** True for a verb that works behind the fence that an earlier run has left. */
  readonly staysFenced?: boolean;
}

/**
 * Requires that nothing is in the way of a verb that gives a tenant a database, in this order:
 *
 *   1. No purge of the tenant has begun, it is provisioned, and no later build has migrated it
 *      (`requireUsableTenant`).
 *   2. The control database names the database that the tenant has, and no former one
 *      (`requireNoneNewer`).
 *   3. No earlier run has left its fence: it is lifted, so that the database that the tenant has
 *      serves it again, whatever the verb refuses afterwards (`retreatIfFenced`).
 *
 * The lock of the tenant is held (`withTenant`).
 * @returns the newer database of a verb that adopts it, which stays behind its fence
 * @throws {LaterBuildError} when a later build has migrated the tenant
 * @throws {OperatorError} when something else is in the way, with the command that removes it
 */
export async function requireFree(
  context: RunContext,
  { adopts = false, staysFenced = false }: FreeOptions = {},
): Promise<NewerDatabase | undefined> {
  const { installation, tenant } = context;
  await requireUsableTenant(installation, await findTenant(installation, tenant.slug));

  if (adopts) {
    const newer = await findNewer(context);
    if (newer) return newer;
  } else {
    await requireNoneNewer(context);
  }

  if (!staysFenced) await retreatIfFenced(context);
  return undefined;
}

/**
 * Checks what `requireFree` does, on a connection of its own, and changes nothing.
 * @throws as `requireFree`
 */
export async function planFree(
  installation: Installation,
  tenant: Tenant,
  { adopts = false }: Pick<FreeOptions, 'adopts'> = {},
): Promise<NewerDatabase | undefined> {
  await requireUsableTenant(installation, tenant);

  const newer = await withConnection(installation.controlUrl, control =>
    findNewer({ installation, control, tenant }),
  );
  if (newer && !adopts) throw newerError(tenant.slug, newer);
  return newer;
}

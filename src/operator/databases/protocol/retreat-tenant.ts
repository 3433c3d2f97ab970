import type { Installation } from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { findRemains } from '../store/database-names.ts';
import { closedStamp } from '../store/database-stamp.ts';
import { readCurrent } from '../store/database-store.ts';
import { hasFence } from '../store/fence.ts';
import { readStamp } from './drop-database.ts';
import { findNewer, type NewerDatabase, requireNoneNewer } from './newer-database.ts';
import { type RunContext, type RunObservers, runDatabases } from './run-databases.ts';
import { withTenant } from './with-tenant.ts';

/**
 * Serves a tenant again from its current database, after a run has failed or was killed behind
 * the fence. Changes nothing for a tenant without a fence.
 * @throws {OperatorError} when another command works on the tenant
 */
export async function retreatTenant(installation: Installation, slug: string): Promise<void> {
  await withTenant(installation, slug, (control, tenant) =>
    retreatIfFenced({ installation, control, tenant }),
  );
}

/**
 * Does the work of `retreatTenant` for a tenant whose lock is held.
 * @returns true if the tenant had a fence
 * @throws {OperatorError} as `requireNoneNewer`
 */
export async function retreatIfFenced(
  context: RunContext,
  observers: RunObservers = {},
): Promise<boolean> {
  if (!(await hasFence(context.control, context.tenant.guid))) return false;

  await requireNoneNewer(context);
  await runDatabases(context, 'retreat', {}, observers);
  return true;
}

/**
 * Lets the database that a tenant has serve it, also without a fence: a control database of an
 * earlier time does not know the fence behind which that database was closed. Changes nothing
 * for a tenant that is being provisioned or purged.
 * @returns false if it was served already
 * @throws {OperatorError} as `requireNoneNewer`
 */
export async function retreatAlways(
  context: RunContext,
  observers: RunObservers = {},
): Promise<boolean> {
  if (await retreatIfFenced(context, observers)) return true;
  if (!(await isComplete(context))) return false;
  await requireNoneNewer(context);
  if (await isServed(context)) return false;
  await runDatabases(context, 'retreat', {}, observers);
  return true;
}

/**
 * Returns whether `retreatAlways` would let the database that a tenant has serve it, or the
 * newer one for which it would refuse to, and changes nothing.
 */
export async function planRetreat(context: RunContext): Promise<boolean | NewerDatabase> {
  const isFenced = await hasFence(context.control, context.tenant.guid);
  if (!isFenced && !(await isComplete(context))) return false;

  return (await findNewer(context)) ?? !(await isServed(context));
}

/** Returns false for a tenant that is being provisioned or purged. */
async function isComplete({ control, tenant }: RunContext): Promise<boolean> {
  const { rowCount } = await control.query(
    `select from tenants where id = $1 and status <> 'provisioning' and purging_at is null`,
    [tenant.id],
  );
  return rowCount === 1;
}

/**
 * Returns false if a tenant has a fence, or its database is closed. A lost database cannot be
 * opened.
 */
async function isServed({ installation, control, tenant }: RunContext): Promise<boolean> {
  if (await hasFence(control, tenant.guid)) return false;
  const current = await readCurrent(control, tenant.id);
  const stamp = current && (await readStamp(installation, current));
  if (!current || !stamp) return true;
  if (stamp === closedStamp(tenant.guid)) return false;
  return withConnection(installation.servers.adminUrl(current.server), async admin => {
    return (await findRemains(admin, current)).role?.mayLogIn !== false;
  });
}

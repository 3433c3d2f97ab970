import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { findRemains } from './database-names.ts';
import { closedStamp } from './database-stamp.ts';
import { readCurrent, readDatabases } from './database-store.ts';
import { readStamp } from './drop-database.ts';
import { hasFence } from './fence.ts';
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
 */
export async function retreatIfFenced(
  context: RunContext,
  observers: RunObservers = {},
): Promise<boolean> {
  const isFenced = await hasFence(context.control, context.tenant.guid);
  if (isFenced) await runDatabases(context, 'retreat', {}, observers);
  return isFenced;
}

/**
 * Lets the database that a tenant has serve it, also without a fence: a control database of an
 * earlier time does not know the fence behind which that database was closed. Changes nothing
 * for a tenant that is being provisioned or purged.
 * @returns false if it was served already
 * @throws {OperatorError} when that database is closed and another one lets the tenant in,
 *   which may have newer data
 */
export async function retreatAlways(
  context: RunContext,
  observers: RunObservers = {},
): Promise<boolean> {
  if (await retreatIfFenced(context, observers)) return true;
  const { rowCount } = await context.control.query(
    `select from tenants where id = $1 and status <> 'provisioning' and purging_at is null`,
    [context.tenant.id],
  );
  if (!rowCount) return false;
  if (await isServed(context)) return false;
  await requireNoneNewer(context);
  await runDatabases(context, 'retreat', {}, observers);
  return true;
}

/**
 * Returns false if a tenant has a fence, or its database is closed. A lost database cannot be
 * opened.
 */
export async function isServed({ installation, control, tenant }: RunContext): Promise<boolean> {
  if (await hasFence(control, tenant.guid)) return false;
  const current = await readCurrent(control, tenant.id);
  const stamp = current && (await readStamp(installation, current));
  if (!current || !stamp) return true;
  if (stamp === closedStamp(tenant.guid)) return false;
  return withConnection(installation.servers.adminUrl(current.server), async admin => {
    return (await findRemains(admin, current)).role?.mayLogIn !== false;
  });
}

async function requireNoneNewer({ installation, control, tenant }: RunContext): Promise<void> {
  for (const { server, database, keptBy } of await readDatabases(control, tenant.id, [
    'filled',
    'kept',
  ])) {
    if ((await readStamp(installation, { server, database })) !== tenant.guid) continue;
    const kind = keptBy === 'swap' ? 'back' : 'swap';
    throw new OperatorError(
      `${database} of ${tenant.slug} may have newer data than its current one, which is closed: the control database ` +
        `is of an earlier time. Put it in place: bin/backoffice restore ${kind} ${tenant.slug} --database ${database}`,
    );
  }
}

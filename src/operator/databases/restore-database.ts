import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { requireNotPurging } from '../tenants/purging.ts';
import { findTenant } from '../tenants/tenants.ts';
import type { TenantDatabase } from './database-store.ts';
import { type EarlierData, fillWith, requireKnownVersion } from './fill-database.ts';
import { findRemains } from './remains.ts';
import { type RunObservers, runDatabases } from './run-databases.ts';
import { withTenant } from './with-tenant.ts';

/**
 * Restores earlier data of a tenant in a database with new names. `place` puts it beside the tenant, where nobody uses
 * it, with the ids of the users, so that the two can be compared and exchanged. `replace` puts it in the place of a
 * lost database, and serves the tenant again. If the command was killed at any point, run it again; a `replace` may
 * then use other data.
 * @throws {OperatorError} when this build does not know the version of the data, another command works on the tenant,
 *   or the database to replace exists
 */
export async function restoreDatabase(
  installation: Installation,
  slug: string,
  data: EarlierData,
  goal: 'place' | 'replace',
  observers: RunObservers = {},
): Promise<TenantDatabase> {
  await requireKnownVersion(data.schemaVersion);
  return withTenant(installation, slug, async (control, tenant) => {
    const found = await findTenant(installation, slug);
    if (found.status === 'provisioning')
      throw new OperatorError(`${slug} is not completely provisioned: provision it again`);
    await requireNotPurging(installation, slug);
    if (goal === 'replace') await requireLost(installation, found);
    const placement = {
      server: found.server,
      origin: data.description,
      version: data.schemaVersion,
      fill: fillWith(installation, data),
    };
    const plan = { placement, keptBy: 'lost' } as const;
    const { target } = await runDatabases({ installation, control, tenant }, goal, plan, observers);
    if (!target) throw new Error('nothing was placed');
    return target;
  });
}

/** @throws {OperatorError} when the server has the database of the tenant; or the tenant is purged */
export async function requireLost(installation: Installation, tenant: Tenant): Promise<void> {
  const { slug, guid, status, server, databaseName: database, roleName: role } = tenant;
  await requireNotPurging(installation, slug);
  if (status === 'provisioning') throw new OperatorError(`${slug} is not completely provisioned: provision it again`);
  const { exists } = await withConnection(installation.servers.adminUrl(server), admin =>
    findRemains(admin, { database, role }, guid),
  );
  if (!exists) return;
  throw new OperatorError(
    `Server ${server.name} has database ${database} of ${slug}: nothing was changed. Restore beside it ` +
      `(without --lost), or rename it if it cannot be used: alter database ${quoteIdentifier(database)} rename to …;`,
  );
}

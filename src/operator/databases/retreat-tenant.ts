import type { Installation } from '../../installation.ts';
import { type RunContext, type RunObservers, runDatabases } from './run-databases.ts';
import { withTenant } from './with-tenant.ts';

/**
 * Puts a tenant back into service, with the database that it has, whose run has ended behind the fence. Changes nothing
 * for a tenant without a fence.
 * @throws {OperatorError} when another command works on the tenant
 */
export async function retreatTenant(installation: Installation, slug: string): Promise<void> {
  await withTenant(installation, slug, (control, tenant) => retreatIfFenced({ installation, control, tenant }));
}

/** As `retreatTenant`, for a tenant whose lock is held. */
export async function retreatIfFenced(context: RunContext, observers: RunObservers = {}): Promise<void> {
  const { control, tenant } = context;
  const { rowCount } = await control.query('select from tenant_fences where tenant_guid = $1', [tenant.guid]);
  if (rowCount) await runDatabases(context, 'retreat', {}, observers);
}

import type { Prepare } from '../connections/tenant-driver.ts';
import type { TenantRecord } from '../control/records.ts';
import type { RowValues } from '../postgres/statement.ts';
import type { ContextServices } from './request-context.ts';

/**
 * Makes one change in a tenant's database as `RequestContext.write` does, but without a request: it has no deadline,
 * and is not retried.
 * @param actor the setting `app.actor`: who asked for the work
 * @param resource the resource whose cached responses the change invalidates
 */
export async function changeInBackground(
  { databases, responseCache }: Pick<ContextServices, 'databases' | 'responseCache'>,
  tenant: TenantRecord,
  actor: string,
  prepare: Prepare,
  resource?: string,
): Promise<RowValues[]> {
  return responseCache.changing(tenant, resource, beforeCommit =>
    databases.open(tenant).change({ actor, change: prepare, beforeCommit }),
  );
}

import type pg from 'pg';
import { OperatorError } from '../../log/operator-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import type { LockedTenant, TenantDatabase } from './database-store.ts';

/** SQL for `current_during` of a database that stops being current now. */
export const formerTimes =
  'current_during + tstzmultirange(tstzrange(least(current_since, clock_timestamp()), clock_timestamp()))';

/** Lets the reserved databases of a tenant be dropped; of a tenant that is not provisioned yet, also the current one. */
export async function condemnLeftovers(control: pg.Client, tenantId: number): Promise<void> {
  await control.query(
    `update tenant_databases d set state = 'condemned', current_since = null
       from tenants t where t.id = tenant_id and tenant_id = $1
        and (d.state = 'reserved' or state = 'current' and status = 'provisioning')`,
    [tenantId],
  );
}

/**
 * Lets a database be dropped: nothing leads back. That of the tenant is condemned only when the tenant is purged.
 * @throws {OperatorError} when it is the tenant's
 */
export async function condemnDatabase(
  control: pg.Client,
  { slug }: LockedTenant,
  { id, database }: TenantDatabase,
): Promise<void> {
  const { rowCount } = await control.query(
    `update tenant_databases d set state = 'condemned',
            current_during = case state when 'current' then ${formerTimes} else current_during end,
            current_since = null
      where id = $1 and (state in ('reserved', 'filled', 'kept', 'condemned')
        or state = 'current' and exists (select from tenants t where t.id = tenant_id and purging_at is not null))`,
    [id],
  );
  if (!rowCount) throw new OperatorError(`${database} is the database that ${slug} has: it was not dropped`);
}

/** Forgets a condemned database that is dropped. The name of one that a tenant has had stays. */
export async function forgetDatabase(control: Queryable, id: number): Promise<void> {
  await control.query(
    `delete from tenant_databases where id = $1 and state = 'condemned' and isempty(current_during)`,
    [id],
  );
  await control.query(
    `update tenant_databases set state = 'gone', role_password = null, keep_until = null, kept_by = null, error = null
      where id = $1 and state = 'condemned'`,
    [id],
  );
}

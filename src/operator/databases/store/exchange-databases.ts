import type pg from 'pg';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import { formerTimes, type KeptBy, type LockedTenant } from './database-store.ts';

/** The schema of a complete database. */
export interface CompleteSchema {
  readonly version: string | null;
  readonly compatibleFrom: string | null;
  readonly fingerprint: string;
}

/**
 * Records that a reserved database is complete, or that a filled or kept one has another
 * version.
 * @returns false if another run has condemned it
 */
export async function recordSchema(
  control: pg.Client,
  id: number,
  { version, compatibleFrom, fingerprint }: CompleteSchema,
): Promise<boolean> {
  const { rowCount } = await control.query(
    `update tenant_databases set schema_version = $2, compatible_from = $3, schema_fingerprint = $4,
            state = case state when 'reserved' then 'filled' else state end
      where id = $1 and state in ('reserved', 'filled', 'kept')`,
    [id, version, compatibleFrom, fingerprint],
  );

  return rowCount === 1;
}

/** The database that a tenant had, and the reason why it is kept. */
export interface FormerDatabase {
  readonly id: number;
  /** A `lost` database is condemned instead. */
  readonly keptBy: KeptBy | 'lost';
  readonly keepSeconds: number;
}

/**
 * Makes a complete database that of its tenant, in place of the former one, in one transaction.
 * @param target a filled or kept database, or a reserved one that this run has filled, with its
 *   schema
 * @throws {OperatorError} when the tenant has another database than the former one, or the
 *   target is condemned
 */
export async function exchangeDatabases(
  control: pg.Client,
  { id, slug }: LockedTenant,
  former: FormerDatabase | undefined,
  target: { readonly id: number; readonly schema: CompleteSchema | undefined },
): Promise<void> {
  await inTransaction(control, async () => {
    if (former?.keptBy === 'move') await condemnMoved(control, id);
    const isEnded = !former || (await endCurrent(control, id, former));
    const isComplete = !target.schema || (await recordSchema(control, target.id, target.schema));
    const { rowCount } = await control.query(
      `with d as (
         update tenant_databases set state = 'current', current_since = clock_timestamp(), kept_by = null,
                keep_until = null, error = null
          where id = $2 and tenant_id = $1 and state in ('filled', 'kept') returning *
       )
       update tenants t
          set server_id = d.server_id, database_name = d.database_name,
              role_name = d.role_name, role_password = d.role_password,
              schema_version = d.schema_version, compatible_from = d.compatible_from,
              schema_fingerprint = d.schema_fingerprint, updated_at = now()
         from d
        where t.id = $1`,
      [id, target.id],
    );

    if (!isEnded || !isComplete || !rowCount) {
      throw new OperatorError(
        `another run has changed the databases of ${slug} meanwhile: this one has stopped`,
      );
    }
  });
}

/**
 * Condemns the databases that earlier moves have replaced: their data is older than that of the
 * last one.
 */
async function condemnMoved(control: pg.Client, tenantId: number): Promise<void> {
  await control.query(
    `update tenant_databases set state = 'condemned' where tenant_id = $1 and state = 'kept' and kept_by = 'move'`,
    [tenantId],
  );
}

async function endCurrent(
  control: pg.Client,
  tenantId: number,
  { id, keptBy, keepSeconds }: FormerDatabase,
): Promise<boolean> {
  const { rowCount } = await control.query(
    `update tenant_databases d
        set state = case $3 when 'lost' then 'condemned' else 'kept' end, kept_by = nullif($3, 'lost'),
            keep_until = clock_timestamp() + make_interval(secs => $4), current_since = null,
            current_during = ${formerTimes},
            schema_version = t.schema_version, compatible_from = t.compatible_from,
            schema_fingerprint = t.schema_fingerprint
       from tenants t where t.id = $1 and d.id = $2 and d.tenant_id = $1 and d.state = 'current'`,
    [tenantId, id, keptBy, keepSeconds],
  );

  return rowCount === 1;
}

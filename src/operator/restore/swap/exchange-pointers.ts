import type pg from 'pg';
import { changeChannel, changeTopics } from '../../../control/change-topics.ts';
import type { Tenant } from '../../../control/fleet-entities.ts';
import { owners, type SecretBox } from '../../../control/secret-box.ts';
import { OperatorError } from '../../../operator-error.ts';
import { liftFence } from '../../move/fence.ts';

/**
 * Exchanges the databases of the two in the control database, lifts the fence, and lets every process read them anew.
 */
export async function exchangePointers(
  control: pg.Client,
  secrets: SecretBox,
  tenant: Tenant,
  side: Tenant,
): Promise<void> {
  const point = `
    update tenants set server_id = $2, database_name = $3, role_name = $4, role_password = $5, schema_version = $6,
           compatible_from = $7, schema_fingerprint = $8, updated_at = now()
     where id = $1`;
  const values = (to: Tenant, from: Tenant, name = from.databaseName): unknown[] => {
    const password = secrets.open(from.rolePassword, owners.rolePassword(from.guid));
    const sealed = secrets.seal(password, owners.rolePassword(to.guid));
    const { server, roleName, schemaVersion, compatibleFrom, schemaFingerprint } = from;
    return [to.id, server.id, name, roleName, sealed, schemaVersion, compatibleFrom, schemaFingerprint];
  };
  await control.query('begin');
  try {
    // The name of a database is unique, so one of the two has another name for a moment.
    await control.query(point, values(side, tenant, `${tenant.databaseName}_swapped`));
    await control.query(point, values(tenant, side));
    await control.query('update tenants set database_name = $2 where id = $1', [side.id, tenant.databaseName]);
    // The name in between was never that of a database.
    await control.query(`delete from former_databases where tenant_id = $1 and database_name = $2`, [
      side.id,
      `${tenant.databaseName}_swapped`,
    ]);
    const { rowCount } = await control.query(
      `update restored_tenants set swapped_at = case when swapped_at is null then now() end where tenant_id = $1`,
      [side.id],
    );
    if (!rowCount) throw new OperatorError(`${side.slug} was purged meanwhile`);
    await announceData(control, tenant.guid);
    await control.query(liftFence, [tenant.guid]);
    await control.query('commit');
  } catch (error) {
    await control.query('rollback').catch(() => {});
    throw error;
  }
}

/** Lets every process drop the cached responses of a tenant. */
export async function announceData(control: pg.Client, guid: string): Promise<void> {
  await control.query('select pg_notify($1, $2)', [changeChannel, `${changeTopics.responses}:${guid}`]);
}

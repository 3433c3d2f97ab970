import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { type LockedTenant, readDatabases, type TenantDatabase } from './database-store.ts';
import { physicalName } from './role-owner.ts';

/** What a new database is reserved for. */
export interface Reservation {
  readonly server: Server;
  readonly origin: string;
  /** The digest of the migrations that a warm database must have to be taken; undefined: none is taken. */
  readonly warmDigest?: string | undefined;
  readonly epoch: number;
}

/**
 * Reserves a database for a tenant: a warm one, which it gets in the same transaction, or a new name. A tenant that is
 * being provisioned gets the name at once.
 */
export async function reserveDatabase(
  control: pg.Client,
  secrets: SecretBox,
  { id: tenantId, guid }: LockedTenant,
  { server, origin, warmDigest, epoch }: Reservation,
): Promise<TenantDatabase> {
  const password = secrets.seal(randomBytes(24).toString('base64url'), owners.rolePassword(guid));
  const id = await inTransaction(control, async () => {
    const { rows: warm } = await control.query<{ id: string }>(
      `select id from tenant_databases
        where tenant_id is null and state = 'filled' and server_id = $1 and digest = $2
        order by id limit 1 for update skip locked`,
      [server.id, warmDigest],
    );
    const reserved = Number(warm[0]?.id ?? (await insertDatabase(control, { server, origin })));
    await control.query(
      `update tenant_databases set tenant_id = $2, state = 'reserved', origin = $3, role_password = $4, epoch = $5,
              filled_at = null where id = $1`,
      [reserved, tenantId, origin, password, epoch],
    );
    await control.query(
      `update tenants t set server_id = d.server_id, database_name = d.database_name, role_name = d.role_name,
              role_password = d.role_password, updated_at = now()
         from tenant_databases d where t.id = $1 and d.id = $2 and t.status = 'provisioning'`,
      [tenantId, reserved],
    );
    return reserved;
  });
  const found = (await readDatabases(control, tenantId, ['reserved'])).find(each => each.id === id);
  if (!found) throw new Error(`database ${id} is not reserved`);
  return found;
}

/** Reserves a new name, for no tenant yet. @returns its number, which the name contains */
export async function insertDatabase(
  control: Queryable,
  { server, origin, digest }: Pick<Reservation, 'server' | 'origin'> & { digest?: string },
): Promise<number> {
  const { rows } = await control.query<{ id: string }>(`select nextval(pg_get_serial_sequence('tenants', 'id')) as id`);
  const id = Number(rows[0]?.id);
  await control.query(
    `insert into tenant_databases (id, server_id, database_name, role_name, state, origin, digest)
     values ($1, $2, $3, $3, 'reserved', $4, $5)`,
    [id, server.id, physicalName(server, id), origin, digest],
  );
  return id;
}

import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import type { Server } from '../../control/fleet-entities.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { OperatorError } from '../../operator-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { inTransaction } from './in-transaction.ts';
import { physicalName } from './physical-names.ts';

/**
 * What a tenant database is: `reserved` by the run that makes it; `filled`, complete and used by nobody; `current`, that
 * of its tenant; `kept`, current until a move or a swap; `condemned`, to be dropped; `gone`, a name only.
 */
export type DatabaseState = 'reserved' | 'filled' | 'current' | 'kept' | 'condemned' | 'gone';

/** A database of a tenant, as the control database records it. */
export interface TenantDatabase {
  readonly id: number;
  readonly server: Server;
  readonly database: string;
  readonly role: string;
  /** Sealed; null: the role has none, or an earlier build has not recorded it. */
  readonly password: Buffer | null;
  readonly state: DatabaseState;
  /** What it was filled from, in words. */
  readonly origin: string;
  readonly keptBy: KeptBy | null;
  readonly schemaVersion: string | null;
}

/** What has replaced a kept database: a `move` took its data along; a `swap`, or going `back` after one, did not. */
export type KeptBy = 'move' | 'swap' | 'back';

/** A tenant whose lock the connection to the control database holds. */
export interface LockedTenant {
  readonly id: number;
  readonly guid: string;
  readonly slug: string;
}

/** SQL that returns a tenant database; `$1` is the id of the tenant, and a condition follows. */
const databases = `
  select d.id::float8, database_name as database, role_name as role, role_password as password, d.state, origin,
         kept_by as "keptBy", d.schema_version as "schemaVersion",
         s.id as "serverId", s.name, s.prefix, s.admin_url as "adminUrl"
    from tenant_databases d join servers s on s.id = server_id where tenant_id = $1`;

interface DatabaseRow extends Omit<TenantDatabase, 'server'> {
  serverId: number;
  name: string;
  prefix: string;
  adminUrl: Buffer | null;
}

/**
 * Returns the databases of a tenant that are in one of these states: first those that it has had, the last one first,
 * then the others, the newest first.
 */
export async function readDatabases(
  control: pg.Client,
  tenantId: number,
  states: readonly DatabaseState[],
): Promise<TenantDatabase[]> {
  const { rows } = await control.query<DatabaseRow>(
    `${databases} and d.state = any ($2) order by upper(current_during) desc nulls last, d.id desc`,
    [tenantId, states],
  );
  return rows.map(({ serverId, name, prefix, adminUrl, ...row }) => ({
    ...row,
    server: { id: serverId, name, prefix, adminUrl } as Server,
  }));
}

/** Returns the database that a tenant has; undefined while it is provisioned or purged. */
export async function readCurrent(control: pg.Client, tenantId: number): Promise<TenantDatabase | undefined> {
  return (await readDatabases(control, tenantId, ['current']))[0];
}

/**
 * Returns the epoch of a new run: greater than all earlier ones of the tenant, also when the control database was
 * restored from an archive meanwhile.
 */
export async function beginEpoch(control: pg.Client, tenantId: number): Promise<number> {
  const { rows } = await control.query<{ epoch: string }>(
    `update tenant_databases set epoch = greatest(
       (select max(epoch) from tenant_databases where tenant_id = $1) + 1,
       (extract(epoch from clock_timestamp()) * 1000)::bigint)
      where tenant_id = $1 and state <> 'gone' returning epoch`,
    [tenantId],
  );
  return Number(rows[0]?.epoch ?? Date.now());
}

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

/** Returns whether a database is still reserved by the run that has this epoch. */
export async function isReserved(control: pg.Client, id: number, epoch: number): Promise<boolean> {
  const { rowCount } = await control.query(
    `select from tenant_databases where id = $1 and state = 'reserved' and epoch = $2`,
    [id, epoch],
  );
  return rowCount === 1;
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

/** The schema of a complete database. */
export interface CompleteSchema {
  readonly version: string | null;
  readonly compatibleFrom: string | null;
  readonly fingerprint: string;
}

/** Records that a reserved database is complete, or that a filled or kept one has another version. @returns false if another run has condemned it */
export async function recordSchema(
  control: pg.Client,
  id: number,
  { version, compatibleFrom, fingerprint }: CompleteSchema,
): Promise<boolean> {
  const { rowCount } = await control.query(
    `update tenant_databases set schema_version = $2, compatible_from = $3, schema_fingerprint = $4,
            state = case state when 'reserved' then 'filled' else state end, filled_at = coalesce(filled_at, now())
      where id = $1 and state in ('reserved', 'filled', 'kept')`,
    [id, version, compatibleFrom, fingerprint],
  );
  return rowCount === 1;
}

/** SQL of the times during which a database was current, when it ends to be. */
const formerTimes =
  'current_during + tstzmultirange(tstzrange(least(current_since, clock_timestamp()), clock_timestamp()))';

/** What becomes of the database that a tenant had. */
export interface Former {
  readonly id: number;
  /** A lost one is condemned. */
  readonly keptBy: KeptBy | 'lost';
  readonly keepSeconds: number;
}

/**
 * Makes a complete database that of its tenant, in place of the former one, in one transaction.
 * @param target a filled or kept database, or a reserved one that this run has filled, with its schema
 * @throws {OperatorError} when the tenant has another database than the former one, or the target is condemned
 */
export async function exchangeDatabases(
  control: pg.Client,
  { id, slug }: LockedTenant,
  former: Former | undefined,
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
       ) update tenants t set server_id = d.server_id, database_name = d.database_name, role_name = d.role_name,
                role_password = d.role_password, schema_version = d.schema_version, compatible_from = d.compatible_from,
                schema_fingerprint = d.schema_fingerprint, updated_at = now()
           from d where t.id = $1`,
      [id, target.id],
    );
    if (!isEnded || !isComplete || !rowCount)
      throw new OperatorError(`another run has changed the databases of ${slug} meanwhile: this one has stopped`);
  });
}

/** Lets the databases be dropped that earlier moves have replaced: their data is older than that of the last one. */
async function condemnMoved(control: pg.Client, tenantId: number): Promise<void> {
  await control.query(
    `update tenant_databases set state = 'condemned' where tenant_id = $1 and state = 'kept' and kept_by = 'move'`,
    [tenantId],
  );
}

async function endCurrent(control: pg.Client, tenantId: number, { id, keptBy, keepSeconds }: Former): Promise<boolean> {
  const { rowCount } = await control.query(
    `update tenant_databases d
        set state = case $3 when 'lost' then 'condemned' else 'kept' end, kept_by = nullif($3, 'lost'),
            keep_until = clock_timestamp() + make_interval(secs => $4), current_since = null,
            current_during = ${formerTimes},
            schema_version = t.schema_version, compatible_from = t.compatible_from, schema_fingerprint = t.schema_fingerprint
       from tenants t where t.id = $1 and d.id = $2 and d.tenant_id = $1 and d.state = 'current'`,
    [tenantId, id, keptBy, keepSeconds],
  );
  return rowCount === 1;
}

/** Numbers of a run, or its error, for people. */
export interface RunFacts {
  bytes?: number;
  rows?: number;
  copyMs?: number;
  pauseMs?: number;
  error?: string | null;
}

/** Records what people want to know of a database. */
export async function recordFacts(
  control: pg.Client,
  id: number,
  { bytes, rows, copyMs, pauseMs, error }: RunFacts,
): Promise<void> {
  await control.query(
    `update tenant_databases
        set bytes = coalesce($2, bytes), rows = coalesce($3, rows), copy_ms = coalesce($4, copy_ms),
            pause_ms = coalesce($5, pause_ms), error = case when $7 then $6 else error end where id = $1`,
    [id, bytes, rows, rounded(copyMs), rounded(pauseMs), error, error !== undefined],
  );
}

const rounded = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : Math.round(ms));

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
 * @returns false when it is the tenant's
 */
export async function condemnDatabase(control: pg.Client, id: number): Promise<boolean> {
  const { rowCount } = await control.query(
    `update tenant_databases d set state = 'condemned',
            current_during = case state when 'current' then ${formerTimes} else current_during end,
            current_since = null
      where id = $1 and (state in ('reserved', 'filled', 'kept', 'condemned')
        or state = 'current' and exists (select from tenants t where t.id = tenant_id and purging_at is not null))`,
    [id],
  );
  return rowCount === 1;
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

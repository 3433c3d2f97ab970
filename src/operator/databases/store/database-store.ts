import type pg from 'pg';
import type { Server } from '../../../control/control-entities.ts';

/**
 * The state of a tenant database: `reserved` by the run that makes it; `filled`, complete and
 * used by nobody; `current`, that of its tenant; `kept`, current until a move or a swap;
 * `condemned`, to be dropped; `gone`, a name only.
 */
export type DatabaseState = 'reserved' | 'filled' | 'current' | 'kept' | 'condemned' | 'gone';

/** The address of a database: its server, and its name there. */
export interface DatabaseAddress {
  readonly server: Server;
  readonly database: string;
}

/** A database of a tenant, as the control database records it. */
export interface TenantDatabase extends DatabaseAddress {
  readonly id: number;
  readonly role: string;
  /** Sealed; null: the role has none. */
  readonly password: Buffer | null;
  readonly state: DatabaseState;
  /** The source that the database was filled from, in words. */
  readonly origin: string;
  readonly keptBy: KeptBy | null;
  readonly schemaVersion: string | null;
}

/**
 * The operation that has replaced a kept database: a `move` took its data along; a `swap`, or
 * going `back` after one, did not.
 */
export type KeptBy = 'move' | 'swap' | 'back';

/** A tenant whose lock the connection to the control database holds. */
export interface LockedTenant {
  readonly id: number;
  readonly guid: string;
  readonly slug: string;
}

/**
 * SQL that returns a tenant database; `$1` is the id of the tenant, and a condition follows.
 */
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
 * Returns the databases of a tenant in these states: first the former ones, the last one first,
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
export async function readCurrent(
  control: pg.Client,
  tenantId: number,
): Promise<TenantDatabase | undefined> {
  return (await readDatabases(control, tenantId, ['current']))[0];
}

/**
 * Returns the epoch of a new run: greater than all earlier ones of the tenant, also when the
 * control database was restored from an archive meanwhile. Afterwards all databases of the
 * tenant have this epoch.
 */
export async function beginEpoch(control: pg.Client, tenantId: number): Promise<number> {
  const { rows } = await control.query<{ epoch: string }>(
    `with next as materialized (
       select greatest(max(epoch) + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint) as epoch
         from tenant_databases where tenant_id = $1)
     update tenant_databases d set epoch = next.epoch
       from next
      where tenant_id = $1 and state <> 'gone' returning d.epoch`,
    [tenantId],
  );
  return Number(rows[0]?.epoch ?? Date.now());
}

/** SQL for `current_during` of a database that stops being current now. */
export const formerTimes =
  'current_during + tstzmultirange(tstzrange(least(current_since, clock_timestamp()), clock_timestamp()))';

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

const rounded = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Math.round(ms);

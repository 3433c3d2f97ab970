import type pg from 'pg';
import { Server, type SigningKey, type Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import type { MoveState } from '../move/move-protocol.ts';
import { type ControlRestoreFacts, readControlRestore } from './check-control-restore.ts';
import { readCheckedDatabases } from './checked-databases.ts';

/** What the checks use of a tenant. Plain rows take a fifth of the memory of entities. */
export type CheckedTenant = Pick<
  Tenant,
  'id' | 'guid' | 'slug' | 'status' | 'server' | 'databaseName' | 'roleName' | 'rolePassword' | 'schemaVersion'
> & {
  /** True if a purge has begun. */
  isPurging: boolean;
};

/** A move of a tenant that is unfinished, or whose old database is still there. */
export interface MoveFacts {
  tenantId: number;
  state: MoveState;
  from: string;
  to: string;
  fromDatabase: string;
  fromRole: string;
  toDatabase: string;
  /** True when the time has passed for which the old database is kept. */
  isOverdue: boolean;
}

/** A restore or a swap of a tenant that has begun and has not ended. */
export interface RestoreFacts {
  tenantId: number;
  /**
   * `swap`: a tenant and its restored side are being exchanged; `lost`: a database that was lost is being restored in
   * place.
   */
  kind: 'swap' | 'lost';
  /** True while requests of the tenant wait. */
  isFenced: boolean;
}

/** The contents of the control database at one moment. */
export interface ControlFacts {
  controlRestore: ControlRestoreFacts;
  moves: MoveFacts[];
  restores: RestoreFacts[];
  servers: Server[];
  tenants: CheckedTenant[];
  /** The guids of tenants that were purged. */
  purgedTenants: ReadonlySet<string>;
  /** The signing keys that are not disabled, by the id of the tenant. */
  signingKeys: Map<number, Pick<SigningKey, 'kid' | 'secret' | 'status'>[]>;
  /** Numbers that a warm database may have: those of the pool, and those of tenants that may have claimed one. */
  warmNumbers: Set<number>;
  /** Numbers of the warm databases that are recorded as ready, by the id of the server. */
  readyWarmNumbers: Map<number, number[]>;
  /** Ids of the servers that have unfinished warm databases while no process fills their pool. */
  unfinishedPools: Set<number>;
  /** The evidence of the tenant databases in which nothing was wrong, by the id of the tenant. */
  checkedDatabases: Map<number, string>;
  /** True while a process provisions, migrates or purges the tenant. */
  isBusy(tenant: Pick<Tenant, 'id' | 'slug'>): boolean;
}

/** @param client connected to the control database */
export async function readControlFacts(
  { control, statements }: Installation,
  client: pg.Client,
): Promise<ControlFacts> {
  const em = control.em.fork();
  const { rows } = await client.query<{ space: number; key: number }>(
    `select classid::int as space, objid::int as key from pg_locks
      where locktype = 'advisory' and granted
        and database = (select oid from pg_database where datname = current_database())`,
  );
  const locks = new Set(rows.map(({ space, key }) => `${space}:${key}`));
  // A tenant claims a warm database in one transaction. So one statement sees either the unclaimed database or the
  // tenant.
  const { rows: warm } = await client.query<{ id: string; server: number; ready: boolean | null }>(
    `select id, server_id as server, ready_at is not null as ready from warm_databases
      union all select id, server_id, null from tenants where status = 'provisioning'`,
  );
  const ready = Map.groupBy(
    warm.filter(each => each.ready),
    ({ server }) => server,
  );
  const { rows: moves } = await client.query<MoveFacts>(
    `select tenant_id::float8 as "tenantId", state, f.name as from, s.name as to,
            from_database as "fromDatabase", from_role as "fromRole", to_database as "toDatabase",
            coalesce(reversible_until < now(), false) as "isOverdue"
       from tenant_moves m join servers f on f.id = from_server_id join servers s on s.id = to_server_id
      where state not in ('settled', 'aborted') order by m.id`,
  );
  // A move has a row of its own beside its fence.
  const { rows: restores } = await client.query<RestoreFacts>(
    `select t.id::float8 as "tenantId", 'swap' as kind, closed as "isFenced"
       from tenant_fences join tenants t on t.guid = tenant_guid
      where not exists (select from tenant_moves m where m.tenant_id = t.id and ended_at is null)
      union all select id::float8, 'lost', false from tenants where restoring is not null`,
  );
  const servers = await em.findAll(Server, { orderBy: { id: 'asc' } });
  return {
    controlRestore: await readControlRestore(client),
    moves,
    restores,
    servers,
    tenants: await readTenants(client, servers),
    purgedTenants: await readPurgedTenants(client),
    signingKeys: await readSigningKeys(client),
    warmNumbers: new Set(warm.map(({ id }) => Number(id))),
    readyWarmNumbers: new Map([...ready].map(([server, databases]) => [server, databases.map(({ id }) => Number(id))])),
    unfinishedPools: new Set(
      warm
        .filter(({ ready, server }) => ready === false && !locks.has(`${lockSpaces.warm}:${server}`))
        .map(({ server }) => server),
    ),
    checkedDatabases: await readCheckedDatabases(statements),
    isBusy: ({ id, slug }) =>
      locks.has(`${lockSpaces.tenant}:${id}`) || locks.has(`${lockSpaces.slug}:${lockKey(slug)}`),
  };
}

async function readTenants(client: pg.Client, servers: Server[]): Promise<CheckedTenant[]> {
  const serverOf = new Map(servers.map(server => [server.id, server]));
  const { rows } = await client.query<Omit<CheckedTenant, 'id' | 'server'> & { id: string; server: number }>(
    `select id, guid, slug, status, server_id::int as server, database_name as "databaseName", role_name as "roleName",
            role_password as "rolePassword", schema_version as "schemaVersion", purging_at is not null as "isPurging"
       from tenants order by slug`,
  );
  return rows.flatMap(({ id, server, ...row }) => {
    const found = serverOf.get(server);
    return found ? [{ ...row, id: Number(id), server: found }] : [];
  });
}

async function readPurgedTenants(client: pg.Client): Promise<Set<string>> {
  const { rows } = await client.query<{ guid: string }>('select guid from purged_tenants');
  return new Set(rows.map(({ guid }) => guid));
}

async function readSigningKeys(client: pg.Client): Promise<ControlFacts['signingKeys']> {
  const { rows } = await client.query<{ tenant: string } & Pick<SigningKey, 'kid' | 'secret' | 'status'>>(
    `select tenant_id as tenant, kid, secret, status from signing_keys where status <> 'disabled' order by kid`,
  );
  return Map.groupBy(rows, ({ tenant }) => Number(tenant));
}

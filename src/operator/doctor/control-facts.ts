import type pg from 'pg';
import { Server, type SigningKey, type Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { lockKey, lockSpaces } from '../../lib/postgres/advisory-locks.ts';
import { readServerIdentity } from '../../lib/postgres/server-address.ts';
import { backupLocks } from '../backup/backup-lock.ts';
import { type LimitedUser, readLimitedUsers } from '../databases/copy/users-without-entity.ts';
import type { DatabaseState } from '../databases/store/database-store.ts';
import { readStored, type StoredDatabase } from '../databases/verbs/list-databases.ts';
import { type RegisteredProcess, registeredProcesses } from '../schema/running-services.ts';
import { readTextOrder, type TextOrder } from '../schema/text-order.ts';
import {
  type ArchiveFacts,
  type OverdueRetention,
  readArchiveFacts,
  readOverdueRetention,
} from './check-archives.ts';
import { type ControlRestoreFacts, readControlRestore } from './check-control-restore.ts';
import { type ClosedFactor, readClosedFactors } from './check-factors.ts';
import { type MailFacts, readMailFacts } from './check-mails.ts';
import { type LostProvider, readLostProviders } from './check-providers.ts';
import { type LateWebhooks, readLateWebhooks } from './check-webhooks.ts';

/**
 * The fields of a tenant that checks use. Plain rows take a fifth of the memory of entities.
 */
export type CheckedTenant = Pick<
  Tenant,
  | 'id'
  | 'guid'
  | 'slug'
  | 'status'
  | 'server'
  | 'databaseName'
  | 'roleName'
  | 'rolePassword'
  | 'schemaVersion'
> & {
  /** True if a purge has begun. */
  isPurging: boolean;
};

/** A database of a tenant that the control database records. */
interface RecordedDatabase {
  tenantId: number;
  serverId: number;
  server: string;
  database: string;
  role: string;
  state: DatabaseState;
}

/** The contents of the control database at one moment. */
export interface ControlFacts {
  archives: ArchiveFacts;
  overdueRetention: OverdueRetention[];
  controlRestore: ControlRestoreFacts;
  /** All databases that exist, or are being made or dropped. */
  databases: RecordedDatabase[];
  /** The databases of tenants that are not simply current. */
  stored: StoredDatabase[];
  /** The guids of the tenants with a fence. */
  fences: ReadonlySet<string>;
  /** The servers, that of the control database with its identity, too. */
  servers: Server[];
  tenants: CheckedTenant[];
  /** The active users of scope `Self` that belong to an entity, by the id of the tenant. */
  limitedUsers: ReadonlyMap<number, readonly LimitedUser[]>;
  /** The guids of tenants that were purged. */
  purgedTenants: ReadonlySet<string>;
  /** The signing keys that are not disabled, by the id of the tenant. */
  signingKeys: Map<number, Pick<SigningKey, 'kid' | 'secret' | 'status'>[]>;
  closedFactors: ClosedFactor[];
  lostProviders: LostProvider[];
  lateWebhooks: LateWebhooks[];
  mails: MailFacts;
  /** True while a drill restores archives into databases of its own. */
  isDrilling: boolean;
  /** The order of the texts of the control database. */
  textOrder: TextOrder;
  /** The running processes of the service and the commands. */
  processes: RegisteredProcess[];
  /** True while a process provisions, migrates or purges the tenant. */
  isBusy(tenant: Pick<Tenant, 'id' | 'slug'>): boolean;
}

/** @param client connected to the control database */
export async function readControlFacts(
  { control, statements, secrets }: Installation,
  client: pg.Client,
): Promise<ControlFacts> {
  const em = (await control()).em.fork();

  const { rows } = await client.query<{ space: number; key: number }>(
    `select classid::int as space, objid::int as key from pg_locks
      where locktype = 'advisory' and granted
        and database = (select oid from pg_database where datname = current_database())`,
  );
  const locks = new Set(rows.map(({ space, key }) => `${space}:${key}`));

  const { rows: databases } = await client.query<RecordedDatabase>(
    `select tenant_id::float8 as "tenantId", server_id::int as "serverId", s.name as server, database_name as database,
            role_name as role, d.state
       from tenant_databases d join servers s on s.id = server_id where d.state <> 'gone' order by d.id`,
  );

  const { rows: fences } = await client.query<{ guid: string }>(
    'select tenant_guid as guid from tenant_fences',
  );
  const { rows: purged } = await client.query<{ guid: string }>('select guid from purged_tenants');

  const servers = await em.findAll(Server, { orderBy: { id: 'asc' } });
  for (const server of servers.filter(({ adminUrl }) => !adminUrl)) {
    server.identity = await readServerIdentity(client);
  }

  return {
    archives: await readArchiveFacts(client),
    overdueRetention: await readOverdueRetention(client),
    controlRestore: await readControlRestore(client),
    databases,
    stored: await readStored({ statements }, undefined),
    fences: new Set(fences.map(({ guid }) => guid)),
    servers,
    tenants: await readTenants(client, servers),
    limitedUsers: await readLimitedUsers(client),
    purgedTenants: new Set(purged.map(({ guid }) => guid)),
    isDrilling: locks.has(`${lockSpaces.backup}:${backupLocks.drill.key}`),
    signingKeys: await readSigningKeys(client),
    closedFactors: await readClosedFactors(client, secrets),
    lostProviders: await readLostProviders(client),
    lateWebhooks: await readLateWebhooks(client),
    mails: await readMailFacts(client),
    textOrder: await readTextOrder(statements),
    processes: await registeredProcesses(statements),
    isBusy: ({ id, slug }) =>
      locks.has(`${lockSpaces.tenant}:${id}`) || locks.has(`${lockSpaces.slug}:${lockKey(slug)}`),
  };
}

async function readTenants(client: pg.Client, servers: Server[]): Promise<CheckedTenant[]> {
  const serverOf = new Map(servers.map(server => [server.id, server]));
  const { rows } = await client.query<
    Omit<CheckedTenant, 'id' | 'server'> & { id: string; server: number }
  >(
    `select id, guid, slug, status, server_id::int as server, database_name as "databaseName", role_name as "roleName",
            role_password as "rolePassword", schema_version as "schemaVersion", purging_at is not null as "isPurging"
       from tenants order by slug`,
  );

  return rows.flatMap(({ id, server, ...row }) => {
    const found = serverOf.get(server);
    return found ? [{ ...row, id: Number(id), server: found }] : [];
  });
}

async function readSigningKeys(client: pg.Client): Promise<ControlFacts['signingKeys']> {
  const { rows } = await client.query<
    { tenant: string } & Pick<SigningKey, 'kid' | 'secret' | 'status'>
  >(
    `select tenant_id as tenant, kid, secret, status from signing_keys where status <> 'disabled' order by kid`,
  );
  return Map.groupBy(rows, ({ tenant }) => Number(tenant));
}

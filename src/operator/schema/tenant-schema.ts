import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { catalogQuerySettings, withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { migrationSettings } from './template.ts';

/**
 * Within this time every process has received a change of the control database, or else has noticed that its change feed
 * is down and serves nothing from memory.
 */
const changeReceivedMs = 1_000;
/** Longer than any request may take. */
const quietDeadlineMs = 12_000;
const pollMs = 50;

/**
 * Takes a tenant out of service: its requests get 503 from now on. Resolves when no earlier request runs in its database,
 * or after 13 s. Any number of server processes may have connections to it; the wait lets them receive the change.
 * @param run the migration run in which the tenant is marked as running
 */
export async function takeOutOfService(
  control: Queryable,
  database: pg.Client,
  tenant: Tenant,
  run?: number,
): Promise<void> {
  await control.query(
    `with tenant as (
       update tenants set schema_version = null, schema_fingerprint = null, updated_at = now() where id = $1
     )
     update migration_outcomes set state = 'running', started_at = now() where tenant_id = $1 and run_id = $2`,
    [tenant.id, run],
  );
  const hasSessions = async (condition: string): Promise<boolean> => {
    const text = `select from pg_stat_activity where datname = current_database() and usename = $1 and ${condition}`;
    return ((await database.query(text, [tenant.roleName])).rowCount ?? 0) > 0;
  };
  // Without a session of the tenant there is no wait: a new connection reads the schema version in the database first.
  if ((await isOnlyConnection(database)) || !(await hasSessions('true'))) return;
  await sleep(changeReceivedMs);
  const deadline = performance.now() + quietDeadlineMs;
  while (performance.now() < deadline && (await hasSessions(`state <> 'idle'`))) await sleep(pollMs);
}

/** Answers most cases cheaply: reading pg_stat_activity is expensive. */
async function isOnlyConnection(database: pg.Client): Promise<boolean> {
  const { rows } = await database.query<{ only: boolean }>(
    `select pg_stat_get_db_numbackends(oid) = 1 as only from pg_database where datname = current_database()`,
  );
  return rows[0]?.only ?? false;
}

/** Records a tenant's version without a fingerprint: its schema has not been compared with the template. */
export async function setSchemaVersion(control: Queryable, tenant: number, version: string | null): Promise<void> {
  await control.query(
    'update tenants set schema_version = $2, schema_fingerprint = null, updated_at = now() where id = $1',
    [tenant, version],
  );
}

/** Runs `work` on a connection to a tenant's database with the rights of the operator and the time limits of migrations. */
export function withTenantConnection<T>(
  { servers }: Installation,
  tenant: Tenant,
  work: (database: pg.Client) => Promise<T>,
): Promise<T> {
  const url = databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName);
  const settings = { ...migrationSettings(tenant.server), ...catalogQuerySettings };
  return withConnection(url, work, { kind: 'migrations', settings });
}

const lockAttempts = 3;

/**
 * Retries a schema change that could not lock a table in time, because a long query uses it. A longer wait in PostgreSQL's
 * lock queue instead would block every later query of the table.
 */
export async function retryOnLockTimeout<T>(run: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run();
    } catch (error) {
      if (attempt === lockAttempts || sqlState(error) !== '55P03') throw error;
      await sleep(200 * attempt);
    }
  }
}

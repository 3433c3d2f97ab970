import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { catalogQuerySettings, withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { migrationSettings } from './template.ts';

/** In this time every process has heard of a change in the control database, or serves nothing from memory. */
const heardOfMs = 1_000;
/** Longer than any request may take. */
const quietDeadlineMs = 12_000;

/** From now on the tenant is answered with 503; resolves when nothing of before is under way in its database. */
export async function takeOutOfService(
  books: Queryable,
  database: pg.Client,
  tenant: Tenant,
  run?: number,
): Promise<void> {
  await books.query(
    `with tenant as (
       update tenants set schema_version = null, schema_fingerprint = null, updated_at = now() where id = $1
     )
     update migration_outcomes set state = 'running', started_at = now() where tenant_id = $1 and run_id = $2`,
    [tenant.id, run],
  );
  const others = async (condition: string): Promise<boolean> => {
    const text = `select from pg_stat_activity where datname = current_database() and usename = $1 and ${condition}`;
    return ((await database.query(text, [tenant.roleName])).rowCount ?? 0) > 0;
  };
  // Nobody has a connection, and who opens one looks for the version in the database.
  if ((await onlyConnection(database)) || !(await others('true'))) return;
  await sleep(heardOfMs);
  const deadline = performance.now() + quietDeadlineMs;
  while (performance.now() < deadline && (await others(`state <> 'idle'`))) await sleep(50);
}

/** A cheap question, and mostly the only one that is needed: who is connected there is a dear one. */
async function onlyConnection(database: pg.Client): Promise<boolean> {
  const { rows } = await database.query<{ only: boolean }>(
    `select pg_stat_get_db_numbackends(oid) = 1 as only from pg_database where datname = current_database()`,
  );
  return rows[0]?.only ?? false;
}

/** A version that is not known to have the schema of the template. */
export async function setSchemaVersion(books: Queryable, tenant: number, version: string | null): Promise<void> {
  await books.query(
    'update tenants set schema_version = $2, schema_fingerprint = null, updated_at = now() where id = $1',
    [tenant, version],
  );
}

/** Runs `work` on a connection to a tenant's database with the rights of the operator. */
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

/** A table that a long request holds is tried again; queueing for it would hold up everybody behind. */
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

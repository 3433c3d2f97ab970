import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { controlVersion } from '../../control/control-version.ts';
import { requireOwnControlSchema } from '../../control/foreign-schema.ts';
import { databaseNameOf, databaseUrl } from '../../control/server-urls.ts';
import { lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { migrationNames } from '../../lib/postgres/migration-names.ts';
import { loadMigrations, runMigrations } from '../../lib/postgres/migration-steps.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';
import { statementsOf } from '../../lib/postgres/statements.ts';
import { grantServicePrivileges } from './service-login.ts';

/**
 * Brings the control database to head. One process does so at a time.
 * @returns the names of the migrations that ran
 * @param dataFolder of the embedded PostgreSQL; undefined if the database is configured
 * @throws {OperatorError} when its first schema is not that of this build
 */
export async function migrateControl(controlUrl: string, dataFolder?: string): Promise<string[]> {
  return withLock(controlUrl, lockSpaces.control, 0, async client => {
    await requireOwnControlSchema(statementsOf(client), dataFolder);
    const applied = await runMigrations(controlUrl, await loadMigrations('control'));
    await revokePublicRights(client);
    await grantServicePrivileges(client);
    return applied;
  });
}

/**
 * @returns whether the control database exists, and the names of the migrations that
 *   `migrateControl` would run
 */
export async function pendingControl(
  controlUrl: string,
  dataFolder?: string,
): Promise<{ exists: boolean; pending: string[] }> {
  const names = await migrationNames('control');
  const version = await withConnection(controlUrl, async client => {
    const control = statementsOf(client);
    await requireOwnControlSchema(control, dataFolder);
    return { name: (await controlVersion(control)) ?? '' };
  }).catch(error => {
    if (sqlState(error) !== '3D000') throw error;
    return undefined;
  });

  return {
    exists: version !== undefined,
    pending: names.filter(name => name > (version?.name ?? '')),
  };
}

/** The names of the functions that create or write a large object. */
const largeObjectWriters = [
  'lo_creat',
  'lo_create',
  'lo_from_bytea',
  'lo_import',
  'lo_put',
  'lo_truncate',
  'lo_truncate64',
  'lowrite',
];

/**
 * Revokes the rights of PUBLIC. By default every login of the server, also that of a tenant,
 * may connect, and could listen to the change feed. And every login that may connect can fill
 * the disk with large objects. Only a superuser can revoke that: other logins skip it.
 */
async function revokePublicRights(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ name: string; superuser: boolean }>(
    'select current_database() as name, rolsuper as superuser from pg_roles where rolname = current_user',
  );
  const [{ name, superuser } = { name: '', superuser: false }] = rows;
  await client.query(`revoke all on database ${quoteIdentifier(name)} from public`);
  if (!superuser) return;

  const { rows: writers } = await client.query<{ name: string }>(
    `select oid::regprocedure::text as name from pg_proc
      where pronamespace = 'pg_catalog'::regnamespace and proname = any ($1)`,
    [largeObjectWriters],
  );

  await client.query(
    `revoke execute on function ${writers.map(writer => writer.name).join(', ')} from public`,
  );
}

/**
 * Creates the control database, unless it exists. An existing one is found without a right on
 * any other database.
 */
export async function createControlDatabase(controlUrl: string): Promise<void> {
  const isMissing = await withConnection(controlUrl, async () => false).catch(error => {
    if (sqlState(error) !== '3D000') throw error;
    return true;
  });
  if (!isMissing) return;

  const name = databaseNameOf(controlUrl);
  await withConnection(databaseUrl(controlUrl, 'postgres'), async client => {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount) return;
    await client
      .query(`create database ${quoteIdentifier(name)} template template0 encoding 'UTF8'`)
      .catch(async error => {
        // Another process has created the database.
        if (!['42P04', '23505'].includes(sqlState(error) ?? '')) throw error;
        await sleep(50);
      });
  });
}

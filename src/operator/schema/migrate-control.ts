import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { controlHead, controlVersion } from '../../control/control-version.ts';
import { requireOwnControlSchema } from '../../control/foreign-schema.ts';
import { databaseNameOf, databaseUrl } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { migrationNames } from '../../lib/postgres/migration-names.ts';
import { loadMigrations, runMigrations } from '../../lib/postgres/migration-steps.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { grantServicePrivileges } from './service-login.ts';
import { newDatabaseOptions, readTextOrder, textOrderFault } from './text-order.ts';

/**
 * Brings the control database to head. One process does so at a time. One that a later build has
 * migrated stays as it is.
 * @returns the names of the migrations that ran
 * @param dataFolder of the embedded PostgreSQL; undefined if the database is configured
 * @throws {OperatorError} when its first schema is not that of this build, or when it is empty
 *   and orders texts in another way than by code point
 */
export async function migrateControl(controlUrl: string, dataFolder?: string): Promise<string[]> {
  return withLock(controlUrl, lockSpaces.control, 0, async client => {
    const control = client;
    await requireOwnControlSchema(control, dataFolder);
    const version = await controlVersion(control);
    if (version === undefined) await requireTextOrder(client, control);
    // The login of the service needs the privileges that a later build has given it.
    if (version !== undefined && version > (await controlHead())) return [];

    const applied = await runMigrations(controlUrl, await loadMigrations('control'));
    await revokePublicRights(client);
    await grantServicePrivileges(client);
    return applied;
  });
}

/**
 * @returns whether the control database exists, and the names of the migrations that
 *   `migrateControl` would run
 * @throws {OperatorError} when `migrateControl` would
 */
export async function pendingControl(
  controlUrl: string,
  dataFolder?: string,
): Promise<{ exists: boolean; pending: string[] }> {
  const names = await migrationNames('control');
  const version = await withConnection(controlUrl, async client => {
    const control = client;
    await requireOwnControlSchema(control, dataFolder);
    const name = await controlVersion(control);
    if (name === undefined) await requireTextOrder(client, control);

    return { name: name ?? '' };
  }).catch(error => {
    if (sqlState(error) !== '3D000') throw error;
    return undefined;
  });

  return {
    exists: version !== undefined,
    pending: names.filter(name => name > (version?.name ?? '')),
  };
}

/**
 * Requires that an empty control database, which somebody else has made, orders its texts as
 * one that `createControlDatabase` makes. The order of a database cannot be changed.
 * @throws {OperatorError} with the statements that make such a database
 */
async function requireTextOrder(client: pg.Client, control: Queryable): Promise<void> {
  const fault = textOrderFault(await readTextOrder(control), { takesAscii: true });
  if (fault === undefined) return;

  const { rows } = await client.query<{ name: string; owner: string; isEmpty: boolean }>(
    `select current_database() as name, current_user as owner,
            not exists (select from pg_class c join pg_namespace n on n.oid = relnamespace
                         where relkind in ('r', 'p', 'm', 'f') and nspname !~ '^pg_' and nspname <> 'information_schema') as "isEmpty"`,
  );
  const { name, owner, isEmpty } = rows[0] ?? { name: '', owner: '', isEmpty: false };
  const reason = `The control database cannot be used: database ${name} ${fault}`;
  const migrate = 'bin/backoffice control migrate';
  if (!isEmpty) {
    throw new OperatorError(
      `${reason}. It has tables of somebody else: name a database in DATABASE_URL that does not exist, and create it: ${migrate}`,
    );
  }

  const [database, login] = [name, owner].map(quoteIdentifier);
  throw new OperatorError(
    `${reason}. It is empty. Run in another database, such as postgres: drop database ${database}; ` +
      `create database ${database} owner ${login} ${await newDatabaseOptions(client)}; Then run again: ${migrate}`,
  );
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
      .query(`create database ${quoteIdentifier(name)} ${await newDatabaseOptions(client)}`)
      .catch(async error => {
        // Another process has created the database.
        if (!['42P04', '23505'].includes(sqlState(error) ?? '')) throw error;
        await sleep(50);
      });
  });
}

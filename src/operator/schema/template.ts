import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type pg from 'pg';
import type { Prefixed, Server } from '../../control/control-entities.ts';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import { SchemaFingerprint } from '../../control/migration-run.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { tenantHead } from '../../control/tenant-head.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockKey, lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { folderUrl, migrationNames, pageDigests } from '../../lib/postgres/migration-names.ts';
import { loadMigrations, runMigrations } from '../../lib/postgres/migration-steps.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';
import { detailsMethod, schemaDetails } from '../../lib/postgres/schema-details.ts';
import {
  fingerprint,
  fingerprintMethod,
  schemaObjects,
} from '../../lib/postgres/schema-fingerprint.ts';
import { createPrivate, dropOwned, renameOwned } from './owned-databases.ts';
import { readSchemaSteps } from './schema-steps.ts';
import { isInCodePointOrder, newDatabaseOptions } from './text-order.ts';

/**
 * Returns the group role of a server, whose members are the login roles of its tenants. Tables
 * grant their rights to it.
 */
export function tenantGroup(server: Prefixed): string {
  return `${server.prefix}_tenant`;
}

/**
 * Creates the template of a server, unless it exists: the database that new tenants are copied
 * from, with every migration and its seed rows, closed to connections. Its name contains a
 * digest of the migrations, so an existing one is at head, and a build with other migrations
 * creates its own. One with another order of texts, which its copies would have, is made anew.
 * @param admin connected to the server
 * @returns the name of the template
 * @throws {OperatorError} when a database with that name accepts connections: it may be
 *   anybody's
 */
export async function ensureTemplate(
  admin: pg.Client,
  server: Pick<Server, 'name' | 'prefix'>,
  adminUrl: string,
): Promise<string> {
  const name = `${server.prefix}_template_${await migrationsDigest()}`;
  if ((await findTemplate(admin, name)) === 'complete') return name;

  await withLock(adminUrl, lockSpaces.template, lockKey(name), async client => {
    const found = await findTemplate(client, name);
    if (found === 'complete') return;
    if (found === 'open') throw openTemplate(server, name);

    await makeTemplate(client, server, { name, adminUrl });
  });

  return name;
}

/**
 * The state of a database with the name of a template. `complete`: it can be copied.
 * `disordered`: its texts are not ordered by code point. `open`: it accepts connections, so it
 * is not ours.
 */
type FoundTemplate = 'complete' | 'disordered' | 'open' | undefined;

async function findTemplate(client: pg.Client, name: string): Promise<FoundTemplate> {
  const { rows } = await client.query<{ found: FoundTemplate }>(
    `select case when datallowconn then 'open'
                 when ${isInCodePointOrder} then 'complete'
                 else 'disordered' end as found
       from pg_database
      where datname = $1`,
    [name],
  );

  return rows[0]?.found;
}

/**
 * Makes a template under a temporary name, and renames it when it is complete. Drops what a
 * killed process has left under the temporary name, and a template with another order.
 */
async function makeTemplate(
  client: pg.Client,
  server: Pick<Server, 'name' | 'prefix'>,
  { name, adminUrl }: { name: string; adminUrl: string },
): Promise<void> {
  await readSchemaSteps(); // throws if a migration cannot run over a fleet

  const temporary = `${name}_new`;
  await dropOwned(client, temporary);
  await ensureGroup(client, tenantGroup(server));
  await createPrivate(client, temporary, await newDatabaseOptions(client));
  await runMigrations(
    databaseUrl(adminUrl, temporary),
    await loadMigrations('tenant'),
    migrationSettings(server),
  );
  await client.query(`alter database ${quoteIdentifier(temporary)} allow_connections false`);

  await dropOwned(client, name);
  await renameOwned(client, temporary, name);
}

function openTemplate(server: Pick<Server, 'name'>, name: string): OperatorError {
  return new OperatorError(
    `Database ${name} on server ${server.name} has the name of the template, and accepts ` +
      'connections, which no template does: it was not used. If somebody has opened the ' +
      `template, close it: alter database ${quoteIdentifier(name)} allow_connections false; if ` +
      'not, rename it',
  );
}

/** The settings that a tenant migration can read with `current_setting`. */
export function migrationSettings(server: Prefixed): Record<string, string> {
  return { 'app.tenant_group': tenantGroup(server) };
}

async function ensureGroup(client: pg.Client, group: string): Promise<void> {
  // A server logs each `create role` that it refuses.
  const { rowCount } = await client.query('select from pg_roles where rolname = $1', [group]);
  if (rowCount) return;

  await client.query(`create role ${quoteIdentifier(group)} nologin`).catch(error => {
    // Another process has made it meanwhile.
    if (!['42710', '23505'].includes(sqlState(error) ?? '')) throw error;
  });
}

/**
 * Returns the name of the template that a database belongs to: as the template itself, as its
 * unfinished copy, or as a copy to read. Returns undefined for the template of this build,
 * whose digest of the migrations is `digest`.
 */
export function templateOfOtherBuild(
  { prefix }: Prefixed,
  name: string,
  digest: string,
): string | undefined {
  const match = new RegExp(`^(${prefix}_template_([0-9a-f]{12}))(_new|_read)?$`).exec(name);
  return match && match[2] !== digest ? match[1] : undefined;
}

/** Returns 12 hexadecimal digits that change when a tenant migration is added or edited. */
export async function migrationsDigest(): Promise<string> {
  const hash = createHash('sha256');
  for (const name of [...(await migrationNames('tenant')), 'sql']) {
    hash.update(await readFile(new URL(`${name}.ts`, folderUrl('tenant'))));
  }
  for (const digest of (await pageDigests('tenant')).values()) {
    hash.update(digest);
  }
  return hash.digest('hex').slice(0, 12);
}

/**
 * Returns the fingerprint of a tenant database at head on this server, which is the fingerprint
 * of the template. It is read once for each set of migrations and stored in the control
 * database. Each server has its own, because PostgreSQL versions may print the definition of an
 * object differently.
 */
export async function headFingerprint(
  control: Installation['control'],
  server: Server,
  adminUrl: string,
): Promise<string> {
  const { em } = await control();
  const key = { serverId: server.id, digest: await fingerprintKey() };
  const fields = ['fingerprint'] as const;
  const stored = await em.fork().findOne(SchemaFingerprint, key, { fields });
  if (stored) return stored.fingerprint;

  const ensure = (): Promise<string> =>
    withConnection(adminUrl, admin => ensureTemplate(admin, server, adminUrl));
  const read = await readTemplate(await ensure(), adminUrl).catch(async error => {
    if (sqlState(error) !== '3D000') throw error; // 3D000: somebody has just dropped the template
    return readTemplate(await ensure(), adminUrl);
  });
  const head = await tenantHead();
  await em
    .fork()
    .upsert(SchemaFingerprint, { ...key, ...read, head }, { onConflictAction: 'ignore' });

  return read.fingerprint;
}

/**
 * The key of a stored fingerprint: the digest of the migrations, and a digest of the methods
 * that compute the fingerprint and the details.
 */
export async function fingerprintKey(): Promise<string> {
  const hash = createHash('sha256').update(fingerprintMethod).update(detailsMethod);
  const method = hash.digest('hex').slice(0, 8);
  return `${await migrationsDigest()}-${method}`;
}

/**
 * Returns every object of a tenant database at head on this server, with its definition.
 * @throws unless `headFingerprint` has stored them before
 */
export async function headObjects(
  control: Installation['control'],
  server: Server,
): Promise<Map<string, string>> {
  const { em } = await control();
  const key = { serverId: server.id, digest: await fingerprintKey() };
  const { objects } = await em.fork().findOneOrFail(SchemaFingerprint, key);
  return new Map(Object.entries(objects));
}

/**
 * Returns every object of a tenant database at an earlier version, with its definition, as the
 * last build at that version has stored it; undefined: none has worked here, or computed
 * fingerprints in another way.
 */
export async function objectsAt(
  control: Installation['control'],
  server: Server,
  version: string,
): Promise<Map<string, string> | undefined> {
  const { em } = await control();
  const [, method = ''] = (await fingerprintKey()).split('-');
  const where = { serverId: server.id, head: version, digest: { $like: `%-${method}` } };
  const [found] = await em
    .fork()
    .find(SchemaFingerprint, where, { orderBy: { createdAt: 'desc' }, limit: 1 });

  return found && new Map(Object.entries(found.objects));
}

/**
 * Returns the digests of migrations of builds whose head this one does not know: it cannot
 * judge their templates.
 */
export async function newerDigests({ statements }: ControlStatements): Promise<Set<string>> {
  const { rows } = await statements.query<{ digest: string; head: string }>(
    `select distinct split_part(digest, '-', 1) as digest, head from schema_fingerprints`,
  );
  const known = await migrationNames('tenant');

  return new Set(rows.filter(({ head }) => !known.includes(head)).map(({ digest }) => digest));
}

/** The objects and details that tenant databases have on a server by their schema. */
export interface KnownObjects {
  /**
   * The definitions of each object or detail, by its name, at head and in any earlier build that
   * has worked here: a database that is kept stays as its build has left it.
   */
  readonly definitions: ReadonlyMap<string, ReadonlySet<string>>;
  /**
   * The names of the objects and details that every build at a version has, by its last
   * migration.
   */
  readonly versions: ReadonlyMap<string, ReadonlySet<string>>;
  /**
   * The differences from these objects that `listForeignObjects` has found, by the digest of a
   * schema and the last migration of its database: those of most databases are the same.
   */
  readonly differences: Map<string, readonly string[]>;
}

/** Reads the objects that builds have stored for the tenant databases of a server. */
export async function knownObjects(
  { statements }: ControlStatements,
  server: Server,
): Promise<KnownObjects> {
  const { rows } = await statements.query<{ head: string; objects: Record<string, string> }>(
    'select head, objects || details as objects from schema_fingerprints where server_id = $1',
    [server.id],
  );
  const definitions = new Map<string, Set<string>>();
  const versions = new Map<string, Set<string>>();

  for (const { head, objects } of rows) {
    for (const [name, definition] of Object.entries(objects)) {
      definitions.set(name, (definitions.get(name) ?? new Set()).add(definition));
    }
    const others = versions.get(head);
    const names = Object.keys(objects).filter(name => others?.has(name) ?? true);
    versions.set(head, new Set(names));
  }

  return { definitions, versions, differences: new Map() };
}

/**
 * Reads a copy of the template: the template itself is closed to connections, so that it can be
 * copied at any time.
 */
async function readTemplate(template: string, adminUrl: string) {
  const copy = `${template}_read`;
  return withLock(adminUrl, lockSpaces.template, lockKey(template), async client => {
    await dropOwned(client, copy);
    await createPrivate(client, copy, `template ${quoteIdentifier(template)} strategy wal_log`);
    try {
      return await withConnection(databaseUrl(adminUrl, copy), async inside => ({
        fingerprint: await fingerprint(inside),
        objects: Object.fromEntries(await schemaObjects(inside)),
        details: Object.fromEntries(await schemaDetails(inside)),
      }));
    } finally {
      await dropOwned(client, copy);
    }
  });
}

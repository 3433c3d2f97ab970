import type pg from 'pg';
import type { Passwords } from '../../auth/passwords.ts';
import type { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../postgres/migration-steps.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { checkManifest } from '../provisioning/manifest.ts';
import { provision } from '../provisioning/provision.ts';
import { limitConnect } from '../provisioning/tenant-database.ts';
import { applyStep, readSchemaSteps } from '../schema/schema-steps.ts';
import { migrationSettings } from '../schema/template.ts';
import { headFingerprint, headObjects } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { canonicalTextSettings } from '../table-checksums.ts';

/** The data of a tenant at an earlier moment, and how to write it into a database. */
export interface RestorableData {
  /** For people: `archive <id> of <time>`, or `<time>`. */
  readonly description: string;
  /** The last migration that the data has. */
  readonly schemaVersion: string;
  /** Writes all rows into a database of that version in one transaction, and compares what it has written. */
  readonly fill: (target: pg.Client) => Promise<void>;
}

/**
 * Creates a tenant beside another one, with earlier data of that one: suspended and isolated, without users and legacy
 * clients, and with its own database, login role and signing key. The data keeps the ids of the users of
 * the source, so that the two databases can be compared and swapped. It can be run again after it was killed at any
 * point.
 * @throws {OperatorError} when the slug is taken, or this build does not know the version of the data
 */
export async function createSideTenant(
  installation: Installation,
  passwords: Passwords,
  source: Tenant,
  slug: string,
  data: RestorableData,
): Promise<Tenant> {
  await requireKnownVersion(data.schemaVersion);
  const manifest = checkManifest(
    {
      slug,
      name: source.name,
      appId: source.appId,
      features: source.features,
      server: source.server.name,
      admin: { email: 'nobody@restore' }, // creates no administrator
    },
    'the new slug',
  );
  const populate = async (side: Tenant): Promise<[]> => {
    await recordSide(installation, side, source, data);
    await fillTenant(installation, side, data);
    return [];
  };
  const { tenant, created } = await provision(installation, passwords, manifest, populate, {
    status: 'suspended',
    isIsolated: true,
  });
  if (!created) throw new OperatorError(`There is a tenant ${slug} already, ${tenant.status}: choose another slug`);
  const { statements } = installation;
  await statements.execute('update restored_tenants set complete_at = now() where tenant_id = ?', [tenant.id]);
  return tenant;
}

/** @throws {OperatorError} when another tenant has the slug; one that a killed command has begun is continued */
export async function requireFreeSlug({ statements }: Installation, slug: string): Promise<void> {
  const [taken] = await statements.execute<{ status: string }[]>(
    `select status from tenants where slug = ? and status <> 'provisioning'`,
    [slug],
  );
  if (taken) throw new OperatorError(`There is a tenant ${slug} already, ${taken.status}: choose another slug`);
}

/** @throws {OperatorError} when this build does not know the schema version of the data */
export async function requireKnownVersion(version: string): Promise<void> {
  const migrations = await loadMigrations('tenant');
  if (!migrations.some(({ name }) => name === version))
    throw new OperatorError(`The data is of version ${version}, which this build does not know: use the newer build`);
}

async function recordSide(
  { statements }: Installation,
  side: Tenant,
  source: Tenant,
  { description }: RestorableData,
): Promise<void> {
  await statements.execute(
    `insert into restored_tenants (tenant_id, source_id, restored_from) values (?, ?, ?)
       on conflict (tenant_id) do update set source_id = excluded.source_id, restored_from = excluded.restored_from`,
    [side.id, source.id, description],
  );
}

/**
 * Writes data into the database of a tenant at the version of the data, and brings it to the version of this build. The
 * database is a copy of the template; nothing serves the tenant.
 */
export async function fillTenant(installation: Installation, side: Tenant, data: RestorableData): Promise<void> {
  const url = databaseUrl(installation.servers.adminUrl(side.server), side.databaseName);
  if (data.schemaVersion !== (await tenantHead())) await replaceDatabase(installation, side, data.schemaVersion);
  const steps = await readSchemaSteps();
  const pending = steps.slice(steps.findIndex(({ name }) => name === data.schemaVersion) + 1);
  const settings = { ...migrationSettings(side.server), ...canonicalTextSettings };
  await withConnection(
    url,
    async target => {
      await data.fill(target);
      await target.query('begin');
      for (const step of pending) await applyStep(target, step);
      await target.query('commit');
      await requireHeadSchema(installation, side, target);
    },
    { settings },
  );
}

/** Replaces the database, a copy of the template of this build, by an empty one at an earlier version. */
async function replaceDatabase({ servers }: Installation, side: Tenant, version: string): Promise<void> {
  const adminUrl = servers.adminUrl(side.server);
  const { databaseName, roleName, guid, server } = side;
  const name = quote(databaseName);
  const migrations = await loadMigrations('tenant');
  const earlier = migrations.slice(0, migrations.findIndex(migration => migration.name === version) + 1);
  await withConnection(adminUrl, async client => {
    await client.query(`drop database if exists ${name} with (force)`);
    await client.query(`create database ${name} template template0 encoding 'UTF8'`);
    await client.query(limitConnect(databaseName, roleName));
  });
  const url = databaseUrl(adminUrl, databaseName);
  await runMigrations(url, earlier, migrationSettings(server));
  await withConnection(url, client => client.query('insert into tenant_identity (guid) values ($1)', [guid]));
}

/** @throws {OperatorError} that names the first object in which the database differs from the template */
async function requireHeadSchema({ control, servers }: Installation, side: Tenant, client: pg.Client): Promise<void> {
  const { server } = side;
  if ((await fingerprint(client)) === (await headFingerprint(control, server, servers.adminUrl(server)))) return;
  const difference = firstDifference(await schemaObjects(client), await headObjects(control, server));
  throw new OperatorError(`The restored database differs from the template of this build: ${difference}`);
}

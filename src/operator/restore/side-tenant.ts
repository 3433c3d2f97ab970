import type pg from 'pg';
import { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../postgres/migration-steps.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { checkManifest } from '../provisioning/manifest.ts';
import { reserveTenant } from '../provisioning/provision.ts';
import { createTenantDatabase, limitConnect } from '../provisioning/tenant-database.ts';
import { applyStep, compatibleFrom, readSchemaSteps } from '../schema/schema-steps.ts';
import { migrationSettings } from '../schema/template.ts';
import { headFingerprint, headObjects } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { canonicalTextSettings } from '../table-checksums.ts';
import { createRemoval } from '../tenants/tenant-states.ts';
import { findTenant } from '../tenants/tenants.ts';
import { type RemovalStep, type RestoreEffects, type SideStep, takeSteps } from './restore-protocol.ts';

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
 * point: `restoreProtocol` removes what is not complete, and says why.
 * @param onStep called before each step
 * @throws {OperatorError} when the slug is taken, or this build does not know the version of the data
 */
export async function createSideTenant(
  installation: Installation,
  source: Tenant,
  slug: string,
  data: RestorableData,
  onStep: (step: string) => void = () => {},
): Promise<Tenant> {
  await requireKnownVersion(data.schemaVersion);
  const { name, appId, features, server } = source;
  // The administrator is for the check only: none is created.
  const manifest = checkManifest(
    { slug, name, appId, features, server: server.name, admin: { email: 'nobody@restore' } },
    'the new slug',
  );
  return withConnection(installation.controlUrl, async control => {
    await acquireLock(control, lockSpaces.slug, lockKey(slug));
    await requireFreeSlug(installation, slug);
    const em = installation.control.em.fork();
    const begun = await em.findOne(Tenant, { slug }, { populate: ['server'] });
    if (begun) await acquireLock(control, lockSpaces.tenant, begun.id);
    const removal = begun && (await createRemoval(installation, control, begun)).effects;
    let side: Tenant | undefined;
    const reserved = (): Tenant => side ?? expectReserved();
    const create: RestoreEffects<SideStep> = {
      'reserve side': async () => {
        await findTenant(installation, source.slug); // it may be purged meanwhile
        side = await reserveTenant(em.fork(), installation, manifest);
        await recordSide(control, side, source, data);
      },
      'create database': () => createTenantDatabase(installation, reserved()),
      'fill database': () => fillTenant(installation, reserved(), data),
      'complete side': () => completeSide(installation, control, reserved()),
    };
    const view = { state: begun ? 'begun' : 'none', fence: 'none' } as const;
    await takeSteps<SideStep | RemovalStep>(view, 'aside', { ...create, ...(removal ?? noRemoval) }, onStep);
    return findTenant(installation, slug);
  });
}

/** For a run that has nothing to remove. */
const noRemoval: RestoreEffects<RemovalStep> = {
  'condemn database': async () => {},
  'drop database': async () => {},
  'forget tenant': async () => {},
};

function expectReserved(): never {
  throw new Error('the side is not reserved yet');
}

/** Completes a side in one transaction. @throws {OperatorError} when another run has removed it */
async function completeSide({ control, servers }: Installation, client: pg.Client, side: Tenant): Promise<void> {
  const { id, slug, server } = side;
  const migrations = await loadMigrations('tenant');
  const schemaFingerprint = await headFingerprint(control, server, servers.adminUrl(server));
  const { rowCount } = await client.query(
    `with completed as (
       update tenants set status = 'suspended', isolated = true, schema_version = $2, compatible_from = $3,
                          schema_fingerprint = $4, updated_at = now()
        where id = $1 and status = 'provisioning' returning id
     ) update restored_tenants set complete_at = now() from completed where tenant_id = completed.id`,
    [id, migrations.at(-1)?.name, compatibleFrom(migrations), schemaFingerprint],
  );
  if (!rowCount) throw new OperatorError(`another run has removed ${slug} meanwhile: nothing is restored by this one`);
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
  control: pg.Client,
  side: Tenant,
  source: Tenant,
  { description }: RestorableData,
): Promise<void> {
  await control.query(`insert into restored_tenants (tenant_id, source_id, restored_from) values ($1, $2, $3)`, [
    side.id,
    source.id,
    description,
  ]);
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

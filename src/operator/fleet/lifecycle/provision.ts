import { randomUUID } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type pg from 'pg';
import type { Passwords } from '../../../accounts/auth/passwords.ts';
import { Role, type Server, Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { initialRoles } from '../../../control/permissions.ts';
import { owners } from '../../../control/secret-box.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { lockKey, lockSpaces, withLock } from '../../../lib/postgres/advisory-locks.ts';
import type { FillTarget } from '../../databases/fill-database.ts';
import { runDatabases } from '../../databases/run-databases.ts';
import { lockTenant } from '../../databases/with-tenant.ts';
import { addSigningKey } from '../../records/keys.ts';
import { requireNotPurging } from '../../records/purging.ts';
import { placeTenant } from '../../records/servers.ts';
import { connectTenant, findTenant } from '../../records/tenants.ts';
import { generatePassword, insertUser } from '../../records/users.ts';
import { applyPacks } from './apply-packs.ts';
import type { Manifest } from './manifest.ts';
import { readPack } from './read-pack.ts';

export interface Provisioned {
  tenant: Tenant;
  /** False when the tenant existed already; nothing was changed then. */
  created: boolean;
  /**
   * The users that were added, the first administrator first. Their passwords are not stored
   * anywhere.
   */
  logins: { email: string; password: string }[];
}

interface FirstDatabase {
  /** True: it sends no mail, and its legacy clients get no access. */
  isIsolated?: boolean;
  /**
   * The last migration that its first database gets before it is filled; undefined: that of
   * this build.
   */
  version?: string | undefined;
}

/**
 * Provisions a tenant: its row, roles and key; its login role and database, which is a copy of
 * the template, with the data of the manifest; then lets it be served. The next run completes
 * one that was killed at any point, with another database, and an incomplete tenant is never
 * served. An existing tenant is not changed.
 */
export async function provision(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  populate = (tenant: Tenant) => populateFrom(installation, passwords, manifest, tenant),
  { isIsolated = false, version }: FirstDatabase = {},
): Promise<Provisioned> {
  const { controlUrl } = installation;
  return withLock(controlUrl, lockSpaces.slug, lockKey(manifest.slug), async control => {
    const em = (await installation.control()).em.fork();
    const found = await em.findOne(Tenant, { slug: manifest.slug }, { populate: ['server'] });
    if (found) await requireNotPurging(installation, found.slug);
    if (found && found.status !== 'provisioning') {
      return { tenant: found, created: false, logins: [] };
    }

    const server = found?.server ?? (await placeTenant(installation, manifest.server));
    const tenant =
      found ?? (await insertTenant(em, installation, manifest, { server, isIsolated }));
    const { id, guid, slug } = tenant;
    await lockTenant(control, id, slug);
    if (found) await renewTenant(control, found, manifest, isIsolated);

    let logins: Provisioned['logins'] = [];
    const fill = async ({ server, database: databaseName }: FillTarget): Promise<void> => {
      logins = await populate(Object.assign(tenant, { server, databaseName }));
    };
    const placement = { server, origin: 'template', version, fill };
    await runDatabases({ installation, control, tenant: { id, guid, slug } }, 'provision', {
      placement,
    });

    return { tenant: await findTenant(installation, slug), created: true, logins };
  });
}

/**
 * Adds the packs, entities and users of the manifest. Replaces the users that a killed run has
 * added, because their passwords are lost. A user keeps the id, to which records of the tenant
 * may refer.
 */
export async function populateFrom(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  tenant: Tenant,
): Promise<Provisioned['logins']> {
  await addPacks(installation, tenant, manifest);
  const entityIds = await makeEntities(installation, tenant, manifest);
  const admin = {
    ...manifest.admin,
    role: 'Administrator',
    scope: 'All' as const,
    entity: undefined,
  };
  const { em } = await installation.control();

  return em.fork().transactional(async em => {
    await lockProvisioning(em, tenant);
    const earlier = await em.execute<{ id: string; email: string }[]>(
      'delete from users where tenant_id = ? returning id, email',
      [tenant.id],
    );
    const ids = new Map(earlier.map(({ id, email }) => [email, Number(id)]));
    const logins: Provisioned['logins'] = [];
    for (const { entity, ...person } of [admin, ...manifest.users]) {
      const entityId = entity === undefined ? null : (entityIds.get(entity) ?? null);
      const password = generatePassword();
      const id = ids.get(person.email);
      const { email } = await insertUser(em, passwords, {
        id,
        tenant,
        ...person,
        entityId,
        password,
      });
      logins.push({ email, password });
    }
    return logins;
  });
}

/** Inserts the tenant's row with its roles and first signing key. It has no database yet. */
async function insertTenant(
  em: EntityManager,
  { secrets }: Installation,
  { slug, name, appId = slug, appUrl, features }: Manifest,
  { server, isIsolated }: { server: Server; isIsolated: boolean },
): Promise<Tenant> {
  return em.transactional(async tx => {
    const guid = randomUUID();
    const tenant = tx.create(Tenant, {
      guid,
      slug,
      name,
      appId,
      appUrl: appUrl ?? null,
      features,
      isIsolated,
      server: tx.merge(server),
      databaseName: noDatabase(guid),
      roleName: noDatabase(guid),
      rolePassword: secrets.seal('', owners.rolePassword(guid)),
    });
    await tx.flush();
    for (const role of initialRoles) tx.create(Role, { tenant, ...role });
    addSigningKey(tx, tenant, secrets);
    await tx.flush();
    return tenant;
  });
}

/** Gives a tenant whose provision was killed what the manifest says now. */
async function renewTenant(
  control: pg.Client,
  tenant: Tenant,
  { name, appId = tenant.slug, appUrl, features }: Manifest,
  isIsolated: boolean,
): Promise<void> {
  await control.query(
    `update tenants set name = $2, app_id = $3, app_url = $4, features = $5, isolated = $6
      where id = $1 and status = 'provisioning'`,
    [tenant.id, name, appId, appUrl, features, isIsolated],
  );
  Object.assign(tenant, { name, appId, appUrl: appUrl ?? null, features, isIsolated });
}

/** Stands for the name of its database until the tenant has one. */
const noDatabase = (guid: string): string => `none of ${guid}`;

/**
 * Holds a tenant in its provisioning until the transaction ends.
 * @throws {OperatorError} when it is served already
 */
export async function lockProvisioning(em: EntityManager, { id, slug }: Tenant): Promise<void> {
  const rows = await em.execute<object[]>(
    `select from tenants where id = ? and status = 'provisioning' for update`,
    [id],
  );
  if (rows.length === 0) {
    throw new OperatorError(`another run has provisioned ${slug} meanwhile: this one has stopped`);
  }
}

/** Applies the packs of the manifest. */
async function addPacks(
  installation: Installation,
  tenant: Tenant,
  { packs: names }: Manifest,
): Promise<void> {
  if (names.length === 0) return;
  const packs = await Promise.all(names.map(readPack));
  await connectTenant(installation, tenant, client => applyPacks(client, packs));
}

/**
 * Inserts the entities of the manifest, unless they exist.
 * @returns their ids by name
 */
async function makeEntities(
  installation: Installation,
  tenant: Tenant,
  { entities }: Manifest,
): Promise<Map<string, number>> {
  if (entities.length === 0) return new Map();
  return connectTenant(installation, tenant, async client => {
    for (const { name, entityType } of entities) {
      await client.query(
        `insert into entities (name, entity_type)
         select $1, $2 where not exists (select from entities where name = $1)`,
        [name, entityType],
      );
    }
    const { rows } = await client.query<{ id: string; name: string }>(
      'select id, name from entities',
    );
    return new Map(rows.map(row => [row.name, Number(row.id)]));
  });
}

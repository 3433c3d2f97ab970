import { randomBytes, randomUUID } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { normaliseEmail } from '../../auth/email.ts';
import type { Passwords } from '../../auth/passwords.ts';
import { Tenant } from '../../control/fleet-entities.ts';
import { initialRoles } from '../../control/permissions.ts';
import { owners } from '../../control/secret-box.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { Role } from '../../control/user-entities.ts';
import type { Installation } from '../../installation.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';
import { applyPacks } from '../packs/apply-packs.ts';
import { readPack } from '../packs/read-pack.ts';
import { compatibleFrom } from '../schema/schema-steps.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { addSigningKey } from '../tenants/keys.ts';
import { requireNotPurging } from '../tenants/purging.ts';
import { placeTenant } from '../tenants/servers.ts';
import { generatePassword, insertUser } from '../tenants/users.ts';
import type { Manifest } from './manifest.ts';
import { physicalName } from './physical-names.ts';
import { createTenantDatabase } from './tenant-database.ts';
import { claimWarmDatabase } from './warm-pool.ts';

export interface Provisioned {
  tenant: Tenant;
  /** False when the tenant existed already; nothing was changed then. */
  created: boolean;
  /** The users that were added, the first administrator first. Their passwords are not stored anywhere. */
  logins: { email: string; password: string }[];
}

interface FinalState {
  /** True: it sends no mail, and its legacy clients get no access. */
  isIsolated?: boolean;
}

/**
 * Provisions a tenant: its row, login role, database (a warm one, or a copy of the template) and users; then lets it be
 * served. Each step can be repeated, so the next run completes one that was killed at any point, and an incomplete
 * tenant is never served. An existing tenant is not changed.
 */
export async function provision(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  populate = (tenant: Tenant) => populateFrom(installation, passwords, manifest, tenant),
  { isIsolated = false }: FinalState = {},
): Promise<Provisioned> {
  const { control, controlUrl } = installation;
  return withConnection(controlUrl, async client => {
    await acquireLock(client, lockSpaces.slug, lockKey(manifest.slug));
    const em = control.em.fork();
    await requireNotPurging(installation, manifest.slug);
    const found = await em.findOne(Tenant, { slug: manifest.slug }, { populate: ['server'] });
    if (found && found.status !== 'provisioning') return { tenant: found, created: false, logins: [] };

    const tenant = found ?? (await reserveTenant(em, installation, manifest));
    await createTenantDatabase(installation, tenant);
    const logins = await populate(tenant);
    tenant.status = 'active';
    tenant.isIsolated = isIsolated;
    const migrations = await loadMigrations('tenant');
    tenant.schemaVersion = migrations.at(-1)?.name ?? null;
    tenant.compatibleFrom = compatibleFrom(migrations);
    tenant.schemaFingerprint = await headFingerprint(
      control,
      tenant.server,
      installation.servers.adminUrl(tenant.server),
    );
    await em.flush();
    return { tenant, created: true, logins };
  });
}

/**
 * Adds the packs, entities and users of the manifest. Replaces the users that a killed run has added, because their
 * passwords are lost. A user keeps the id, to which records of the tenant may refer.
 */
export async function populateFrom(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  tenant: Tenant,
): Promise<Provisioned['logins']> {
  await addPacks(installation, tenant, manifest);
  const entityIds = await makeEntities(installation, tenant, manifest);
  const admin = { ...manifest.admin, role: 'Administrator', scope: 'All' as const, entity: undefined };
  return installation.control.em.fork().transactional(async em => {
    const earlier = await em.execute<{ id: string; email: string }[]>(
      'delete from users where tenant_id = ? returning id, email',
      [tenant.id],
    );
    const ids = new Map(earlier.map(({ id, email }) => [email, Number(id)]));
    const logins: Provisioned['logins'] = [];
    for (const { entity, ...person } of [admin, ...manifest.users]) {
      const entityId = entity === undefined ? null : (entityIds.get(entity) ?? null);
      const password = generatePassword();
      const id = ids.get(normaliseEmail(person.email));
      const { email } = await insertUser(em, passwords, { id, tenant, ...person, entityId, password });
      logins.push({ email, password });
    }
    return logins;
  });
}

/** Inserts the tenant's row with its names, roles and first signing key. */
export async function reserveTenant(
  em: EntityManager,
  installation: Installation,
  manifest: Manifest,
): Promise<Tenant> {
  const { secrets } = installation;
  const server = em.merge(await placeTenant(installation, manifest.server));
  return em.transactional(async tx => {
    const id = (await claimWarmDatabase(tx, server)) ?? (await nextNumber(tx));
    const guid = randomUUID();
    const name = physicalName(server, id);
    const tenant = tx.create(Tenant, {
      id,
      guid,
      slug: manifest.slug,
      name: manifest.name,
      appId: manifest.appId ?? manifest.slug,
      features: manifest.features,
      server,
      databaseName: name,
      roleName: name,
      rolePassword: secrets.seal(randomBytes(24).toString('base64url'), owners.rolePassword(guid)),
    });
    for (const role of initialRoles) tx.create(Role, { tenant, ...role });
    addSigningKey(tx, tenant, secrets);
    await tx.flush();
    return tenant;
  });
}

/**
 * Returns the next id of a tenant. An id is never reused. So the name of a database is never reused either, even if the
 * slug is.
 */
async function nextNumber(em: EntityManager): Promise<number> {
  const [row] = await em.execute<{ id: string }[]>(`select nextval(pg_get_serial_sequence('tenants', 'id')) as id`);
  return Number(row?.id);
}

/** Applies the packs of the manifest. */
async function addPacks({ servers }: Installation, tenant: Tenant, { packs: names }: Manifest): Promise<void> {
  if (names.length === 0) return;
  const packs = await Promise.all(names.map(readPack));
  const url = databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName);
  await withConnection(url, client => applyPacks(client, packs));
}

/** Inserts the entities of the manifest, unless they exist. @returns their ids by name */
async function makeEntities(
  { servers }: Installation,
  tenant: Tenant,
  { entities }: Manifest,
): Promise<Map<string, number>> {
  if (entities.length === 0) return new Map();
  return withConnection(databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName), async client => {
    for (const { name, entityType } of entities) {
      await client.query(
        `insert into entities (name, entity_type)
         select $1, $2 where not exists (select from entities where name = $1)`,
        [name, entityType],
      );
    }
    const { rows } = await client.query<{ id: string; name: string }>('select id, name from entities');
    return new Map(rows.map(row => [row.name, Number(row.id)]));
  });
}

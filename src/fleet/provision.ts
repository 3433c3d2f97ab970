import { randomBytes, randomUUID } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type pg from 'pg';
import type { Passwords } from '../auth/passwords.ts';
import { Role, Tenant, User } from '../control/entities.ts';
import { initialRoles } from '../control/permissions.ts';
import { owners } from '../control/secret-box.ts';
import { databaseUrl } from '../control/servers.ts';
import { migrationNames } from '../migrations.ts';
import { holdLock, lockKey, lockSpaces, quoteIdentifier, quoteLiteral, withConnection } from './admin-connection.ts';
import type { Installation } from './installation.ts';
import { addSigningKey } from './keys.ts';
import type { Manifest } from './manifest.ts';
import { OperatorError } from './operator-error.ts';
import { placeTenant } from './servers.ts';
import { ensureTemplate, tenantGroup } from './template.ts';
import { headFingerprint } from './template-fingerprint.ts';
import { generatePassword, insertUser } from './users.ts';

export interface Provisioned {
  tenant: Tenant;
  /** False when the tenant was there already, and nothing was changed. */
  created: boolean;
  /** The people just added, the first administrator first; their passwords are known only now. */
  logins: { email: string; password: string }[];
}

/**
 * Makes a tenant: its row, its login role, its database copied from the template, its people; then it is active. Every
 * step can be repeated, so a run that was killed anywhere is completed by the next one, and nothing half-made is served.
 * A tenant that is active already is left as it is.
 */
export async function provision(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  populate = (tenant: Tenant) => populateFrom(installation, passwords, manifest, tenant),
): Promise<Provisioned> {
  const { control, controlUrl } = installation;
  return withConnection(controlUrl, async client => {
    await holdLock(client, lockSpaces.slug, lockKey(manifest.slug));
    const em = control.em.fork();
    const found = await em.findOne(Tenant, { slug: manifest.slug }, { populate: ['server'] });
    if (found && found.status !== 'provisioning') return { tenant: found, created: false, logins: [] };

    const tenant = found ?? (await reserve(em, installation, manifest));
    await makeDatabase(installation, tenant);
    const logins = await populate(tenant);
    tenant.status = 'active';
    tenant.schemaVersion = (await migrationNames('tenant')).at(-1) ?? null;
    tenant.schemaFingerprint = await headFingerprint(
      control,
      tenant.server,
      installation.servers.adminUrl(tenant.server),
    );
    await em.flush();
    return { tenant, created: true, logins };
  });
}

/** What the manifest says is in a new tenant. Run again after it was killed, it gives those it finds new passwords. */
async function populateFrom(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
  tenant: Tenant,
): Promise<Provisioned['logins']> {
  const entityIds = await makeEntities(installation, tenant, manifest);
  const admin = { ...manifest.admin, role: 'Administrator', scope: 'All' as const, entity: undefined };
  return installation.control.em.fork().transactional(async em => {
    await em.nativeDelete(User, { tenant: tenant.id });
    const logins: Provisioned['logins'] = [];
    for (const { entity, ...person } of [admin, ...manifest.users]) {
      const entityId = entity === undefined ? null : (entityIds.get(entity) ?? null);
      const password = generatePassword();
      const { email } = await insertUser(em, passwords, { tenant, ...person, entityId, password });
      logins.push({ email, password });
    }
    return logins;
  });
}

/** The tenant's row with everything that only the control database knows: names, roles, the first signing key. */
async function reserve(em: EntityManager, installation: Installation, manifest: Manifest): Promise<Tenant> {
  const { secrets } = installation;
  const server = em.merge(await placeTenant(installation, manifest.server));
  return em.transactional(async tx => {
    // The number is never given again, so neither is the name of the database, though a slug may be.
    const [row] = await tx.execute<{ id: string }[]>(`select nextval(pg_get_serial_sequence('tenants', 'id')) as id`);
    const id = Number(row?.id);
    const guid = randomUUID();
    const physicalName = `${server.prefix}_${manifest.slug}_${id}`;
    const tenant = tx.create(Tenant, {
      id,
      guid,
      slug: manifest.slug,
      name: manifest.name,
      appId: manifest.appId ?? manifest.slug,
      features: manifest.features,
      server,
      databaseName: physicalName,
      roleName: physicalName,
      rolePassword: secrets.seal(randomBytes(24).toString('base64url'), owners.rolePassword(guid)),
    });
    for (const role of initialRoles) tx.create(Role, { tenant, ...role });
    addSigningKey(tx, tenant, secrets);
    await tx.flush();
    return tenant;
  });
}

/** The login role and the database, with the tenant's guid inside. */
async function makeDatabase({ secrets, servers }: Installation, tenant: Tenant): Promise<void> {
  const server = tenant.server;
  const adminUrl = servers.adminUrl(server);
  const password = secrets.open(tenant.rolePassword, owners.rolePassword(tenant.guid)).toString();
  await withConnection(adminUrl, async client => {
    for (let attempt = 1; ; attempt++) {
      const template = await ensureTemplate(server, adminUrl);
      await makeRole(client, tenant.roleName, password, tenantGroup(server));
      try {
        await copyTemplate(client, tenant, template);
        break;
      } catch (error) {
        // The template was replaced meanwhile by another process (3D000), or is being copied (55006).
        if (attempt === 5 || !['3D000', '55006'].includes((error as { code?: string }).code ?? '')) throw error;
      }
    }
  });
  await withConnection(databaseUrl(adminUrl, tenant.databaseName), client => stampIdentity(client, tenant.guid));
}

/**
 * Logs in to one database, owns nothing, and has what the group of all tenants is granted inside that database. A new role
 * is nothing more by itself; to say so of one that is there takes a superuser.
 */
async function makeRole(client: pg.Client, name: string, password: string, group: string): Promise<void> {
  const role = quoteIdentifier(name);
  const { rowCount } = await client.query('select from pg_roles where rolname = $1', [name]);
  await client.query(`${rowCount ? 'alter' : 'create'} role ${role} login password ${quoteLiteral(password)}`);
  await client.query(`grant ${quoteIdentifier(group)} to ${role}`);
}

async function copyTemplate(client: pg.Client, { databaseName, roleName }: Tenant, template: string): Promise<void> {
  const database = quoteIdentifier(databaseName);
  const { rows } = await client.query<{ broken: boolean }>(
    'select datconnlimit = -2 as broken from pg_database where datname = $1',
    [databaseName],
  );
  // A DROP DATABASE that was interrupted leaves a database that can only be dropped.
  if (rows[0]?.broken) await client.query(`drop database ${database}`);
  if (!rows[0] || rows[0].broken) {
    await client.query(
      `create database ${database} template ${quoteIdentifier(template)} strategy wal_log allow_connections false`,
    );
  }
  // Nobody connects before the rights are right.
  await client.query(`revoke all on database ${database} from public;
    grant connect on database ${database} to ${quoteIdentifier(roleName)};
    alter database ${database} allow_connections true`);
}

async function stampIdentity(client: pg.Client, guid: string): Promise<void> {
  await client.query('insert into tenant_identity (guid) values ($1) on conflict do nothing', [guid]);
  const { rows } = await client.query<{ guid: string }>('select guid from tenant_identity');
  if (rows[0]?.guid !== guid) throw new OperatorError('the database belongs to another tenant: nothing was changed');
}

/** The manifest's entities, by name. Made once: a second run finds them. */
async function makeEntities(
  { servers }: Installation,
  tenant: Tenant,
  { entities }: Manifest,
): Promise<Map<string, number>> {
  if (entities.length === 0) return new Map();
  return withConnection(databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName), async client => {
    for (const { name, entityType } of entities) {
      await client.query(
        'insert into entities (name, entity_type) select $1, $2 where not exists (select from entities where name = $1)',
        [name, entityType],
      );
    }
    const { rows } = await client.query<{ id: string; name: string }>('select id, name from entities');
    return new Map(rows.map(row => [row.name, Number(row.id)]));
  });
}

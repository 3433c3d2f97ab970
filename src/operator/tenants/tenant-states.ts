import type pg from 'pg';
import { Tenant, type TenantStatus } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { findTenant } from './tenants.ts';

/** Every move between states that an operator can make. Only `active` is served. */
const transitions = {
  suspend: { from: ['active'], to: 'suspended' },
  resume: { from: ['suspended'], to: 'active' },
  delete: { from: ['active', 'suspended'], to: 'deleted' },
  restore: { from: ['deleted'], to: 'active' },
} as const satisfies Record<string, { from: readonly TenantStatus[]; to: TenantStatus }>;

export type Transition = keyof typeof transitions;

/**
 * Moves a tenant to another state; every process obeys within a second, and what runs is finished. A tenant that is in
 * that state already is left as it is.
 * @throws {OperatorError} when the move is not possible from the state it is in
 */
export async function changeState(installation: Installation, slug: string, move: Transition): Promise<Tenant> {
  const { from, to } = transitions[move];
  const changed = await installation.control.em
    .fork()
    .nativeUpdate(Tenant, { slug, status: { $in: [...from] } }, { status: to, updatedAt: new Date() });
  const tenant = await findTenant(installation, slug);
  if (changed === 0) requireState(tenant, move);
  return tenant;
}

/** @throws {OperatorError} when there is no such tenant, or the move is not possible from the state it is in */
export async function requireTransition(installation: Installation, slug: string, move: Transition): Promise<void> {
  requireState(await findTenant(installation, slug), move);
}

function requireState({ slug, status }: Tenant, move: Transition): void {
  const { from, to }: { from: readonly TenantStatus[]; to: TenantStatus } = transitions[move];
  if (status === to || from.includes(status)) return;
  throw new OperatorError(`${slug} is ${status}: only a tenant that is ${from.join(' or ')} can be ${past[move]}`);
}

/** @throws {OperatorError} when it must be deleted first */
export function requirePurgeable({ slug, status }: Tenant): void {
  if (status !== 'deleted' && status !== 'provisioning')
    throw new OperatorError(`${slug} is ${status}: delete it first (npm run -s tenant -- delete ${slug})`);
}

const past: Record<Transition, string> = {
  suspend: 'suspended',
  resume: 'resumed',
  delete: 'deleted',
  restore: 'restored',
};

/**
 * Removes a deleted tenant (or one whose provisioning never ended) for good: its database, its login role, and in the
 * control database everything but a line of record. Killed anywhere, it can be run again. The slug is free afterwards;
 * the name of the database is never used again.
 */
export async function purgeTenant(installation: Installation, slug: string): Promise<void> {
  const { control, controlUrl, servers } = installation;
  await withConnection(controlUrl, async client => {
    await acquireLock(client, lockSpaces.slug, lockKey(slug));
    const found = await findTenant(installation, slug);
    await acquireLock(client, lockSpaces.tenant, found.id);
    const tenant = await findTenant(installation, slug);
    requirePurgeable(tenant);
    await withConnection(servers.adminUrl(tenant.server), async admin => {
      if (!(await isOwn(admin, databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName), tenant))) return;
      // Who is no superuser may end the sessions of a role only as a member of it.
      const { rowCount } = await admin.query('select from pg_roles where rolname = $1', [tenant.roleName]);
      if (rowCount) await admin.query(`grant ${quoteIdentifier(tenant.roleName)} to current_user`);
      await admin.query(`drop database if exists ${quoteIdentifier(tenant.databaseName)} with (force)`);
      await admin.query(`drop role if exists ${quoteIdentifier(tenant.roleName)}`);
    });
    await control.em.fork().transactional(async em => {
      await em.execute(
        `insert into purged_tenants (id, guid, slug, name, database_name, created_at)
          select id, guid, slug, name, database_name, created_at from tenants where id = ?`,
        [tenant.id],
      );
      await em.nativeDelete(Tenant, { id: tenant.id });
    });
  });
}

/** False when the names are those of another installation on the same server, whose database must not be dropped. */
async function isOwn(admin: pg.Client, url: string, { guid, roleName, databaseName }: Tenant): Promise<boolean> {
  const { rows } = await admin.query<{ owner: string | null; open: boolean | null }>(
    `select (select shobj_description(oid, 'pg_authid') from pg_roles where rolname = $1) as owner,
            (select datallowconn and datconnlimit <> -2 from pg_database where datname = $2) as open`,
    [roleName, databaseName],
  );
  const owner = rows[0]?.owner ?? null;
  if (owner !== null) return owner === guid;
  if (!rows[0]?.open) return true;
  const inside = await withConnection(url, readSchemaState);
  return inside.guid === null || inside.guid === guid;
}

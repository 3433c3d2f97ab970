import type pg from 'pg';
import type { Tenant } from '../../control/control-entities.ts';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { acquireLock, lockKey, lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import {
  namesUnlessAway,
  readHoldings,
  readSessionNames,
} from '../databases/copy/foreign-objects.ts';
import type { DatabaseStep } from '../databases/protocol/database-protocol.ts';
import {
  dropCondemned,
  findLeftRoles,
  type LeftRole,
} from '../databases/protocol/drop-database.ts';
import { runDatabases } from '../databases/protocol/run-databases.ts';
import { readDatabases } from '../databases/store/database-store.ts';
import { requirePurgeable } from '../registry/purging.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { findTenant, requireNamed } from '../registry/tenants.ts';

/**
 * A tenant whose databases and rows are gone. Its archives are removed after that
 * (`removePurgedArchives`).
 */
export interface PurgedTenant {
  readonly guid: string;
}

interface Options {
  /**
   * True when the archives of the tenant stay, as the operator wants; false: they are recorded
   * as left until they are removed.
   */
  readonly keepsArchives: boolean;
  /**
   * Called for each login role that somebody has granted rights in other databases: it stays,
   * without a password.
   */
  readonly onLeft?: (role: LeftRole) => void;
  /** Called before each step. */
  readonly onStep?: (step: DatabaseStep) => void;
}

/**
 * Removes a deleted tenant, or one whose provisioning was never completed, permanently: all of
 * its databases and login roles, and its rows in the control database, except for one row in
 * `purged_tenants`; not its archives. It can be run again after it was killed at any point.
 * Afterwards the slug is reserved if the tenant was served by it; the names of the databases are
 * never used again. From its first step on nothing brings the tenant back.
 * @throws {OperatorError} when there is no such tenant, or it must be deleted first
 */
export function purgeTenant(
  installation: Installation,
  slug: string,
  { keepsArchives, onLeft = () => {}, onStep = () => {} }: Options,
): Promise<PurgedTenant> {
  return withLock(installation.controlUrl, lockSpaces.slug, lockKey(slug), async control => {
    const { id } = await findTenant(installation, slug);
    await acquireLock(control, lockSpaces.tenant, id);
    await requireNamed(control, id, slug);

    const tenant = await findTenant(installation, slug);
    requirePurgeable(tenant);
    const { rowCount } = await control.query(
      `update tenants set purging_at = coalesce(purging_at, now())
        where id = $1 and status in ('deleted', 'provisioning')`,
      [id],
    );
    if (!rowCount) throw new OperatorError(`${slug} is not deleted any more: nothing was removed`);
    const databases = await readDatabases(control, id, ['reserved', 'filled', 'kept', 'current']);
    const condemned = await readDatabases(control, id, ['condemned']);
    const context = { installation, control, tenant: { id, guid: tenant.guid, slug } };
    for (const target of databases) {
      await runDatabases(context, 'drop', { target }, { onStep: (_, step) => onStep(step) });
    }
    await dropCondemned(installation, control, context.tenant);
    for (const left of await findLeftRoles(installation, [...databases, ...condemned])) {
      onLeft(left);
    }

    await forget(control, tenant, keepsArchives);

    return { guid: tenant.guid };
  });
}

/**
 * Removes the rows of a tenant from the control database, except for one row in
 * `purged_tenants`.
 */
async function forget(
  client: pg.Client,
  { id, guid }: Pick<Tenant, 'id' | 'guid'>,
  keepsArchives: boolean,
): Promise<void> {
  await inTransaction(client, async () => {
    await client.query(
      `insert into purged_tenants (id, guid, slug, name, database_name, created_at, purged_at, archives)
          select id, guid, slug, name, database_name, created_at, clock_timestamp(), $2 from tenants where id = $1`,
      [id, keepsArchives ? 'kept' : 'left'],
    );

    await client.query(
      `update operator_actions set arguments = '{}', error = null where tenant_guid = $1`,
      [guid],
    );
    await client.query(`delete from tenant_databases where tenant_id = $1 and state = 'gone'`, [
      id,
    ]);
    await client.query('delete from tenants where id = $1', [id]);
  });
}

/** Returns the tenants with this slug that are purged, and whose archives are left. */
export async function findLeftArchives(
  { statements }: ControlStatements,
  slug: string,
): Promise<PurgedTenant[]> {
  const { rows } = await statements.query<PurgedTenant>(
    `select guid from purged_tenants
      where slug = $1 and archives = 'left' and not exists (select from tenants t where t.slug = purged_tenants.slug)
      order by id`,
    [slug],
  );

  return rows;
}

/** The data that a purge removes. */
interface PurgePlan {
  slug: string;
  guid: string;
  /** Null for a purge that has removed everything but the archives. */
  database: string | null;
  server: string | null;
  users: number;
  /**
   * Objects that somebody else has made in the databases of the tenant, and sessions of others
   * there, each with the name of the database.
   */
  holds: string[];
  /** The number of its archives. */
  archives: number;
}

/**
 * Returns the things that a purge of a tenant removes, and changes nothing.
 * @throws {OperatorError} when `purgeTenant` would refuse it
 */
export async function planPurge(installation: Installation, slug: string): Promise<PurgePlan> {
  if ((await findLeftArchives(installation, slug)).length > 0) {
    return { slug, guid: '', database: null, server: null, users: 0, holds: [], archives: 0 };
  }

  const tenant = await readTenant(installation, slug);
  requirePurgeable(tenant);
  const { guid, id, database, server } = tenant;
  const { rows } = await installation.statements.query<{ users: number; archives: number }>(
    `select (select count(*)::int from users where tenant_id = $1) as users,
            (select count(*)::int from archives
              where target = (select backup_target from installation) and tenant_guid = $2 and state = 'complete') as archives`,
    [id, guid],
  );
  const [counts] = rows;

  const holds = await listHeld(installation, id);
  return {
    slug,
    guid,
    database,
    server,
    users: counts?.users ?? 0,
    holds,
    archives: counts?.archives ?? 0,
  };
}

async function listHeld(installation: Installation, tenantId: number): Promise<string[]> {
  return withConnection(installation.controlUrl, async control => {
    const held: string[] = [];
    for (const each of await readDatabases(control, tenantId, [
      'reserved',
      'filled',
      'kept',
      'current',
      'condemned',
    ])) {
      const names = await namesUnlessAway(async () => [
        ...(await readHoldings(installation, each, undefined)).all,
        ...(await readSessionNames(installation, each)),
      ]);
      held.push(...names.map(name => `${name} in ${each.database}`));
    }

    return held;
  });
}

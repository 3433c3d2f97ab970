import type pg from 'pg';
import type { Installation, ServerAccess } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { postgresCause } from '../../../lib/log/postgres-causes.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { quoteIdentifier as quote } from '../../../lib/postgres/quote.ts';
import { dropOwned } from '../../schema/owned-databases.ts';
import { readSchemaState } from '../../schema/schema-steps.ts';
import { becomeMember } from '../../schema/tenant-sessions.ts';
import { listObjectsOfOthers, notDroppedFor, rowsLeft } from '../copy/foreign-objects.ts';
import { findRemains } from '../store/database-names.ts';
import { closedStamp, nobody } from '../store/database-stamp.ts';
import {
  type DatabaseAddress,
  formerTimes,
  type LockedTenant,
  readDatabases,
  type TenantDatabase,
} from '../store/database-store.ts';

/**
 * Condemns the reserved databases of a tenant; of a tenant that is not provisioned yet, also
 * the current one.
 */
export async function condemnLeftovers(control: pg.Client, tenantId: number): Promise<void> {
  await control.query(
    `update tenant_databases d set state = 'condemned', current_since = null
       from tenants t where t.id = tenant_id and tenant_id = $1
        and (d.state = 'reserved' or state = 'current' and status = 'provisioning')`,
    [tenantId],
  );
}

/**
 * Condemns a database: nothing leads back. The current database is condemned only when its
 * tenant is purged.
 * @throws {OperatorError} when it is the current one
 */
export async function condemnDatabase(
  control: pg.Client,
  { slug }: LockedTenant,
  { id, database }: TenantDatabase,
): Promise<void> {
  const { rowCount } = await control.query(
    `update tenant_databases d set state = 'condemned',
            current_during = case state when 'current' then ${formerTimes} else current_during end,
            current_since = null
      where id = $1 and (state in ('reserved', 'filled', 'kept', 'condemned')
        or state = 'current' and exists (select from tenants t where t.id = tenant_id and purging_at is not null))`,
    [id],
  );
  if (!rowCount) {
    throw new OperatorError(`${database} is the database that ${slug} has: it was not dropped`);
  }
}

/**
 * Forgets a condemned database that is dropped. The name of one that a tenant has had stays.
 */
export async function forgetDatabase(control: pg.Client, id: number): Promise<void> {
  await control.query(
    `delete from tenant_databases where id = $1 and state = 'condemned' and isempty(current_during)`,
    [id],
  );
  await control.query(
    `update tenant_databases set state = 'gone', role_password = null, keep_until = null, kept_by = null, error = null
      where id = $1 and state = 'condemned'`,
    [id],
  );
}

/**
 * Forgets a reserved database whose name somebody else has: nothing may lead to that database.
 */
export async function forgetReserved(control: pg.Client, id: number): Promise<void> {
  await control.query(`delete from tenant_databases where id = $1 and state = 'reserved'`, [id]);
}

type Condemned = Pick<TenantDatabase, 'server' | 'database' | 'role'>;

interface DropOptions {
  readonly mayBeOpen?: boolean;
  readonly leaveSchemas?: boolean;
}

/**
 * Drops a condemned database and its login role. First sets its stamp to `nobody`: should the
 * drop fail, no build and no earlier state of the control database serves it again.
 *
 * The name proves that both are ours (`database-names.ts`). Where the database can be read, its
 * stamp must not contradict: one of another tenant stays, with the role of that name.
 * @param guid of the tenant that it was made for
 * @param mayBeOpen true if the tenant is being provisioned or purged. Otherwise a condemned
 *   database is closed: the stamp of one names the tenant if it was lost and has come back, or
 *   if the control database is of an earlier time
 * @param leaveSchemas true to drop the database together with tables that somebody else has
 *   made in other schemas
 * @throws {OperatorError} when the database lets the tenant in, and must not, or is opened
 *   meanwhile, or has such tables
 */
export async function dropDatabase(
  { servers }: ServerAccess,
  condemned: Condemned,
  guid: string,
  { mayBeOpen = false, leaveSchemas = false }: DropOptions = {},
): Promise<void> {
  const { server, database, role } = condemned;

  const stampIfOwn = async (client: pg.Client): Promise<boolean> => {
    const { guid: found } = await readSchemaState(client);
    const isOfAnother = found !== null && ![guid, closedStamp(guid), nobody].includes(found);
    if (isOfAnother) return false;

    if (!leaveSchemas) await requireNoSchemas(client, condemned);
    // A run was killed before it gave the database a stamp.
    if (found === null) return true;
    if (found === guid && !mayBeOpen) throw notClosed(condemned);

    const { rowCount } = await client.query(
      'update tenant_identity set guid = $1 where guid = $2',
      [nobody, found],
    );
    if (!rowCount) throw notClosed(condemned);
    return true;
  };

  await withConnection(servers.adminUrl(server), async admin => {
    const remains = await findRemains(admin, { database, role });
    const isOpen = remains.database === 'open';
    if (isOpen && !(await withConnection(servers.adminUrl(server, database), stampIfOwn))) return;

    // Dropping the database ends the sessions of the role, which only a superuser or a member
    // of the role may do. The role stays where somebody has granted it rights elsewhere: then
    // nobody logs in with it.
    if (remains.role) {
      await becomeMember(admin, role);
      await admin.query(`alter role ${quote(role)} nologin password null`);
    }
    await dropOwned(admin, database);
    // A lost database that an operator has renamed still lets the role connect. The role owns
    // nothing.
    if (remains.role) {
      await admin
        .query(`drop owned by ${quote(role)}; drop role ${quote(role)}`)
        .catch(ignoreDependent);
    }
  });
}

/**
 * @throws {OperatorError} when the connected database has tables in schemas that somebody else
 *   has made
 */
async function requireNoSchemas(client: pg.Client, condemned: Condemned): Promise<void> {
  const rows = rowsLeft(await listObjectsOfOthers(client, condemned, new Set()));
  if (rows.length > 0) throw notDroppedFor(condemned, rows);
}

/**
 * @throws {OperatorError} when a database lets its tenant in, so that `dropDatabase` would
 *   refuse it
 */
export async function requireClosed(
  installation: ServerAccess,
  database: Condemned,
  guid: string,
): Promise<void> {
  if ((await readStamp(installation, database)) === guid) throw notClosed(database);
}

/** Returns the guid in the stamp of a database; null if the database is lost, or has none. */
export async function readStamp(
  { servers }: ServerAccess,
  { server, database }: DatabaseAddress,
): Promise<string | null> {
  try {
    return (await withConnection(servers.adminUrl(server, database), readSchemaState)).guid;
  } catch (error) {
    if (!['3D000', '55000'].includes(sqlState(error) ?? '')) throw error;
    return null;
  }
}

function notClosed({ server, database }: Condemned): OperatorError {
  return new OperatorError(
    `Database ${database} on server ${server.name} was not dropped: it is not closed, and may have newer data. It was ` +
      'lost and has come back, or the control database is of an earlier time. See bin/backoffice doctor',
  );
}

/** A login role that could not be dropped, because it has rights in other databases. */
export interface LeftRole {
  readonly role: string;
  readonly server: string;
  /** The databases in which the login role has objects or rights. */
  readonly databases: string[];
}

/**
 * Returns the login roles of dropped databases that are still there; one that may log in
 * belongs to others.
 */
export async function findLeftRoles(
  { servers }: ServerAccess,
  dropped: readonly Condemned[],
): Promise<LeftRole[]> {
  const left = await Promise.all(
    dropped.map(({ server, role }) =>
      withConnection(servers.adminUrl(server), async admin => {
        const { rows } = await admin.query<Omit<LeftRole, 'server'>>(
          `select rolname as role, array(
                    select distinct datname::text from pg_shdepend join pg_database d on d.oid = dbid
                     where refclassid = 'pg_authid'::regclass and refobjid = r.oid order by 1) as databases
             from pg_roles r where rolname = $1 and not rolcanlogin`,
          [role],
        );
        return rows.map(row => ({ ...row, server: server.name }));
      }),
    ),
  );

  return left.flat();
}

/**
 * Ignores the error of a role to which an operator has granted rights on objects of another
 * database.
 */
function ignoreDependent(error: unknown): void {
  if (sqlState(error) !== '2BP01') throw error;
}

/**
 * Drops the condemned databases of a tenant.
 * @param leaveSchemas as of `dropDatabase`; a purge always does that
 * @throws when a server cannot be used, or a database has tables of others, after the other
 *   databases
 */
export async function dropCondemned(
  installation: Installation,
  control: pg.Client,
  { id, guid, slug }: LockedTenant,
  leaveSchemas = false,
): Promise<void> {
  const { rows } = await control.query<{ isPurging: boolean }>(
    `select purging_at is not null as "isPurging" from tenants
      where id = $1 and (status = 'provisioning' or purging_at is not null)`,
    [id],
  );

  const options = {
    mayBeOpen: rows.length > 0,
    leaveSchemas: leaveSchemas || rows[0]?.isPurging === true,
  };
  const failures: unknown[] = [];
  for (const database of await readDatabases(control, id, ['condemned'])) {
    await dropDatabase(installation, database, guid, options).then(
      () => forgetDatabase(control, database.id),
      error => failures.push(notDropped(slug, database, error)),
    );
  }

  if (failures.length > 0) throw failures[0];
}

/** Returns the error to report when a database could not be dropped. */
export function notDropped(
  slug: string,
  { server, database }: TenantDatabase,
  error: unknown,
): unknown {
  const known = postgresCause(error);
  if (!known) return error;

  const what = `Database ${database} of ${slug} on server ${server.name} could not be dropped (${known.cause})`;
  return new OperatorError(`${what}. ${known.step}. Then run the command again`, { cause: error });
}

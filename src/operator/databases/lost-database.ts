import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { closeRole, type RunEpoch } from './database-stamp.ts';
import type { TenantDatabase } from './database-store.ts';
import { roleMarks } from './role-owner.ts';

type Access = Pick<Installation, 'servers'>;

/** Claims or opens a database, unless its server has lost it: then it lets nobody in. */
export async function unlessLost(
  { servers }: Access,
  database: TenantDatabase,
  guid: string,
  work: () => Promise<void>,
): Promise<void> {
  await work().catch(async error => {
    if (!['3D000', '55000'].includes(sqlState(error) ?? '')) throw error;
    const find = (admin: pg.Client) => findRemains(admin, database, guid);
    if ((await withConnection(servers.adminUrl(database.server), find)).exists) throw error;
  });
}

/**
 * Lets nobody into a lost database, should it come back.
 * @throws {OperatorError} when its server has it
 * @throws {RunReplacedError} when a later run has opened or closed it
 */
export async function closeLost({ servers }: Access, lost: TenantDatabase, { guid, epoch }: RunEpoch): Promise<void> {
  const { server, database, role } = lost;
  await withConnection(servers.adminUrl(server), admin =>
    inTransaction(admin, async () => {
      const { hasRole } = await findRemains(admin, lost, guid);
      if (hasRole) await closeRole(admin, { role, guid }, epoch);
      const { exists } = await findRemains(admin, lost, guid);
      if (exists) throw new OperatorError(`Server ${server.name} has database ${database}: nothing was changed`);
    }),
  );
}

/** What a server has of a database and its role. */
export interface Remains {
  /** True if the database exists, and is not half dropped. */
  exists: boolean;
  /** True if the login role belongs to the tenant: another installation may use the same names. */
  hasRole: boolean;
}

/** Returns what a server still has of a database of a tenant. */
export async function findRemains(
  admin: pg.Client,
  { database, role }: { readonly database: string; readonly role: string },
  guid: string,
): Promise<Remains> {
  const { rows } = await admin.query<Remains>(
    `select exists (select from pg_database where datname = $1 and datconnlimit <> -2) as exists,
            exists (select from pg_roles
                     where rolname = $2 and split_part(shobj_description(oid, 'pg_authid'), ' ', 1) = any ($3)) as "hasRole"`,
    [database, role, roleMarks(guid)],
  );
  return rows[0] ?? { exists: false, hasRole: false };
}

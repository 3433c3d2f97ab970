import type pg from 'pg';
import type { ControlStatements, ServerAccess } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import { quoteIdentifier as quote } from '../../../lib/postgres/quote.ts';
import { findRemains, isLost } from '../store/database-names.ts';
import type { TenantDatabase } from '../store/database-store.ts';

/**
 * Claims or opens a database. If its server has lost the database, nothing is to be done: a
 * lost database lets nobody in.
 */
export async function unlessLost(
  { servers }: ServerAccess,
  database: TenantDatabase,
  work: () => Promise<void>,
): Promise<void> {
  await work().catch(async error => {
    if (!['3D000', '55000'].includes(sqlState(error) ?? '')) throw error;
    if (!(await isLostOnServer({ servers }, database))) throw error;
  });
}

/**
 * Lets nobody into a lost database, should it come back: its role, which is still there, may
 * not log in until a run opens the database.
 * @param isLastRun rejects when a later run has begun, which may have opened it
 *   (`requireLastRun`)
 * @throws {OperatorError} when its server has it
 */
export async function closeLost(
  { servers }: ServerAccess,
  lost: TenantDatabase,
  isLastRun: () => Promise<void>,
): Promise<void> {
  const { server, database, role } = lost;

  await withConnection(servers.adminUrl(server), admin =>
    inTransaction(admin, async () => {
      const remains = await findRemains(admin, lost);
      // This waits for a run that opens the database.
      if (remains.role) await admin.query(`alter role ${quote(role)} nologin`);

      if (!isLost(await findRemains(admin, lost))) {
        throw new OperatorError(
          `Server ${server.name} has database ${database}: nothing was changed`,
        );
      }
      await isLastRun();
    }),
  );
}

/**
 * Returns whether a server has lost a database.
 * @throws when the server cannot be queried
 */
export async function isLostOnServer(
  { servers }: ServerAccess,
  database: Pick<TenantDatabase, 'server' | 'database' | 'role'>,
): Promise<boolean> {
  const find = (admin: pg.Client) => findRemains(admin, database);

  return isLost(await withConnection(servers.adminUrl(database.server), find));
}

/** Returns whether a server has lost a database; false when the server cannot be queried. */
export async function hasLost(access: ServerAccess, database: TenantDatabase): Promise<boolean> {
  return isLostOnServer(access, database).catch(() => false);
}

/** Says that the current database of a tenant is lost, and what restores it. */
export function lostText(slug: string, { server }: TenantDatabase): string {
  return `${server.name} has lost the database of ${slug}. Restore it: bin/backoffice restore ${slug} --lost`;
}

/**
 * Returns the server of a tenant, and whether the server has lost the database.
 * @returns undefined as `lost` when the server cannot be queried within seconds
 */
export async function findDatabase(
  { statements, servers }: ServerAccess & ControlStatements,
  guid: string,
): Promise<{ server: string; lost: boolean | undefined }> {
  const { rows } = await statements.query<{
    database: string;
    role: string;
    server: string;
    adminUrl: Buffer | null;
  }>(
    `select database_name as database, role_name as role, s.name as server, admin_url as "adminUrl"
       from tenants t join servers s on s.id = server_id where guid = $1`,
    [guid],
  );
  const [tenant] = rows as [(typeof rows)[number]];
  const { server, adminUrl } = tenant;

  const find = async () =>
    withConnection(
      servers.adminUrl({ name: server, adminUrl }),
      admin => findRemains(admin, tenant),
      {
        kind: 'probe',
      },
    );

  return { server, lost: await find().then(isLost, () => undefined) };
}

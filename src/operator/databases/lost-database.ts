import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { closeRole, type GuardedRun } from './database-guard.ts';
import type { TenantDatabase } from './database-store.ts';
import { inTransaction } from './in-transaction.ts';
import { findRemains } from './remains.ts';

type Access = Pick<Installation, 'servers'>;

/** Returns whether the server of a database does not have it any more. */
export async function isLost({ servers }: Access, database: TenantDatabase, guid: string): Promise<boolean> {
  const { exists } = await withConnection(servers.adminUrl(database.server), admin =>
    findRemains(admin, database, guid),
  );
  return !exists;
}

/**
 * Lets nobody into a lost database, should it come back.
 * @throws {OperatorError} when its server has it
 * @throws {RunReplacedError} when a later run has opened or closed it
 */
export async function closeLost({ servers }: Access, lost: TenantDatabase, { guid, epoch }: GuardedRun): Promise<void> {
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

import type { Server } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { acquireLock, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { shareConnection } from '../../postgres/shared-connection.ts';
import { dropWarmDatabases } from './warm-pool.ts';

/** A digest that no set of migrations has: every warm database has other migrations. */
const noDigest = '';

/**
 * Drops the warm databases of a server. A database that a new tenant claims at the same time stays. Until `pool fill`
 * makes warm databases again, new tenants are copied from the template, which takes longer.
 * @returns the number of dropped databases
 */
export async function drainPool(installation: Installation, server: Server): Promise<number> {
  return withConnection(installation.controlUrl, async connection => {
    await acquireLock(connection, lockSpaces.warm, server.id); // one process at a time changes the pool of a server
    return withConnection(installation.servers.adminUrl(server), admin =>
      dropWarmDatabases(shareConnection(connection), admin, server, noDigest),
    );
  });
}

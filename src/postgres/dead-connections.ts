import type { Socket } from 'node:net';
import type pg from 'pg';

/**
 * Sees to it that no connection holds its place in a pool for longer than it lives. For `driverOptions.onPoolCreated`.
 *
 * A server that has gone without a word (a frozen machine, a lost network) answers no query, not even with the end of its
 * own time limit: after `silenceMs` during a query the connection counts as dead, and the query fails.
 *
 * Kysely gives a connection of a transaction back after COMMIT or ROLLBACK, but on a dead one both fail, and its place
 * would be lost for as long as the process lives. So a dead connection leaves its pool by itself.
 *
 * @param silenceMs longer than the `statement_timeout` of the connections
 */
export function dropDeadConnections(pool: pg.Pool, silenceMs: number): void {
  const inUse = new Set<pg.PoolClient>();
  pool.on('acquire', client => inUse.add(client));
  pool.on('release', (_error, client) => inUse.delete(client));
  pool.on('connect', client => {
    const { stream } = client.connection as unknown as { stream: Socket };
    stream.setTimeout(silenceMs, () => {
      if (inUse.has(client)) stream.destroy();
    });
    client.once('end', () => {
      // A query that this ended gives the connection back by itself, at once; what is in use after that is a transaction.
      setImmediate(() => {
        if (inUse.has(client)) client.release(true);
      });
    });
  });
}

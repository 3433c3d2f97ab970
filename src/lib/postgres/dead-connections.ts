import type { Socket } from 'node:net';
import type pg from 'pg';
import { streamOf } from '../seams/stream-of.ts';
import { PoolError, sqlState } from './database-error.ts';
import { abortClient } from './scram-client.ts';

/**
 * Removes dead connections from a pool, also while they are in use. For
 * `driverOptions.onPoolCreated`.
 *
 * A server may vanish without closing its connections (frozen machine, lost network). Then it
 * does not even report its own `statement_timeout`. So when the server sends nothing for
 * `silenceMs` during a query, the connection is closed and the query rejects. The idle ones are
 * closed with it: otherwise each of them would let one more query wait as long.
 *
 * Kysely releases the connection of a transaction only after COMMIT or ROLLBACK. On a dead
 * connection both fail, and the pool would be one connection smaller for as long as the process
 * lives. So a dead connection is released here.
 *
 * @param pool of `ScramClient`
 * @param silenceMs longer than the `statement_timeout` of the connections
 */
export function removeDeadConnections(pool: pg.Pool, silenceMs: number): void {
  const open = new Set<pg.PoolClient>();
  const inUse = new Set<pg.PoolClient>();
  pool.on('remove', client => open.delete(client));
  pool.on('acquire', client => inUse.add(client));
  pool.on('release', (_error, client) => inUse.delete(client));
  pool.on('connect', client => {
    open.add(client);
    const stream = streamOf(client);
    // A listener, because a callback of `setTimeout` is called once only, and an idle
    // connection is silent too.
    stream.setTimeout(silenceMs).on('timeout', () => {
      if (!inUse.has(client)) return;

      for (const each of open) {
        if (each === client || !inUse.has(each)) {
          abortClient(each, new PoolError('ETIMEDOUT', 'the server sent nothing for too long'));
        }
      }
    });

    client.once('end', () => {
      // A single query rejects, and its caller releases the connection at once. Only a
      // transaction still uses it now.
      setImmediate(() => {
        if (inUse.has(client)) client.release(true);
      });
    });
  });
}

/**
 * Lets a wait for a connection of a pool end with `ETIMEDOUT` when the server has sent nothing
 * on any connection meanwhile: the cause is then the server, and not too many requests.
 * Otherwise the wait ends with `POOL_TIMEOUT`.
 */
export function tellSilence(pool: pg.Pool): void {
  const connect = pool.connect.bind(pool) as () => Promise<pg.PoolClient>;
  const streams = new Set<Socket>();
  let receivedBefore = 0;
  const received = (): number =>
    [...streams].reduce((sum, { bytesRead }) => sum + bytesRead, receivedBefore);

  pool.on('connect', client => {
    const stream = streamOf(client);
    streams.add(stream);
    client.once('end', () => {
      streams.delete(stream);
      receivedBefore += stream.bytesRead;
    });
  });

  pool.connect = (async () => {
    const before = received();
    try {
      return await connect();
    } catch (error) {
      if (sqlState(error) !== 'POOL_TIMEOUT' || received() !== before) throw error;
      throw new PoolError('ETIMEDOUT', 'the server has not answered in time');
    }
  }) as typeof pool.connect;
}

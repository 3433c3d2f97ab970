import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { connectionConfig } from '../postgres/connection.ts';
import { findServer, type RunningServer } from './pid-file.ts';
import { stopServer } from './server-process.ts';
import { serverUrl } from './server-url.ts';

/**
 * An advisory lock that each process that uses the server holds in shared mode. A process that can acquire it
 * exclusively is the last one.
 */
const usersLock = 727_100_001;
const rejoinMs = 200;

/**
 * Opens the connection that makes this process a user of the server. Returns undefined while the server starts or
 * stops.
 */
export async function joinServer({ port }: RunningServer, password: string): Promise<pg.Client | undefined> {
  if (!port) return undefined;
  const client = new pg.Client(connectionConfig(serverUrl(port, password), 'embedded'));
  client.on('error', () => {}); // the running query fails, or 'end' follows
  try {
    await client.connect();
    await client.query('select pg_advisory_lock_shared($1)', [usersLock]);
    return client;
  } catch {
    client.end().catch(() => {});
    return undefined;
  }
}

/**
 * Keeps this process a user of the server: joins again when the connection was cut (a crash of the server, an
 * operator). Without that, the next process that leaves would consider itself the last one and stop the server.
 * @returns a function that leaves the server, and stops it if no other process uses it
 */
export function keepMembership(first: pg.Client, data: string, password: string): () => Promise<void> {
  let client = first;
  let hasLeft = false;
  const rejoinOnEnd = (): void => void client.once('end', rejoin);
  const rejoin = async (): Promise<void> => {
    while (!hasLeft) {
      const server = await findServer(data).catch(() => undefined);
      const joined = server && (await joinServer(server, password));
      if (joined && hasLeft) await joined.end().catch(() => {});
      else if (joined) {
        client = joined;
        return rejoinOnEnd();
      }
      await sleep(rejoinMs, undefined, { ref: false });
    }
  };
  rejoinOnEnd();
  return async () => {
    hasLeft = true;
    try {
      await client.query('select pg_advisory_unlock_shared($1)', [usersLock]);
      const { rows } = await client.query<{ last: boolean }>('select pg_try_advisory_lock($1) as last', [usersLock]);
      if (rows[0]?.last) await stopServer(data);
    } catch {
      // The connection is lost: the server has stopped already.
    } finally {
      await client.end().catch(() => {});
    }
  };
}

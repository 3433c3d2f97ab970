import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { isNotifyFull } from '../../src/lib/postgres/database-error.ts';
import type { DedicatedServer } from './dedicated-server.ts';

/** The setting with which a queue of notifications is full after half a megabyte. */
export const smallNotifyQueue = 'max_notify_queue_pages=64';

/** The channel of the notifications of `fillQueue`. */
const filledChannel = 'elsewhere';

/** A session of another application, in a database of its own. */
export async function connectForeign(
  server: DedicatedServer,
  application: string,
  database = 'reports',
): Promise<pg.Client> {
  const session = new pg.Client({
    connectionString: databaseUrl(server.url, database),
    application_name: application,
  });
  session.on('error', () => {});
  await session.connect();
  return session;
}

/**
 * Lets a session listen and stay in a transaction, so that the queue cannot be emptied: from
 * PostgreSQL 19 on, not by a session that listens to other channels.
 */
export async function holdQueue(session: pg.Client): Promise<void> {
  await session.query(`listen ${filledChannel}`);
  await session.query('begin');
  await session.query('select 1');
}

/**
 * Fills the queue of notifications of the server of a session.
 * @param share of the queue; 1: until the server refuses a notification
 */
export async function fillQueue(session: pg.Client, share: number): Promise<void> {
  for (let number = 0; ; number++) {
    const { rows } = await session.query<{ share: number }>(
      'select pg_notification_queue_usage() as share',
    );
    if (share < 1 && (rows[0]?.share ?? 0) >= share) return;

    try {
      await session.query(`select pg_notify('${filledChannel}', $1)`, [
        `${number}`.padEnd(7_900, 'x'),
      ]);
    } catch (error) {
      if (!isNotifyFull(error)) throw error;
      return;
    }
  }
}

import type pg from 'pg';
import { quoteIdentifier } from './quote.ts';

const maxEndMs = 5_000;

/**
 * Gives a database that nobody uses another name. Sessions of the own login in it are ended first:
 * a pooler in session mode keeps them for the next client.
 * @param client connected to another database of the server
 */
export async function renameDatabase(client: pg.Client, from: string, to: string): Promise<void> {
  await client.query(
    `select pg_terminate_backend(pid, ${maxEndMs}) from pg_stat_activity
      where datname = $1 and usename = current_user`,
    [from],
  );
  await client.query(`alter database ${quoteIdentifier(from)} rename to ${quoteIdentifier(to)}`);
}

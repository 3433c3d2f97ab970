import pg from 'pg';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from './eventually.ts';

interface ReaderOptions {
  readonly application: string;
  /** The statement of the replication protocol, such as `START_REPLICATION SLOT …`. */
  readonly command: string;
}

/**
 * Reads a replication slot, as a standby or a subscription does, and confirms nothing.
 * @param url of the database of a logical slot, with a login that may replicate
 * @returns the connection, when the server counts its process as the reader of a slot
 */
export async function readSlot(
  url: string,
  { application, command }: ReaderOptions,
): Promise<pg.Client> {
  const config = { connectionString: url, application_name: application, replication: 'database' };
  const reader = new pg.Client(config as pg.ClientConfig);
  reader.on('error', () => {});
  await reader.connect();
  let failure: unknown;
  reader.query(command).catch(error => (failure = error)); // goes on until the connection ends

  await withConnection(url, client =>
    eventually(async () => {
      if (failure) throw failure;
      const { rowCount } = await client.query(
        'select from pg_replication_slots s join pg_stat_activity a on a.pid = active_pid where application_name = $1',
        [application],
      );
      return rowCount === 1;
    }),
  );

  return reader;
}

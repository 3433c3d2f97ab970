import pg from 'pg';
import { databaseUrl } from '../../control/server-urls.ts';
import { connectFailure, OperatorError } from '../../log/operator-error.ts';
import { connectionConfig } from '../../postgres/connection.ts';
import { inSnapshot } from '../../postgres/in-transaction.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';

const readOnlySettings = { ...canonicalTextSettings, default_transaction_read_only: 'on' };

/**
 * Runs `work` on a database of a server on which a recovered copy of a server of the installation runs, in one
 * snapshot. Nothing is written there. The connection does not count against the connection budget: the service does not
 * use that server.
 * @param url of any database of the server, with a login that may read all tables
 * @throws {OperatorError} when the server cannot be used
 */
export async function onRecoveredServer<T>(
  url: string,
  database: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client(connectionConfig(databaseUrl(url, database), 'operator', readOnlySettings));
  client.on('error', () => {}); // the running query rejects
  try {
    await client.connect().catch(cause => {
      const reason = connectFailure(cause);
      if (reason === undefined) throw cause;
      throw new OperatorError(`The recovered server cannot be used: ${reason}`, { cause });
    });
    return await inSnapshot(client, () => work(client));
  } finally {
    await client.end().catch(() => {});
  }
}

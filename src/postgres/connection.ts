import pg from 'pg';
import type { Queryable } from './shared-connection.ts';

/** Runs `work` on one connection with the rights of the operator, outside of any pool, and closes it. */
export async function withConnection<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'backoffice-operator',
    connectionTimeoutMillis: 5_000,
  });
  client.on('error', () => {}); // the query that runs fails by itself
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Runs `work` with a few connections: commits that arrive together cost one write to the disk. */
export async function withConnectionPool<T>(
  url: string,
  max: number,
  work: (books: Queryable) => Promise<T>,
): Promise<T> {
  const pool = new pg.Pool({
    connectionString: url,
    application_name: 'backoffice-operator',
    max,
    connectionTimeoutMillis: 5_000,
  });
  pool.on('error', () => {}); // the query that runs fails by itself
  try {
    return await work(pool);
  } finally {
    await pool.end();
  }
}

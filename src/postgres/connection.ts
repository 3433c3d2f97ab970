import pg from 'pg';

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

/** The control database as those see it who work at the same time; `pg.Client` alone takes one question after the other. */
export interface SharedConnection {
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<pg.QueryResult<Row>>;
}

/** Lets several workers ask on one connection, each when it is its turn. */
export function shareConnection(client: pg.Client): SharedConnection {
  let last: Promise<unknown> = Promise.resolve();
  return {
    query: <Row extends pg.QueryResultRow>(text: string, values?: unknown[]) => {
      const answer = last.then(() => client.query<Row>(text, values));
      last = answer.catch(() => {});
      return answer;
    },
  };
}

/** Runs `work` with a few connections: commits that arrive together cost one write to the disk. */
export async function withConnections<T>(
  url: string,
  max: number,
  work: (books: SharedConnection) => Promise<T>,
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

/** Waits for an advisory lock and holds it until the connection ends, also when this process is killed. */
export async function holdLock(client: pg.Client, space: number, key: number): Promise<void> {
  await client.query('select pg_advisory_lock($1, $2)', [space, key]);
}

/** One number for each kind of thing that is locked; the second number says which one. */
export const lockSpaces = {
  control: 727_101,
  template: 727_102,
  slug: 727_103,
  tenant: 727_104,
  warm: 727_105,
  run: 727_110,
};

/** A stable 31-bit number for a text, for the second number of a lock. */
export function lockKey(text: string): number {
  let hash = 0;
  for (const character of text) hash = (hash * 31 + (character.codePointAt(0) ?? 0)) % 2_147_483_647;
  return hash;
}

export const quoteIdentifier = (name: string): string => pg.escapeIdentifier(name);
export const quoteLiteral = (value: string): string => pg.escapeLiteral(value);

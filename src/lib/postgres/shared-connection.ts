import type pg from 'pg';

/**
 * Runs SQL with `$1`, `$2` for its values: a pool, a connection, a transaction of one, or what
 * `shareConnection` has wrapped. This is the way to query outside of requests, whose
 * statements are prepared (`queryControl`, `TableStatements`).
 */
export interface Queryable {
  query<Row extends pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
}

/**
 * Shares one connection, or a pool, between concurrent tasks. Queries are queued: `pg.Client`
 * runs one at a time, and a query that waited for a connection of the pool would fail after the
 * time that connecting may take.
 */
export function shareConnection(client: pg.Client | pg.Pool): Queryable {
  let last: Promise<unknown> = Promise.resolve();
  return {
    query: <Row extends pg.QueryResultRow>(text: string, values?: unknown[]) => {
      const result = last.then(() => client.query<Row>(text, values));
      last = result.catch(() => {});
      return result;
    },
  };
}

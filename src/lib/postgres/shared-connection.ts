import type pg from 'pg';

/**
 * Accepts queries of concurrent tasks: a pool, or a connection that `shareConnection` has
 * wrapped.
 */
export interface Queryable {
  query<Row extends pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
}

/**
 * Shares one connection between concurrent tasks. Queries are queued, because `pg.Client` runs
 * one at a time.
 */
export function shareConnection(client: pg.Client): Queryable {
  let last: Promise<unknown> = Promise.resolve();
  return {
    query: <Row extends pg.QueryResultRow>(text: string, values?: unknown[]) => {
      const result = last.then(() => client.query<Row>(text, values));
      last = result.catch(() => {});
      return result;
    },
  };
}

import type pg from 'pg';
import { textTypes } from './text-types.ts';

/**
 * Runs SQL statements in which each `?` stands for a value: on one connection, on a pool, or
 * with an entity manager.
 */
export interface Statements {
  /**
   * Returns the rows. 64-bit integers, dates and times are strings, as PostgreSQL writes them.
   * @param values strings, numbers, bytes and null
   */
  execute<Rows extends object[]>(
    text: string,
    values?: (string | number | Uint8Array | null)[],
  ): Promise<Rows>;
}

/**
 * Returns the statements of a connection, or of a pool. They are queued, because `pg.Client`
 * runs one at a time. It loads no entity manager, which takes 0.3 s of CPU time.
 */
export function statementsOf(client: pg.Client | pg.Pool): Statements {
  let last: Promise<unknown> = Promise.resolve();
  return {
    execute: <Rows extends object[]>(text: string, values: unknown[] = []) => {
      let placeholders = 0;
      const numbered = text.replaceAll('?', () => `$${++placeholders}`);
      const result = last.then(() => client.query({ text: numbered, values, types: textTypes }));
      last = result.catch(() => {});
      return result.then(({ rows }) => rows as Rows);
    },
  };
}

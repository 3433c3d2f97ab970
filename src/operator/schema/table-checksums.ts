import type pg from 'pg';
import { quoteIdentifier, quoteLiteral } from '../../postgres/quote.ts';
import type { DataTable } from './tenant-tables.ts';

/** The contents of a table in two numbers. */
export interface TableChecksum {
  readonly rows: number;
  /** The sum of a 64-bit hash of each row's text, as a decimal number: the same for every order of the rows. */
  readonly checksum: string;
}

/**
 * Settings of a session whose texts of values are the same on every server: for checksums, and for data as text. JIT
 * compilation costs more than it saves in queries of small tables.
 */
export const canonicalTextSettings: Readonly<Record<string, string>> = {
  timezone: 'UTC',
  datestyle: 'ISO',
  intervalstyle: 'iso_8601',
  extra_float_digits: '1',
  bytea_output: 'hex',
  jit: 'off',
};

/**
 * Counts the rows of tables and computes their checksums, in one statement, and so at one moment. The session has
 * `canonicalTextSettings`. Checksums are comparable between tables with the same columns in the same order.
 * @param tables each with an SQL condition for its rows; all rows count without it
 * @returns the checksums by the name of the table
 */
export async function readTableChecksums(
  client: pg.ClientBase,
  tables: readonly (Pick<DataTable, 'name' | 'columns'> & { readonly where?: string })[],
): Promise<Map<string, TableChecksum>> {
  if (tables.length === 0) return new Map();
  const parts = tables.map(
    ({ name, columns, where = 'true' }) =>
      `select ${quoteLiteral(name)} as name, count(*)::text as rows,
              coalesce(sum(hashtextextended(row(${columns.map(quoteIdentifier).join(', ')})::text, 0)::numeric), 0)::text
                as checksum
         from public.${quoteIdentifier(name)} where ${where}`,
  );
  const { rows } = await client.query<{ name: string; rows: string; checksum: string }>(parts.join(' union all '));
  return new Map(rows.map(row => [row.name, { rows: Number(row.rows), checksum: row.checksum }]));
}

/** Returns the names of the tables whose rows or checksums differ, or that only one database has. */
export function differingTables(
  one: ReadonlyMap<string, TableChecksum>,
  other: ReadonlyMap<string, TableChecksum>,
): string[] {
  const names = [...new Set([...one.keys(), ...other.keys()])];
  return names.filter(name => {
    const [first, second] = [one.get(name), other.get(name)];
    return first?.rows !== second?.rows || first?.checksum !== second?.checksum;
  });
}

import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { copyOut } from '../../../lib/postgres/copy-out.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import { quoteIdentifier } from '../../../lib/postgres/quote.ts';
import {
  copyList,
  type DataTable,
  differingTables,
  listDataTables,
  readTableChecksums,
  type TableChecksum,
} from '../../schema/tenant-tables.ts';
import { readSequences, setSequences, truncate, withoutTriggers } from './replace-tables.ts';

/**
 * A table, and the facts that its data is compared with: those of a database at one moment, or
 * of an archive.
 */
export interface StoredTable extends TableChecksum {
  name: string;
  columns: string[];
  /** The types of the columns, as PostgreSQL names them. */
  types: string[];
  sequences: { column: string; name: string; lastValue: string; isCalled: boolean }[];
}

/**
 * Returns the tables of a database in the snapshot of the connection, which has
 * `canonicalTextSettings`.
 */
async function readTables(client: pg.Client, except: readonly string[]): Promise<StoredTable[]> {
  const tables = await listDataTables(client, except);
  const checksums = await readTableChecksums(client, tables);
  const states = new Map((await readSequences(client, tables)).map(state => [state.name, state]));

  return tables.map(({ name, columns, types, sequences }) => ({
    name,
    columns: [...columns],
    types: [...types],
    ...(checksums.get(name) ?? { rows: 0, checksum: '0' }),
    sequences: sequences.map(each => ({
      ...each,
      ...(states.get(each.name) ?? { lastValue: '1', isCalled: false }),
    })),
  }));
}

/**
 * Replaces all data of a database, at the version of the data, by these tables, and compares
 * rows and checksums. Tables and columns that no migration has made are added: `doctor` reports
 * them. All in one transaction: nothing is changed unless everything is right. The session has
 * `canonicalTextSettings`.
 * @param contents the rows of each table, as `copy` reads them with these options; without
 *   options in text format
 * @param explain returns the error that names the tables that differ
 * @returns whether it has added any table or column
 */
export async function fillTables(
  target: pg.Client,
  tables: readonly StoredTable[],
  contents: AsyncIterable<{ table: StoredTable; rows: AsyncIterable<Buffer>; options?: string }>,
  explain: (tables: string) => Error,
): Promise<boolean> {
  const fill = async (): Promise<void> => {
    await truncate(target, tables, 'cascade');
    for await (const { table, rows, options = '' } of contents) {
      if (table.rows > 0) {
        await pipeline(
          rows,
          target.query(copyFrom(`copy ${copyList(table)} from stdin ${options}`)),
        );
      }
    }
  };

  return inTransaction(target, async () => {
    const isChanged = await addMissingColumns(target, tables);
    await withoutTriggers(target, tables, fill, 'foreign keys');
    await setSequences(
      target,
      tables.flatMap(({ sequences }) => sequences),
    );

    const expected = new Map(tables.map(table => [table.name, table]));
    const different = differingTables(expected, await readTableChecksums(target, tables));
    if (different.length > 0) throw explain(different.join(', '));

    return isChanged;
  });
}

/**
 * Fills a database with the tables of another one.
 * @param from in a snapshot, with `canonicalTextSettings`
 * @param except tables that are not copied
 * @returns as `fillTables`
 * @throws {OperatorError} when the copy differs from the original
 */
export async function copyTables(
  from: pg.Client,
  target: pg.Client,
  except: readonly string[],
): Promise<boolean> {
  const tables = await readTables(from, except);
  const contents = async function* () {
    for (const table of tables) {
      yield { table, rows: copyOut(from, `copy ${copyList(table)} to stdout`) };
    }
  };
  const explain = (names: string) =>
    new OperatorError(`the copy differs from the original: ${names}`);
  return fillTables(target, tables, contents(), explain);
}

/**
 * Adds the tables and columns that a database lacks; a type that it lacks becomes text.
 * @returns whether it has added any
 */
export async function addMissingColumns(
  client: pg.Client,
  tables: readonly Pick<DataTable, 'name' | 'columns' | 'types'>[],
): Promise<boolean> {
  const { rows } = await client.query<{ table: string; column: string | null; type: string }>(
    `select name as table, "column", coalesce(to_regtype(type)::text, 'text') as type
       from json_to_recordset($1) as t (name text, columns text[], types text[])
       left join unnest(columns, types) as c ("column", type) on true
      where case when "column" is null then to_regclass('public.' || quote_ident(name)) is null
                 else not exists (select from pg_attribute
                                   where attrelid = to_regclass('public.' || quote_ident(name)) and attname = "column") end`,
    [JSON.stringify(tables.map(({ name, columns, types }) => ({ name, columns, types })))],
  );
  for (const { table, column, type } of rows) {
    await client.query(`create table if not exists public.${quoteIdentifier(table)} ()`);
    if (column === null) continue;

    await client.query(
      `alter table public.${quoteIdentifier(table)} add ${quoteIdentifier(column)} ${type}`,
    );
  }
  return rows.length > 0;
}

import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { copyList, type DataTable, identityTables, listDataTables } from '../tenant-tables.ts';

/** Imports belong to the tenant that received their files, and are not copied to another one. */
const importTables = ['imports', 'import_chunks'];

/**
 * Replaces all data of one database by the data that another one with the same schema has. The source is only read, in
 * the caller's snapshot; the target changes in the caller's transaction.
 * @param except tables that stay empty
 */
export async function copyData(
  source: pg.Client,
  target: pg.Client,
  except: readonly string[] = importTables,
): Promise<void> {
  const tables = await listDataTables(source, [...identityTables, ...except]);
  const quoted = tables.map(({ name }) => quoteIdentifier(name));
  // The copy is not a change by a user: it writes no audit entries, and replaces the rows of append-only tables.
  for (const table of quoted) await target.query(`alter table ${table} disable trigger user`);
  await target.query(`truncate ${quoted.join(', ')} cascade`);
  for (const table of tables) await copyTable(source, target, table);
  for (const table of quoted) await target.query(`alter table ${table} enable trigger user`);
}

async function copyTable(source: pg.Client, target: pg.Client, table: DataTable): Promise<void> {
  await pipeline(
    source.query(copyTo(`copy ${copyList(table)} to stdout (format binary)`)),
    target.query(copyFrom(`copy ${copyList(table)} from stdin (format binary)`)),
  );
  // A sequence goes on where that of the source is: the number of a deleted row is not given again.
  for (const { name } of table.sequences) {
    const { rows: states } = await source.query<{ last: string; called: boolean }>(
      `select last_value as last, is_called as called from ${quoteIdentifier(name)}`,
    );
    const state = [quoteIdentifier(name), states[0]?.last, states[0]?.called];
    await target.query('select setval($1::regclass, $2::bigint, $3)', state);
  }
}

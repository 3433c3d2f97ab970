import type pg from 'pg';
import { identityTables, listDataTables } from '../schema/tenant-tables.ts';
import { copyRows, copySequences, truncate, withoutTriggers } from './replace-tables.ts';

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
  const copy = async (): Promise<void> => {
    await truncate(target, tables, 'cascade');
    for (const table of tables) await copyRows({ source, target }, table);
  };
  await withoutTriggers(target, tables, copy, 'foreign keys');
  await copySequences({ source, target }, tables);
}

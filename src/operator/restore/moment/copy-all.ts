import type pg from 'pg';
import { copyData } from '../../provisioning/copy-data.ts';
import { differingTables, readTableChecksums } from '../../table-checksums.ts';
import { listDataTables } from '../../tenant-tables.ts';

/**
 * Copies all tables of a database of a scratch server in one transaction, and compares them. Nobody else uses the
 * scratch server.
 * @param except tables that are not copied
 */
export async function copyAll(from: pg.Client, target: pg.Client, except: readonly string[]): Promise<void> {
  await target.query('begin');
  await copyData(from, target, except);
  const tables = await listDataTables(from, except);
  const [expected, found] = [await readTableChecksums(from, tables), await readTableChecksums(target, tables)];
  const different = differingTables(expected, found);
  if (different.length > 0) throw new Error(`the copies of these tables are not equal: ${different.join(', ')}`);
  await target.query('commit');
}

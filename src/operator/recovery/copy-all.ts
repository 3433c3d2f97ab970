import type pg from 'pg';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { compareRows, copyData } from '../databases/replace-tables.ts';
import { listDataTables } from '../schema/tenant-tables.ts';

/**
 * Copies all tables of a database in one transaction of the target, and compares them. Both connections have
 * `canonicalTextSettings`, and that of the source is within a snapshot.
 * @param except tables that are not copied
 * @throws {OperatorError} when the copy differs from the original
 */
export async function copyAll(from: pg.Client, target: pg.Client, except: readonly string[]): Promise<void> {
  await inTransaction(target, async () => {
    await copyData(from, target, except);
    await compareRows({ source: from, target }, await listDataTables(from, except));
  });
}

import type pg from 'pg';
import { OperatorError } from '../../log/operator-error.ts';
import { readTableFingerprints } from '../../postgres/change-counters.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { inSnapshot } from '../../postgres/in-transaction.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { type DataTable, identityTables, listDataTables } from '../schema/tenant-tables.ts';
import type { CopiedTables } from './copied-tables.ts';
import { type CopiedPrefix, copyAhead, findNumberedTables, rowsAfter } from './copy-ahead.ts';
import { changeInEpoch } from './database-stamp.ts';
import { describe, findMissing } from './missing-data.ts';
import {
  type CopyEnds,
  compareRows,
  copyRows,
  copySequences,
  replaceTables,
  requireSameTables,
  truncate,
  withoutTriggers,
} from './replace-tables.ts';

/** The last rows are few: more are copied before the fence. */
const maxLastRows = 500;
const maxRounds = 10;

/**
 * Replaces the data of the target by those of the source, and compares them. The source is only read, and is served
 * meanwhile. Append-only tables come first, in ranges, as they may be large; all others are those of one moment.
 */
export async function copyAll(copyEnds: CopyEnds): Promise<CopiedTables> {
  const { source, target, run } = copyEnds;
  const tables = await listDataTables(source, identityTables);
  await requireSameTables(tables, target);
  const numbered = await findNumberedTables(source, tables);
  const before = await readTableFingerprints(source);
  await changeInEpoch(target, run, () => withoutTriggers(target, tables, () => truncate(target, tables)));
  const prefixes = await copyAhead(copyEnds, numbered);
  const others = tables.filter(({ name }) => !prefixes.has(name));
  const fingerprints = await readTableFingerprints(source);
  for (const { name } of numbered) {
    const first = before.get(name);
    if (first) fingerprints.set(name, first);
    else fingerprints.delete(name);
  }
  return inSnapshot(source, async () => {
    const replaced = await changeInEpoch(target, run, () => replaceTables(copyEnds, others));
    await target.query('analyze');
    return { tables, numbered, prefixes, fingerprints, ...replaced };
  });
}

/** Copies rows that were appended meanwhile, until few are missing. The tenant is served. */
export async function catchUp(copyEnds: CopyEnds, copied: CopiedTables): Promise<CopiedTables> {
  let { prefixes } = copied;
  for (let round = 0; round < maxRounds; round++) {
    const before = rowsAhead(prefixes);
    prefixes = await copyAhead(copyEnds, copied.numbered, prefixes);
    if (rowsAhead(prefixes) - before <= maxLastRows) break;
  }
  return { ...copied, prefixes };
}

/**
 * Copies what is missing since `copyAll`, and all sequences, and compares it. The source is closed, and no session of
 * the tenant's login exists any more. So the counters prove which tables have not changed (`isProvedUnchanged`). While a
 * session of another login exists (psql), they prove nothing, and everything is copied again. Nobody changes the source until the caller ends the
 * transaction that this function leaves open there: its tables are locked.
 * @param role of the tenant in the source
 * @param maxMs maximum estimated time
 * @throws {OperatorError} when another login changes the source, or when too much is missing
 */
export async function copyMissing(
  copyEnds: CopyEnds,
  copied: CopiedTables,
  { role, maxMs }: { role: string; maxMs: number },
): Promise<void> {
  const { source, target, run } = copyEnds;
  await source.query('begin isolation level repeatable read');
  await lockTables(source, copied.tables);
  const missing = await findMissing(source, copied, role);
  if (missing.estimatedMs > maxMs)
    throw new OperatorError(`much has changed since the first copy: ${describe(missing)}`);
  await changeInEpoch(target, run, async () => {
    await replaceTables(copyEnds, missing.whole);
    const ends = missing.ends.map(table => rowsAfter(table, copied.prefixes.get(table.name) as CopiedPrefix));
    await withoutTriggers(target, ends, async () => {
      for (const end of ends) await copyRows(copyEnds, end);
    });
    await compareRows(copyEnds, ends);
    await copySequences(copyEnds, copied.tables);
  });
}

/** Returns the number of rows that were copied ahead. */
export function rowsAhead(prefixes: CopiedTables['prefixes']): number {
  return [...prefixes.values()].reduce((sum, { rows }) => sum + rows, 0);
}

async function lockTables(source: pg.Client, tables: readonly DataTable[]): Promise<void> {
  const names = tables.map(({ name }) => quoteIdentifier(name)).join(', ');
  await source.query(`lock table ${names} in share mode`).catch(error => {
    if (sqlState(error) !== '55P03') throw error;
    throw new OperatorError(
      'Another login changes tables of the tenant database, and did not finish within 2 s. ' +
        'End it (select * from pg_stat_activity), and run the command again',
    );
  });
}

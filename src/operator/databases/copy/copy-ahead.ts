import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { quoteIdentifier, quoteLiteral } from '../../../lib/postgres/quote.ts';
import { readOtherSessions, sessionsText } from '../../schema/other-sessions.ts';
import { appendOnlyTables, type DataTable } from '../../schema/tenant-tables.ts';
import { changeInEpoch } from '../store/database-stamp.ts';
import {
  type CopyEnds,
  compareRows,
  copyRows,
  type TablePart,
  withoutTriggers,
} from './replace-tables.ts';

/** An append-only table whose rows are numbered by a sequence. */
export interface NumberedTable extends DataTable {
  /** The column with the number. */
  readonly key: string;
  readonly sequence: string;
}

/** The rows of a numbered table that the target has. */
export interface CopiedPrefix {
  /**
   * The target has all rows up to this number, and no row of the source with such a number will
   * ever change.
   */
  readonly upTo: number;
  readonly rows: number;
  /** The milliseconds that the tables took to copy and to compare. */
  readonly copyMs: number;
}

/**
 * Rows of a range. A range takes some 40 ms, and the copy then pauses for three times as long,
 * because nothing else limits its load on the two servers, which may be on the same machine: at
 * least three quarters of the time are left to other tenants.
 */
const rowsPerRange = 1_000;
const pausePerCopy = 3;
const maxTransactionMs = 120_000;
const pollMs = 20;

/**
 * Returns the append-only tables whose rows can be copied before the fence: their numbers are
 * drawn from a sequence in ascending order, and they do not refer to other tables, with which
 * they would have to be replaced.
 */
export async function findNumberedTables(
  source: pg.Client,
  tables: readonly DataTable[],
): Promise<NumberedTable[]> {
  const { rows } = await source.query<{ name: string; key: string; sequence: string }>(
    `select c.relname as name, a.attname as key, s.relname as sequence
       from pg_class c
       join pg_index i on i.indrelid = c.oid and indisprimary and indnkeyatts = 1
       join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0] and attidentity = 'a'
       join pg_depend d on d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
        and d.refobjid = c.oid and d.refobjsubid = a.attnum and d.deptype = 'i'
       join pg_class s on s.oid = d.objid and s.relkind = 'S'
       join pg_sequence q on q.seqrelid = s.oid and seqincrement > 0 and seqcache = 1 and not seqcycle
      where c.relnamespace = 'public'::regnamespace and c.relname = any ($1)
        and not exists (select from pg_constraint where conrelid = c.oid and contype = 'f')`,
    [appendOnlyTables],
  );
  return rows.flatMap(({ name, key, sequence }) => {
    const table = tables.find(each => each.name === name);
    return table ? [{ ...table, key, sequence }] : [];
  });
}

/**
 * Copies and compares the rows of numbered tables that are missing in the target, in ranges,
 * while the tenant is served.
 *
 * A row of an append-only table does not change once it is written, so a row that was copied
 * need not be copied again. (Its counters of updates and deletes are compared behind the
 * fence.) Rows may commit in another order than that of their numbers, so the greatest visible
 * number says nothing about smaller ones. A number `last` is found instead, up to which no row
 * will ever appear:
 *
 *   I1 (draw) The number of a row is drawn from the sequence by the transaction that inserts
 *      the row. From before the draw until its end, the transaction has a lock on the sequence
 *      (`RowExclusiveLock`).
 *   I2 (end) A transaction releases its locks after its changes have become visible to new
 *      snapshots.
 *
 *   1. `last` is the last number that was drawn. A transaction that draws later draws a greater
 *      one.
 *   2. So a row up to `last` is inserted only by a transaction that drew before `last` was
 *      read. By I1, it is among those that have a lock on the sequence after that, or it has
 *      ended.
 *   3. When all of these have ended, a new snapshot sees, by I2, all rows up to `last` that
 *      will ever exist.
 *
 * I1 does not hold for a row whose number an operator chooses (`overriding system value`,
 * `copy`): such a row must not be inserted during a move.
 *
 * @returns the rows that the target then has, by the name of the table
 * @throws {OperatorError} when a transaction does not end
 */
export async function copyAhead(
  copyEnds: CopyEnds,
  tables: readonly NumberedTable[],
  copied: ReadonlyMap<string, CopiedPrefix> = new Map(),
): Promise<Map<string, CopiedPrefix>> {
  const bounds = await finalNumbers(copyEnds.source, tables);
  const result = new Map<string, CopiedPrefix>();
  for (const table of tables) {
    let prefix = copied.get(table.name) ?? { upTo: 0, rows: 0, copyMs: 0 };
    for (const bound = bounds.get(table.name) ?? 0; prefix.upTo < bound; ) {
      const startedAt = performance.now();
      const upTo = await endOfRange(copyEnds.source, table, prefix.upTo, bound);
      const rows = await copyRange(copyEnds, table, prefix.upTo, upTo);
      const copyMs = performance.now() - startedAt;
      prefix = { upTo, rows: prefix.rows + rows, copyMs: prefix.copyMs + copyMs };
      await sleep(pausePerCopy * copyMs);
    }
    result.set(table.name, prefix);
  }

  return result;
}

/** The rows of a table that were written after a copied prefix. */
export function rowsAfter(table: NumberedTable, { upTo }: CopiedPrefix): TablePart {
  return { ...table, where: `${quoteIdentifier(table.key)} > ${upTo}` };
}

/** @returns by the name of the table, a number up to which no more rows will appear */
async function finalNumbers(
  source: pg.Client,
  tables: readonly NumberedTable[],
): Promise<Map<string, number>> {
  if (tables.length === 0) return new Map();
  const selects = tables.map(
    ({ name, sequence }) =>
      `select ${quoteLiteral(name)} as name, last_value - (not is_called)::int as last from public.${quoteIdentifier(sequence)}`,
  );
  const { rows } = await source.query<{ name: string; last: string }>(selects.join(' union all '));
  await awaitDraws(
    source,
    tables.map(({ sequence }) => sequence),
  );
  return new Map(rows.map(({ name, last }) => [name, Number(last)]));
}

/** Waits until every transaction has ended that has drawn from one of the sequences. */
async function awaitDraws(source: pg.Client, sequences: readonly string[]): Promise<void> {
  const draws = `pg_locks where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
      and database = (select oid from pg_database where datname = current_database())
      and relation in (select oid from pg_class where relnamespace = 'public'::regnamespace and relname = any ($1))`;

  const { rows } = await source.query<{ id: string }>(
    `select distinct virtualtransaction as id from ${draws}`,
    [sequences],
  );
  const ids = rows.map(({ id }) => id);

  for (const deadline = performance.now() + maxTransactionMs; ids.length > 0; await sleep(pollMs)) {
    const { rowCount } = await source.query(
      `select from ${draws} and virtualtransaction = any ($2)`,
      [sequences, ids],
    );
    if (rowCount === 0) return;

    if (performance.now() > deadline) {
      const { rows: holders } = await source.query<{ pid: number }>(
        `select distinct pid from ${draws} and virtualtransaction = any ($2)`,
        [sequences, ids],
      );
      const pids = new Set(holders.map(({ pid }) => pid));
      const sessions = await readOtherSessions(source, source.database ?? '');

      throw new OperatorError(
        `A transaction in the tenant database has not ended within ${maxTransactionMs / 1_000} s: ` +
          `${sessionsText(sessions.filter(({ pid }) => pids.has(pid)))}. Wait until it has, and run the command again. ` +
          'Or let the command end sessions of others: --end-sessions',
      );
    }
  }
}

async function endOfRange(
  source: pg.Client,
  { name, key }: NumberedTable,
  after: number,
  bound: number,
) {
  const column = quoteIdentifier(key);
  const { rows } = await source.query<{ end: string }>(
    `select ${column} as end from ${quoteIdentifier(name)} where ${column} > $1 and ${column} <= $2
      order by ${column} offset ${rowsPerRange - 1} limit 1`,
    [after, bound],
  );
  return Number(rows[0]?.end ?? bound);
}

/** @returns the number of rows */
function copyRange(
  copyEnds: CopyEnds,
  table: NumberedTable,
  after: number,
  upTo: number,
): Promise<number> {
  const column = quoteIdentifier(table.key);
  const part = { ...table, where: `${column} > ${after} and ${column} <= ${upTo}` };
  return changeInEpoch(copyEnds.target, copyEnds.run, async () => {
    await withoutTriggers(copyEnds.target, [table], () => copyRows(copyEnds, part));
    return compareRows(copyEnds, [part], { inTurn: true });
  });
}

import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { copyOut } from '../../../lib/postgres/copy-out.ts';
import { quoteIdentifier, quoteLiteral } from '../../../lib/postgres/quote.ts';
import {
  copyList,
  type DataTable,
  differingTables,
  readTableChecksums,
} from '../../schema/tenant-tables.ts';
import type { RunEpoch } from '../store/database-stamp.ts';

/** Two databases, one of which gets the data of the other one. */
interface Ends {
  readonly source: pg.Client;
  readonly target: pg.Client;
}

/**
 * The two databases of a move, with `canonicalTextSettings`, and the run that copies from one
 * to the other.
 */
export interface CopyEnds extends Ends {
  readonly run: RunEpoch;
}

/** Rows of a table. */
export interface TablePart extends DataTable {
  /** SQL condition of the rows; all without it. */
  readonly where?: string;
}

/**
 * Runs `work` in the transaction of the target, in which no trigger of these tables fires: a
 * copy is no change by a user, writes no audit entries, and replaces the rows of append-only
 * tables. A superuser, or a login that has the privilege, switches all triggers off at once,
 * also those of foreign keys, which hold because they hold in the source.
 * @param except `foreign keys`: these are checked in any case
 */
export async function withoutTriggers(
  target: pg.Client,
  tables: readonly Pick<DataTable, 'name'>[],
  work: () => Promise<void>,
  except?: 'foreign keys',
): Promise<void> {
  if (tables.length === 0) return work();

  const privilege = `select has_parameter_privilege('session_replication_role', 'set') as may`;
  const mayAll =
    except === undefined && (await target.query<{ may: boolean }>(privilege)).rows[0]?.may;

  const all = (change: string) =>
    tables
      .map(({ name }) => `alter table ${quoteIdentifier(name)} ${change} trigger user`)
      .join('; ');

  const [off, on] = mayAll
    ? [
        'set local session_replication_role = replica',
        'set local session_replication_role = origin',
      ]
    : [all('disable'), all('enable')];

  await target.query(off);
  await work();
  await target.query(on);
}

/**
 * Replaces the rows of tables within a transaction of each database, and compares them.
 * @returns the number of rows, and how long each table took, in ms
 * @throws {OperatorError} when the copy differs from the original
 */
export async function replaceTables(
  copyEnds: CopyEnds,
  tables: readonly DataTable[],
): Promise<{ rows: number; durations: Map<string, number> }> {
  const durations = new Map<string, number>();
  let rows = 0;
  await withoutTriggers(copyEnds.target, tables, async () => {
    await truncate(copyEnds.target, tables);
    for (const table of tables) {
      const startedAt = performance.now();
      await copyRows(copyEnds, table);
      rows += await compareRows(copyEnds, [table]);
      durations.set(table.name, performance.now() - startedAt);
    }
  });

  return { rows, durations };
}

/**
 * Deletes all rows of tables, in the transaction of the target.
 * @param more `cascade`: also those of the tables that refer to them
 */
export async function truncate(
  target: pg.Client,
  tables: readonly Pick<DataTable, 'name'>[],
  more: 'cascade' | '' = '',
): Promise<void> {
  const names = tables.map(({ name }) => quoteIdentifier(name)).join(', ');
  if (names) await target.query(`truncate ${names} ${more}`);
}

/** Copies rows that the target does not have yet. */
export async function copyRows(
  { source, target }: Ends,
  { where, ...table }: TablePart,
): Promise<void> {
  const from = where
    ? `(select ${table.columns.map(quoteIdentifier).join(', ')} from ${quoteIdentifier(table.name)} where ${where})`
    : copyList(table);
  await pipeline(
    copyOut(source, `copy ${from} to stdout (format binary)`),
    target.query(copyFrom(`copy ${copyList(table)} from stdin (format binary)`)),
  );
}

/**
 * Compares rows of both databases.
 * @param inTurn reads one database after the other, which leaves a processor to others if both
 *   are on one machine
 * @returns the number of rows
 * @throws {OperatorError} when they differ
 */
export async function compareRows(
  { source, target }: Ends,
  parts: readonly TablePart[],
  { inTurn = false } = {},
): Promise<number> {
  const expecting = readTableChecksums(source, parts);
  if (inTurn) await expecting;
  const [expected, found] = await Promise.all([expecting, readTableChecksums(target, parts)]);
  const differing = differingTables(expected, found);
  if (differing.length > 0) {
    throw new OperatorError(`the copy differs from the original: ${differing.join(', ')}`);
  }
  return [...expected.values()].reduce((sum, table) => sum + table.rows, 0);
}

/** `isCalled`: the next number comes after `lastValue` (`setval`). */
type SequenceState = Readonly<{ name: string; lastValue: string; isCalled: boolean }>;

/**
 * Reads the state of all sequences of tables. It is the present state, not that of a snapshot,
 * and so at least as high as the rows need.
 */
export async function readSequences(
  client: pg.Client,
  tables: readonly DataTable[],
): Promise<SequenceState[]> {
  const names = tables.flatMap(({ sequences }) => sequences.map(({ name }) => name));
  if (names.length === 0) return [];
  const selects = names.map(
    name =>
      `select ${quoteLiteral(name)} as name, last_value::text as "lastValue", is_called as "isCalled"
         from public.${quoteIdentifier(name)}`,
  );
  return (await client.query<SequenceState>(selects.join(' union all '))).rows;
}

/**
 * Sets sequences of the target to these values; it lacks those of columns that were added by
 * hand.
 */
export async function setSequences(
  target: pg.Client,
  sequences: readonly SequenceState[],
): Promise<void> {
  await target.query(
    `select setval(sequence, "lastValue", "isCalled")
       from json_to_recordset($1) as s (name text, "lastValue" bigint, "isCalled" boolean),
            to_regclass('public.' || quote_ident(name)) as sequence where sequence is not null`,
    [JSON.stringify(sequences)],
  );
}

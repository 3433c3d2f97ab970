import type pg from 'pg';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { readTableFingerprints } from '../../../lib/postgres/change-counters.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { quoteIdentifier } from '../../../lib/postgres/quote.ts';
import { holdImports } from '../../../sales/imports/import-lock.ts';
import {
  endOtherSessions,
  type OtherSession,
  readOtherSessions,
} from '../../schema/other-sessions.ts';
import { inSnapshot } from '../../schema/snapshot.ts';
import { type DataTable, identityTables, listDataTables } from '../../schema/tenant-tables.ts';
import { changeInEpoch } from '../store/database-stamp.ts';
import type { RunFacts } from '../store/database-store.ts';
import { type CopiedPrefix, copyAhead, findNumberedTables, rowsAfter } from './copy-ahead.ts';
import { addMissingColumns } from './fill-tables.ts';
import { type CopiedTables, describe, findMissingData } from './missing-data.ts';
import {
  type CopyEnds,
  compareRows,
  copyRows,
  replaceTables,
  truncate,
  withoutTriggers,
} from './replace-tables.ts';

/** The time that the fence takes beside the copy of the changed tables, in ms. */
export const fenceMs = 150;
/** Maximum rows that are left for the time behind the fence: more are copied before it. */
const maxLastRows = 500;
const maxRounds = 10;

/** The two databases of a copy, and the run that copies. */
interface LiveCopyOptions extends CopyEnds {
  /** The login role of the tenant in the source. */
  readonly role: string;
  /** Maximum estimated wait of requests, in ms. */
  readonly maxPauseMs: number;
  /** True to end sessions of others in the source. */
  readonly endSessions: boolean;
}

/**
 * Copies the data of a served tenant to another database: first all of it, then new rows, and
 * the rest behind a fence.
 */
export class LiveCopy {
  readonly #options: LiveCopyOptions;
  #copied: CopiedTables | undefined;

  constructor(options: LiveCopyOptions) {
    this.#options = options;
  }

  /**
   * Replaces the data of the target by those of the source, and compares them, which shows how
   * long the tables that change will take behind the fence. Append-only tables come first, in
   * ranges, as they may be large; all others are copied as they are at one moment.
   */
  async copyAll(): Promise<RunFacts> {
    const startedAt = performance.now();
    const { source, target, run } = this.#options;
    const tables = await listDataTables(source, identityTables);
    const numbered = await findNumberedTables(source, tables);
    const before = await readTableFingerprints(source);

    await changeInEpoch(target, run, async () => {
      await addMissingColumns(target, tables);
      await withoutTriggers(target, tables, () => truncate(target, tables));
    });

    const prefixes = await copyAhead(this.#options, numbered);
    const others = tables.filter(({ name }) => !prefixes.has(name));
    const fingerprints = await readTableFingerprints(source);

    for (const { name } of numbered) {
      const first = before.get(name);
      if (first) fingerprints.set(name, first);
      else fingerprints.delete(name);
    }

    const { rows, durations } = await inSnapshot(source, async () => {
      await requireSameTables(source, tables);
      const replaced = await changeInEpoch(target, run, () => replaceTables(this.#options, others));
      await analyze(target, tables);
      return replaced;
    });

    this.#copied = { tables, numbered, prefixes, fingerprints, durations };
    const { rows: size } = await source.query<{ bytes: string }>(
      'select pg_database_size(current_database()) as bytes',
    );

    return {
      bytes: Number(size[0]?.bytes),
      rows: rows + rowsAhead(prefixes),
      copyMs: performance.now() - startedAt,
    };
  }

  /**
   * Copies the rows that were appended meanwhile, until few are missing.
   * @throws {OperatorError} when requests would wait for too long
   */
  async copyAhead(): Promise<void> {
    const { source, maxPauseMs } = this.#options;
    // Otherwise requests would wait for the rows that an import writes meanwhile.
    await holdImports(source);
    const copied = this.#present();

    for (let round = 0; round < maxRounds; round++) {
      const before = rowsAhead(copied.prefixes);
      copied.prefixes = await copyAhead(this.#options, copied.numbered, copied.prefixes);
      if (rowsAhead(copied.prefixes) - before <= maxLastRows) break;
    }

    const missing = await findMissingData(source, copied, await this.#othersLeft());
    const pauseMs = fenceMs + missing.estimatedMs;
    if (pauseMs > maxPauseMs) {
      throw new OperatorError(
        `Requests of the tenant would wait for about ${(pauseMs / 1_000).toFixed(1)} s, because ${describe(missing)}; ` +
          `at most ${maxPauseMs / 1_000} s are allowed. Move it at a quieter time, or accept a longer wait: ` +
          `--pause ${Math.ceil((1.5 * pauseMs) / 1_000)}`,
      );
    }
  }

  /**
   * Copies the changes since `copyAll`, and compares the result; `carry numbers` follows, which
   * sets the sequences. The source is closed, and no session of the tenant's login exists any
   * more, so the counters prove which tables have not changed (`isProvedUnchanged`). While a
   * session of another login exists (psql), they prove nothing, and everything is copied again.
   * A transaction that is left open in the source locks its tables, so a session that begins
   * after the lock changes nothing, and does not count.
   * @throws {OperatorError} when another login changes the source, or when too much is missing
   */
  async copyChanges(): Promise<void> {
    const { source, target, run, role, maxPauseMs, endSessions } = this.#options;

    const copied = this.#present();
    // The locks come before the snapshot, which the next statement takes (`beginSnapshot`).
    await source.query('begin isolation level repeatable read');
    await lockTables(source, copied.tables);
    await requireSameTables(source, copied.tables);

    const database = source.database ?? '';
    const others = await (endSessions ? endOtherSessions : readOtherSessions)(source, database, [
      role,
    ]);

    const missing = await findMissingData(source, copied, others);
    if (missing.estimatedMs > maxPauseMs) {
      throw new OperatorError(`much has changed since the first copy: ${describe(missing)}`);
    }

    await changeInEpoch(target, run, async () => {
      await replaceTables(this.#options, missing.whole);
      const ends = missing.ends.map(table =>
        rowsAfter(table, copied.prefixes.get(table.name) as CopiedPrefix),
      );
      await withoutTriggers(target, ends, async () => {
        for (const end of ends) await copyRows(this.#options, end);
      });

      await compareRows(this.#options, ends);
    });
  }

  /**
   * Ends the transaction that `copyChanges` leaves open in the source, with its locks. Nothing
   * is read from the source any more.
   */
  async release(): Promise<void> {
    await this.#options.source.query('rollback');
  }

  /** Returns the sessions of others that would remain behind the fence. */
  async #othersLeft(): Promise<readonly OtherSession[]> {
    const { source, role, endSessions } = this.#options;
    const others = await readOtherSessions(source, source.database ?? '', [role]);
    return endSessions ? others.filter(({ mayEnd }) => !mayEnd) : others;
  }

  #present(): CopiedTables {
    if (!this.#copied) throw new Error('nothing has been copied');
    return this.#copied;
  }
}

function rowsAhead(prefixes: CopiedTables['prefixes']): number {
  return [...prefixes.values()].reduce((sum, { rows }) => sum + rows, 0);
}

/**
 * Lets the planner know the sizes of the copied tables. They are named, because the server
 * warns of each catalog that a login without superuser rights may not analyze.
 */
async function analyze(target: pg.Client, tables: readonly DataTable[]): Promise<void> {
  await target.query(`analyze ${namesOf(tables)}`);
}

function namesOf(tables: readonly DataTable[]): string {
  return tables.map(({ name }) => quoteIdentifier(name)).join(', ');
}

async function lockTables(source: pg.Client, tables: readonly DataTable[]): Promise<void> {
  await source.query(`lock table ${namesOf(tables)} in share mode`).catch(cause => {
    throw sqlState(cause) === undefinedTable ? changedTables([], { cause }) : cause;
  });
}

const undefinedTable = '42P01';

/**
 * @throws {OperatorError} when the source has other tables or columns than those that the copy
 *   has begun with: somebody has changed its schema meanwhile
 */
async function requireSameTables(source: pg.Client, tables: readonly DataTable[]): Promise<void> {
  const described = (each: DataTable) => JSON.stringify(each);
  const before = new Map(tables.map(table => [table.name, described(table)]));
  const now = new Map(
    (await listDataTables(source, identityTables)).map(table => [table.name, described(table)]),
  );

  const names = [...new Set([...before.keys(), ...now.keys()])];
  const changed = names.filter(name => before.get(name) !== now.get(name));
  if (changed.length > 0) throw changedTables(changed);
}

function changedTables(names: readonly string[], options: ErrorOptions = {}): OperatorError {
  const which = names.length > 0 ? ` (${names.join(', ')})` : '';

  return new OperatorError(
    `somebody has changed tables of the tenant database${which} while they were copied`,
    options,
  );
}

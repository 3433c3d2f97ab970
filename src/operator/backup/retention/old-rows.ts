import type pg from 'pg';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import { quoteLiteral } from '../../../lib/postgres/quote.ts';
import type { DueTenant } from './due-tenants.ts';
import { type HistoryKind, historyKinds } from './history-kinds.ts';

/** The largest difference of clocks with which rows are still removed. */
export const maxClockDifferenceMs = 5 * 60_000;

/** Maximum rows that are removed in one transaction. */
export const batchIds = 5_000;

/**
 * The number of removed rows after which space is reclaimed. Until then, a list of the oldest
 * rows skips their entries in the index, which takes at most 5 ms. A vacuum for fewer rows
 * would take longer than their removal, because it reads all indexes.
 */
const maxUnreclaimed = 500_000;

/** Facts that are read from a tenant's database before anything is removed from it. */
export interface DatabaseFacts {
  /** The last migration of the database. */
  readonly schemaVersion: string;
  /** The present time by the clock of the server. */
  readonly now: Date;
}

/**
 * Checks a database from which rows are to be removed.
 * @throws {OperatorError} when it is that of another tenant, or the clock of its server differs
 *   from this machine's
 */
export async function readDatabaseFacts(
  client: pg.Client,
  { guid }: DueTenant,
): Promise<DatabaseFacts> {
  const { rows } = await client.query<{ guid: string; version: string; now: Date }>(
    'select guid, schema_version as version, clock_timestamp() as now from tenant_identity',
  );
  const [facts] = rows;
  if (facts?.guid !== guid) {
    throw new OperatorError('the database belongs to another tenant: run bin/backoffice doctor');
  }

  const { version, now } = facts;
  if (Math.abs(now.getTime() - Date.now()) > maxClockDifferenceMs) {
    throw new OperatorError(
      `its server says it is ${now.toISOString()}, and this machine does not: set the clock`,
    );
  }

  return { schemaVersion: version, now };
}

/** The rows of one kind that are older than a cutoff. */
export interface OldRows {
  readonly rows: number;
  /** Rows of any age. */
  readonly total: number;
  readonly oldest: Date | null;
  /** The time of the newest of the rows that are older than the cutoff. */
  readonly newest: Date | null;
}

/**
 * Counts the rows that are to be removed.
 * @throws {OperatorError} when there are rows from the future: a clock is or was wrong
 */
export async function countOldRows(
  client: pg.Client,
  kind: HistoryKind,
  cutoff: Date,
  now: Date,
): Promise<OldRows> {
  const { table, noun } = historyKinds[kind];
  const { rows } = await client.query<OldRows & { last: Date | null }>(
    `select count(*) filter (where created_at < $1)::float8 as rows, count(*)::float8 as total,
            min(created_at) as oldest, max(created_at) filter (where created_at < $1) as newest,
            max(created_at) as last
       from ${table}`,
    [cutoff],
  );
  const [counted] = rows;
  if (!counted) throw new Error('a count has returned nothing');

  const { last, ...old } = counted;
  if (last && last.getTime() > now.getTime() + maxClockDifferenceMs) {
    throw new OperatorError(
      `it has ${noun} of ${last.toISOString()}, which has not come yet: a clock is or was wrong, so nothing is removed`,
    );
  }

  return old;
}

/** The context of a removal of rows, which can be interrupted. */
export interface RemovalContext {
  /** Receives how many rows are removed so far. */
  readonly onProgress: (rows: number) => Promise<void>;
  /** The signal after whose abort no further batch is begun. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Removes the rows that are older than a cutoff, the lowest ids first, in short transactions of
 * at most `batchIds` rows. A run that was killed is continued by doing the same again.
 * @returns the number of rows that were removed
 * @throws {Error} when it was interrupted
 */
export async function removeOldRows(
  client: pg.Client,
  kind: HistoryKind,
  cutoff: Date,
  { onProgress, signal }: RemovalContext,
): Promise<number> {
  const { table, remove } = historyKinds[kind];
  const before = quoteLiteral(cutoff.toISOString());
  let removed = 0;
  let unreclaimed = 0;

  for (let from = '0'; ; ) {
    const { rows } = await client.query<{ id: string | null }>(
      `select min(id) as id from ${table} where id >= ${from} and created_at < ${before}`,
    );
    const id = rows[0]?.id ?? null;
    if (id === null) break;
    if (signal?.aborted) throw new Error('it was interrupted: run this again to go on');

    const last = String(BigInt(id) + BigInt(batchIds - 1));
    const batch = await inTransaction(client, async () => {
      const result = await client.query<{ rows: number }>(
        `select ${remove}(${id}, ${last}, ${before})::float8 as rows`,
      );
      return result.rows[0]?.rows ?? 0;
    });
    removed += batch;
    unreclaimed += batch;
    from = String(BigInt(last) + 1n);

    if (unreclaimed >= maxUnreclaimed) {
      await reclaimSpace(client, kind);
      unreclaimed = 0;
    }
    await markRemovedEntries(client, kind);
    await onProgress(removed);
  }
  await reclaimSpace(client, kind);

  return removed;
}

/**
 * Reads the oldest row, by its time and by its id. That lets PostgreSQL mark the index entries
 * of the removed rows as dead, so that later readers of the oldest rows do not look each of
 * them up in the table.
 */
async function markRemovedEntries(client: pg.Client, kind: HistoryKind): Promise<void> {
  for (const order of ['created_at, id', 'id']) {
    await client.query(`select from ${historyKinds[kind].table} order by ${order} limit 1`);
  }
}

/**
 * Makes the space of removed rows free for new ones, and removes their entries from the
 * indexes, without waiting for autovacuum, which comes when a fifth of the table is gone.
 * Requests go on: at the pace of autovacuum, and without the step that locks the table.
 */
async function reclaimSpace(client: pg.Client, kind: HistoryKind): Promise<void> {
  await client.query('set vacuum_cost_delay = 2');
  await client.query(`vacuum (analyze, truncate off) ${historyKinds[kind].table}`);
}

import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import { quoteIdentifier } from '../../../lib/postgres/quote.ts';

/**
 * A run that may change a database of a tenant unless a run with a greater epoch has claimed
 * it.
 */
export interface RunEpoch {
  readonly epoch: number;
  readonly guid: string;
}

/** Another run has taken over: this one must not go on. */
export class RunReplacedError extends OperatorError {
  override name = 'RunReplacedError';

  constructor() {
    super('another run works on the tenant now: this one has stopped');
  }
}

/**
 * Checks that the run with this epoch still has a database reserved.
 * @throws {RunReplacedError} when another run has condemned it, or the tenant is purged
 */
export async function requireReserved(
  control: pg.Client,
  id: number,
  epoch: number,
): Promise<void> {
  const { rowCount } = await control.query(
    `select from tenant_databases where id = $1 and state = 'reserved' and epoch = $2`,
    [id, epoch],
  );
  if (rowCount !== 1) throw new RunReplacedError();
}

/**
 * Checks that no later run works on the tenant of a database. The connection holds the lock of
 * the tenant, so the query also fails in a run that has lost it.
 * @throws {RunReplacedError} when a later run has begun
 */
export async function requireLastRun(control: pg.Client, id: number, epoch: number): Promise<void> {
  const { rowCount } = await control.query(
    'select from tenant_databases where id = $1 and epoch = $2',
    [id, epoch],
  );
  if (rowCount !== 1) throw new RunReplacedError();
}

/** The guid in the stamp of a database that is going to be dropped. No tenant has it. */
export const nobody = '00000000-0000-0000-0000-000000000000';

/**
 * Returns the value that the stamp of a closed database of a tenant has in place of the guid:
 * every build refuses it. It is a UUID of version 8 (RFC 9562 §5.8), so that no tenant has it.
 */
export function closedStamp(guid: string): string {
  const hex = createHash('sha256').update(`closed ${guid}`).digest('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}

/** SQL: the connections of other runs, which have the name of their kind (`timeLimits`). */
const otherRuns = `
  select pg_terminate_backend(pid) from pg_stat_activity
   where datname = current_database() and application_name like 'backoffice-move%' and pid <> pg_backend_pid()`;
const maxEndMs = 5_000;
const pollMs = 10;

/**
 * Shuts earlier runs out of the connected database: ends their connections, and records the
 * epoch of this run, which every later change compares (`changeInEpoch`).
 * @throws {RunReplacedError} when a later run has claimed the database
 * @throws {OperatorError} when it belongs to somebody else
 */
export async function claimDatabase(client: pg.Client, run: RunEpoch): Promise<void> {
  for (const deadline = performance.now() + maxEndMs; ; await sleep(pollMs)) {
    if ((await client.query(otherRuns)).rowCount === 0) break;
    if (performance.now() > deadline) {
      throw new OperatorError('a connection of an earlier run could not be ended');
    }
  }
  await changeInEpoch(client, run, async () => {
    const { rowCount } = await client.query(
      'update tenant_identity set epoch = $1 where guid in ($2, $3)',
      [run.epoch, run.guid, closedStamp(run.guid)],
    );
    if (!rowCount) throw foreignDatabase();
  });
}

/**
 * Runs `change` in a transaction of the connected database, in which no other run changes it.
 * @throws {RunReplacedError} when a later run has claimed the database
 */
export async function changeInEpoch<T>(
  client: pg.Client,
  { epoch }: Pick<RunEpoch, 'epoch'>,
  change: () => Promise<T>,
): Promise<T> {
  return inTransaction(client, async () => {
    const { rows } = await client.query<{ epoch: string }>(
      'select epoch from tenant_identity for update',
    );
    if (rows[0] && Number(rows[0].epoch) > epoch) throw new RunReplacedError();
    return change();
  });
}

/**
 * Closes a tenant database in one transaction: its stamp names no tenant any more, and its role
 * may not log in. A connection that was verified before the commit is among the sessions of the
 * role (`endSessionsOf`) afterwards; every later one is refused.
 * @throws {OperatorError} when the database belongs to somebody else
 */
export async function closeDatabase(client: pg.Client, run: RunEpoch, role: string): Promise<void> {
  await changeInEpoch(client, run, async () => {
    await stamp(client, run.guid, closedStamp(run.guid));
    await client.query(`alter role ${quoteIdentifier(role)} nologin`);
  });
}

/**
 * Opens a tenant database, as `closeDatabase` has closed it.
 *
 * A later run cannot claim a lost database, and may have replaced it: so this run checks, while
 * its transaction is open, that it is the last one. While a session is in the database, the
 * database is not lost, so no later run finds it lost between the check and the commit.
 * @param isLastRun rejects when a later run has begun (`requireLastRun`)
 * @param mayBeReplaced true to open it although another one has taken its place
 * @throws {OperatorError} when another one has, without `mayBeReplaced`
 */
export async function openDatabase(
  client: pg.Client,
  run: RunEpoch,
  role: string,
  isLastRun: () => Promise<void>,
  mayBeReplaced = false,
): Promise<void> {
  await changeInEpoch(client, run, async () => {
    await isLastRun();
    if (!mayBeReplaced) await requireNotReplaced(client);
    await stamp(client, run.guid, run.guid);
    await client.query('update tenant_identity set replaced_by = null');
    await client.query(`alter role ${quoteIdentifier(role)} login`);
  });
}

/**
 * Records in the connected former database of a tenant its successor, so that no run opens the
 * former one again for a control database that has lost the exchange.
 * @param successor `server/name`, or null for a former database that becomes the current one
 */
export async function nameSuccessor(
  client: pg.Client,
  run: RunEpoch,
  successor: string | null,
): Promise<void> {
  await changeInEpoch(client, run, () =>
    client.query('update tenant_identity set replaced_by = $1 where guid = $2', [
      successor,
      closedStamp(run.guid),
    ]),
  );
}

/** @throws {OperatorError} when another database has taken the place of the connected one */
async function requireNotReplaced(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ successor: string | null }>(
    'select replaced_by as successor from tenant_identity',
  );
  const successor = rows[0]?.successor ?? null;
  if (successor === null) return;

  throw new OperatorError(
    `the database was replaced by ${successor}, which may have newer data: the control database is of an earlier time`,
  );
}

/** Marks the connected new database as a closed one of the tenant. */
export async function stampNew(client: pg.Client, guid: string): Promise<void> {
  await client.query('insert into tenant_identity (guid) values ($1)', [closedStamp(guid)]);
}

/**
 * Gives the connected database an era of the feed of changes of its own, above those of all
 * databases that were current before: the time, the epoch of the run, or the number after the
 * largest era in its data and after that of the current database. A database can have an era
 * above the time when the clock of its server is ahead.
 *
 * The database is closed, and no session is connected, so that each transaction writes changes
 * of one era: the invariant *era* of `readChanges` depends on that. From now on its transaction
 * ids are those of its present cluster.
 * @param data the feed of the current database, if this one has the same data: cursors of
 *   clients then stay valid
 * @param current the feed of the current database, if this one has other data
 */
export async function beginFeedEra(
  client: pg.Client,
  run: RunEpoch,
  { data, current = data }: { data?: Feed | undefined; current?: Feed | undefined },
): Promise<void> {
  await changeInEpoch(client, run, async () => {
    const { rowCount } = await client.query(
      `update tenant_identity set feed_era = next.era, feed_since = coalesce($3::bigint, next.era),
              system_identifier = system_identifier(),
              removed_era = greatest(removed_era, $4),
              removed_xid = case when removed_era < $4 then $5 else removed_xid end
         from (select greatest(next_feed_era(), $1::bigint, $2::bigint + 1) as era) as next
        where guid = $6`,
      [
        run.epoch,
        current?.era ?? 0,
        data?.since ?? null,
        data?.removedEra ?? 0,
        data?.removedXid ?? '0',
        closedStamp(run.guid),
      ],
    );
    if (!rowCount) throw foreignDatabase();
  });
}

/** The state of the feed of a database that matters to the database after it. */
export interface Feed {
  readonly era: string;
  readonly since: string;
  readonly removedEra: string;
  readonly removedXid: string;
}

/** Reads the state of the feed of the connected database. */
export async function readFeed(client: pg.Client): Promise<Feed> {
  const { rows } = await client.query<Feed>(
    `select feed_era as era, feed_since as since, removed_era as "removedEra", removed_xid as "removedXid"
       from tenant_identity`,
  );
  const [feed] = rows;
  if (!feed) throw foreignDatabase();
  return feed;
}

/**
 * Gives the connected database of a new tenant, which has the data of another one, an era after
 * those of its changes: cursors of the other tenant are none of this one.
 */
export async function beginOwnFeed(client: pg.Client): Promise<void> {
  await client.query(
    `update tenant_identity set (feed_era, feed_since) = (
       select era, era from (select next_feed_era() as era) next)`,
  );
}

async function stamp(client: pg.Client, guid: string, value: string): Promise<void> {
  const { rowCount } = await client.query(
    'update tenant_identity set guid = $1 where guid in ($2, $3)',
    [value, guid, closedStamp(guid)],
  );
  if (!rowCount) throw foreignDatabase();
}

function foreignDatabase(): OperatorError {
  return new OperatorError(
    'the database belongs to another tenant, or is being dropped: nothing was changed in it. See bin/backoffice doctor',
  );
}

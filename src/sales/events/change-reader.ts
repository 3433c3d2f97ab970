import { setImmediate as nextTurn } from 'node:timers/promises';
import type { RunStatement } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { type Change, changeOf, seenChange } from './change.ts';
import { type Cursor, compareCursors, firstCursor, unproved } from './change-cursor.ts';
import type { ChangeFilter } from './change-sources.ts';
import {
  changeStatement,
  type FeedState,
  maxScanned,
  type ScannedRow,
} from './change-statement.ts';

const defaultMaxBytes = 4 * 1024 * 1024;

export interface ChangeRequest {
  /** The place after which reading begins; `now`: the end of the final changes. */
  readonly after: Cursor | 'now';
  /** Maximum number of changes, 1 to 1,000. */
  readonly limit: number;
  /** Maximum bytes of the contents of the changes, or those of one change. Default: 4 MiB. */
  readonly maxBytes?: number;
  readonly filter: ChangeFilter;
}

export interface ChangePage {
  readonly changes: Change[];
  /** The number of changes that were read, also of those that are not visible. */
  readonly readCount: number;
  /** The place after which reading began, as a cursor that is made now. */
  readonly from: Cursor;
  /** The last place that was read, also when the filter let nothing pass. */
  readonly last: Cursor;
  /**
   * True if no final change follows: a page that is not the last may have fewer changes than
   * its limit.
   */
  readonly isEnd: boolean;
  /**
   * True if changes follow that are not final yet. Nothing may report when they become final.
   */
  readonly isHeld: boolean;
}

/**
 * Characters of contents that are parsed without letting the event loop run: half a
 * millisecond.
 */
const maxParsedInTurn = 32 * 1024;

/**
 * Reads the changes of one tenant that follow a cursor: audit entries and activities, in the
 * order (era, transaction id, kind, row id). A cursor never passes a change that is committed
 * later. Invariants, each with the assumption that it depends on:
 *
 *   I1 (position) A row has the era of its database and the top-level transaction id of its
 *      transaction. Each row of the present era either has an id that the counter of this
 *      PostgreSQL cluster gave, or came to the cluster before the database was compared with
 *      the counter, and has an id below the next one at that moment. Assumes:
 *        1. The defaults of the columns say so, and no login of a tenant changes rows or their
 *           defaults (section 6 of the tenant schema). Savepoints have ids of their own, which
 *           `pg_current_xact_id` does not return.
 *        2. `tenant_identity` names the cluster that the ids come from: `beginFeedEra` and
 *           `record_cluster` (section 8.1) store it. A new connection compares it with its
 *           own cluster before it serves a request (`verifyTenant`). If they differ, or
 *           nothing is stored, `record_cluster` begins a new era unless all ids of the
 *           present one are below the next. So `pg_upgrade`, which keeps the counter, begins
 *           none. A server that takes no writes is not compared: the session of each connection
 *           to it is read-only, also when the server takes writes later, and serves one use.
 *        3. A cluster that has the identifier of another one is a physical copy of it: a
 *           snapshot, or a standby. It has the counter of the copied moment too, which is
 *           above the ids of its rows. What it lacks is the subject of I4.
 *        4. Nobody writes rows of another cluster into a database that is served: while an
 *           enabled subscription writes to it, no connection is verified, and triggers of the
 *           tables refuse changes of the rows that are there.
 *
 *   I2 (era) While a transaction can still write to a database, its era does not change, and
 *      each database that becomes the current one has an era above those of all earlier ones.
 *      Assumes, where `beginFeedEra` sets the era:
 *        1. It does so for a new database after it was filled, and for an earlier database
 *           before it becomes current again. Both are closed, and the earlier one has no
 *           session since `end sessions` of the run that closed it (the invariant *one open*
 *           of `databaseProtocol`). A retreat opens the database that was current, and
 *           changes no era.
 *        2. The era is at least the epoch of the run and the time, and above that of the
 *           current database. So it is above all earlier ones, unless the clock of a server
 *           that is away or lost was ahead.
 *      Where `record_cluster` sets it, the database is open, and the function holds
 *      `tenant_identity` in ACCESS EXCLUSIVE mode from before it reads the rows until its
 *      commit. The new era is above the time, and above each era that a row, a position of a
 *      webhook or `tenant_identity` has. Let T be a transaction of this database that writes
 *      a row:
 *        3. T reads `tenant_identity` for the row, and holds ACCESS SHARE on it from then on,
 *           also once it is prepared. So no T that has written a row is under way while the
 *           lock is held.
 *        4. A T that reads in a snapshot from after the commit gets the new era.
 *        5. A T that waits for the lock in mode READ COMMITTED reads the era in a snapshot from
 *           after the commit (`feed_era`).
 *        6. A T of the login of the tenant with one snapshot for all its statements is ended
 *           before the commit (`enter_cluster`) if it has begun before. Assumes that none
 *           begins between the two, and that no other login has one.
 *
 *   I3 (horizon) Let S be the snapshot of the statement and H its horizon. Each transaction of
 *      this database that has an id of this cluster below H had ended before S. Assumes:
 *      `current_feed` gets S, and returns the smallest id that S calls in progress, but for
 *      those that it proves to be of another database; or, without any, the first id that S
 *      calls not yet assigned. A transaction is proved to be of another database if a session
 *      with its process id was connected there (query 1), and afterwards a session with this
 *      process id had its id (query 2). Suppose that it were of this database: its session had
 *      the id since before S, hence before query 1, and until query 2. So it was connected to
 *      this database at query 1, and had that process id alone: a contradiction. A prepared
 *      transaction has no process id, and is never proved to be elsewhere.
 *
 * Proof that a row R of a transaction T, which commits at any time, is read once by a reader
 * that goes on from `last`:
 *
 *   1. Suppose that a statement passes R without reading it: its `last` is at or after R, and S
 *      does not see R. Let E be the era at S. The statement reads rows below (E, H) only, so R
 *      is below (E, H).
 *   2. If R has the era E, T has an id below H by I1. If the id is of this cluster, T had ended
 *      before S by I3: S sees R, if T committed. If R came from another cluster, it was there
 *      before the first request, hence before S: S sees R.
 *   3. If R has an earlier era, T wrote it while that was the era. By I2 every such transaction
 *      had ended before the era became E, hence before S: S sees R. By 2 and 3, R is never
 *      passed unread.
 *   4. Positions never change, and `last` never goes back. So R is read at most once.
 *   5. T ends at some time, and so do all transactions with smaller ids. From then on R is
 *      below H.
 *
 * So a transaction that stays open holds back what was written after its first change, until it
 * ends.
 *
 * A server can lose its last commits: its files are put back to a snapshot, or a standby
 * without them is promoted. Then it uses ids of transactions and rows again, and nothing in its
 * database shows that. So a cursor names the last change at or before its place with the time
 * at which it was made (`madeAt`), and is refused when the database does not have that change.
 * Invariants:
 *
 *   I4 (proof) No two changes have the same place and time. Assumes: the clock of the server
 *      does not return to the same microsecond.
 *
 *   I5 (bound) As long as there is a change, the place of a cursor is not after the first id
 *      that follows both its last change and the last removed change (`endOf`).
 *
 * Proof that a cursor that is accepted after a loss skips no new change: by I4, its last change
 * is one that both histories have, and so committed before they parted. The server gives ids
 * above that of every transaction that it knows to have ended, so by I5 each new change has a
 * place after that of the cursor. Without any change before the place (`madeAt` 0), the
 * database has none there either: else the cursor is refused.
 *
 * The limits: only a change of the last 28 days is proved. The retention may have removed an
 * older one, so a cursor that names an older change is accepted. And the loss of a transaction
 * goes unnoticed if it was open at the moment of the snapshot, and its id is below that of the
 * last change, which the snapshot has.
 *
 * Another limit is the removal of old rows: a cursor before the last removed change is refused.
 * So is a cursor that was made in an era before `feed_since`, because its data were replaced.
 * @throws {Problem} `cursor_expired`
 */
export async function readChanges(
  read: RunStatement,
  { after, limit, maxBytes = defaultMaxBytes, filter }: ChangeRequest,
): Promise<ChangePage> {
  const isNow = after === 'now';
  const statement = isNow
    ? changeStatement(beyondAll, filter, 0, maxBytes)
    : changeStatement(after, filter, limit, maxBytes);
  const rows = await read(statement);

  const state = rows[0]!; // the statement returns at least one row
  const madeIn = state.stateEra;
  const end = endOf(state);
  if (isNow) {
    return { changes: [], readCount: 0, from: end, last: end, isEnd: true, isHeld: state.isHeld };
  }

  requireValid(after, state);

  const scanned = rows.filter(({ kind }) => kind !== null);
  const beyond = scanned.find(({ matches, fits }) => matches && !fits);
  const passed = beyond ? scanned.slice(0, scanned.indexOf(beyond)) : scanned;
  const changes = await changesOf(passed, madeIn, filter);

  const isEnd = !beyond && scanned.length < maxScanned;
  const place = passed.at(-1) ?? after;
  const { era, xid, kind, id, madeAt } = isEnd && compareCursors(place, end) < 0 ? end : place;
  const from = { ...after, madeIn, madeAt: state.passedAt ?? 0 };

  return {
    changes,
    readCount: passed.filter(({ matches }) => matches).length,
    from,
    last: { madeIn, era, xid, kind, id, madeAt },
    isEnd,
    isHeld: state.isHeld,
  };
}

/**
 * Makes the visible changes of the rows that match. Lets the event loop run between the parts of
 * a large page.
 */
async function changesOf(
  rows: readonly ScannedRow[],
  madeIn: number,
  filter: ChangeFilter,
): Promise<Change[]> {
  const changes: Change[] = [];
  let parsed = 0;

  for (const row of rows) {
    if (!row.matches) continue;

    const change = seenChange(filter, changeOf(row, madeIn));
    if (change) changes.push(change);
    parsed += (row.before?.length ?? 0) + (row.after?.length ?? 0);

    if (parsed > maxParsedInTurn) {
      parsed = 0;
      await nextTurn();
    }
  }

  return changes;
}

/**
 * The place after the last final change and after those that the retention has removed. It is
 * not after ids that no change has: a server that was put back to a snapshot gives these to
 * other changes.
 */
function endOf({
  stateEra,
  horizon,
  lastEra,
  lastXid,
  lastMadeAt,
  removedEra,
  removedXid,
}: FeedState): Cursor {
  const common = { madeIn: stateEra, kind: 0, id: 0, madeAt: lastMadeAt ?? 0 };
  if (lastEra === null || lastXid === null) return { ...common, era: stateEra, xid: horizon };
  const ofLast = { ...common, era: lastEra, xid: lastXid + 1 };
  const ofRemoved = { ...common, era: removedEra, xid: removedXid + 1 };
  return compareCursors(ofLast, ofRemoved) < 0 ? ofRemoved : ofLast;
}

const beyondAll: Cursor = { ...firstCursor, era: Number.MAX_SAFE_INTEGER };

function requireValid({ madeIn, era, xid, kind, madeAt }: Cursor, state: FeedState): void {
  if (kind === 0 && xid === 0) return; // before the first change: all that are left are read
  const { stateEra, since, removedEra, removedXid, nextXid, isKept } = state;
  const isRemoved = era < removedEra || (era === removedEra && xid <= removedXid);
  const isAhead = era > stateEra || (era === stateEra && xid > nextXid);
  const isProved = isKept === true || madeAt === unproved;
  if (isRemoved || isAhead || !isProved || madeIn < since) throw cursorExpired();
}

/** The response to a cursor whose reader saw other changes when it was made than now. */
export function accessChanged() {
  return problem('cursor_expired', {
    detail:
      'What you may see has changed since this cursor was made: your role, scope or entity. Take a cursor with ' +
      '`after=now`, read the records again, and go on from that cursor.',
  });
}

function cursorExpired() {
  return problem('cursor_expired', {
    detail:
      'Changes after this cursor were removed, or the data were restored. Take a cursor with `after=now`, read the ' +
      'records again, and go on from that cursor; without `after`, the feed begins with the oldest change that it has.',
  });
}

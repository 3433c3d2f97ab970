import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';
import { readOtherSessions, sessionsText } from './other-sessions.ts';

/** Maximum wait for each lock, unless the session has a limit of its own. */
const maxLockWait = '10s';
const maxAttempts = 5;

/**
 * Begins a read-only transaction that sees the connected database as it is at one moment, and
 * in which every table that the login may read is locked against a rewrite. Every copy of data
 * is made in such a transaction. Readers and writers do not wait for it; `truncate` and most
 * kinds of `alter table` do, until it ends.
 *
 * A snapshot alone does not hold what it has not read yet: `truncate`, and an `alter table` that
 * writes a table anew, give the table another file, in which an earlier snapshot sees no row. A
 * copy would be empty, and every comparison within the same snapshot would agree. So the locks
 * come before the snapshot:
 *
 *   1. The tables are listed, outside of the transaction.
 *   2. The transaction begins, and locks them all in `access share` mode.
 *      Assumes: neither `begin` nor `set` nor `lock table` takes a snapshot.
 *   3. The next statement takes the snapshot, and lists the tables again. When the lists are
 *      equal, each table of the snapshot is one that step 2 has locked, so no rewrite of it has
 *      committed after the snapshot, or can commit before the end of the transaction. When the
 *      lists differ, the transaction ends, and everything begins anew.
 *
 * A sequence cannot be locked, and need not be: its present state shows in every snapshot. A
 * partition is locked with its table. The rows of views and of foreign tables are not copied.
 *
 * @throws {OperatorError} when a table is locked by another session for too long, or when tables
 *   are made or dropped each time
 */
export async function beginSnapshot(client: pg.Client): Promise<void> {
  const own = await readLockTimeout(client);
  let listed = await listTables(client);

  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    try {
      await client.query(beginLocked(listed, own));
      const found = await listTables(client);
      if (found.identity === listed.identity) return;

      await client.query('rollback');
    } catch (error) {
      await client.query('rollback').catch(() => {});
      const state = sqlState(error) ?? '';
      if (state === lockNotAvailable) {
        throw await lockedError(client, listed, { own, cause: error });
      }
      if (!triedAgain.includes(state)) throw error;
    }

    listed = await listTables(client);
  }

  throw new OperatorError(
    `Tables of database ${client.database} were made, dropped or renamed each time that the command began to ` +
      'read it. Run the command again when nobody changes the schema',
  );
}

/** Runs `work` in the transaction of `beginSnapshot`, and ends it. */
export async function inSnapshot<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  await beginSnapshot(client);
  try {
    return await work();
  } finally {
    await client.query('rollback').catch(() => {}); // a lost connection is reported by the error of the work
  }
}

const lockNotAvailable = '55P03';

/**
 * SQLSTATEs of a lock of a table that was dropped, or whose rights were revoked, after it was
 * listed; and of a deadlock with a session that locks tables in another order.
 */
const triedAgain = ['42P01', '3F000', '42501', '40P01'];

/** The tables of a database, as one statement sees them. */
interface ListedTables {
  /** The tables to lock. */
  readonly locked: readonly { readonly oid: string; readonly name: string }[];
  /** The OIDs and names of all tables and partitions, and which of them are locked. */
  readonly identity: string;
}

async function listTables(client: pg.Client): Promise<ListedTables> {
  const { rows } = await client.query<{
    oid: string;
    schema: string;
    name: string;
    isLocked: boolean;
  }>(
    `select c.oid::text as oid, nspname as schema, relname as name,
            not relispartition and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') as "isLocked"
       from pg_class c join pg_namespace n on n.oid = relnamespace
      where c.oid >= 16384 and relkind in ('r', 'p') and nspname !~ '^pg_'
        and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
      order by c.oid`,
  );

  return {
    locked: rows.flatMap(({ oid, schema, name, isLocked }) =>
      isLocked ? [{ oid, name: `${quoteIdentifier(schema)}.${quoteIdentifier(name)}` }] : [],
    ),
    identity: JSON.stringify(rows),
  };
}

/** Returns the limit of the session for the wait for a lock, such as `5s`; `0`: none. */
async function readLockTimeout(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ limit: string }>(
    `select current_setting('lock_timeout') as limit`,
  );
  return rows[0]?.limit ?? '0';
}

/**
 * Returns the statements that begin the transaction and lock the tables. They are sent as one
 * text without parameters.
 * @param own the limit of the session for the wait for a lock
 */
function beginLocked({ locked }: ListedTables, own: string): string {
  const lock = [
    `set local lock_timeout = '${waitOf(own)}'`,
    `lock table ${locked.map(({ name }) => name).join(', ')} in access share mode`,
    `set local lock_timeout = '${own}'`,
  ];

  return [
    'begin isolation level repeatable read read only',
    ...(locked.length > 0 ? lock : []),
  ].join(';\n');
}

/** Returns the maximum wait for each lock. */
function waitOf(own: string): string {
  return own === '0' ? maxLockWait : own;
}

/** Returns the error of a copy that could not lock a table, with the sessions that hold it. */
async function lockedError(
  client: pg.Client,
  { locked }: ListedTables,
  { own, cause }: { own: string; cause: unknown },
): Promise<OperatorError> {
  const database = client.database ?? '';
  const { rows } = await client.query<{ pid: number; name: string }>(
    `select pid, n.nspname || '.' || c.relname as name
       from pg_locks join pg_class c on c.oid = relation join pg_namespace n on n.oid = relnamespace
      where database = (select oid from pg_database where datname = current_database())
        and mode = 'AccessExclusiveLock' and granted and relation = any ($1::oid[])`,
    [locked.map(({ oid }) => oid)],
  );
  const pids = new Set(rows.map(({ pid }) => pid));
  const sessions = await readOtherSessions(client, database);
  const holders = sessions.filter(({ pid }) => pids.has(pid));
  const tables = [...new Set(rows.map(({ name }) => name))].join(', ') || 'a table';

  return new OperatorError(
    `Database ${database} cannot be read as it is at one moment: ${tables} has been locked for more than ` +
      `${waitOf(own).replace(/(?<=\d)(?=[a-z])/, ' ')} by ${sessionsText(holders) || 'another session'}. ` +
      'Wait until its transaction has ended, or end it, and run the command again',
    { cause },
  );
}

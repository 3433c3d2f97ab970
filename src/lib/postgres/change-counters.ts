import type { Queryable } from './shared-connection.ts';

/** The counts of PostgreSQL of the changes of one database or table, at one poll. */
export interface ChangeCounters {
  /** True if no session was there whose changes may not be counted yet. */
  readonly isUnused: boolean;
  /**
   * Names the database or table, the run of its server, and the rows that were written to it
   * since the last reset.
   */
  readonly fingerprint: string;
}

/** The counters of one database. */
export interface DatabaseCounters extends ChangeCounters {
  /** The name of the database. */
  readonly name: string;
}

/**
 * True if it is proved that nothing that a snapshot could see of a database or table has
 * changed since `proof` was read. Without a proof, it counts as changed. This is the one proof
 * of that: a backup uses it for archives, and a move for the tables that it has copied.
 * Invariants, each with the assumption that it depends on:
 *
 *   I1 (counting) A committed change of rows raises a counter of its table, and of its
 *      database. The session that commits it adds it to the counters some time after the
 *      commit, but before it disappears. That holds also for the session that commits what
 *      another one has prepared.
 *      Assumes: PostgreSQL counts the rows of the catalogs, so that DDL and `truncate` raise
 *      the counters of the database; `truncate` and a rewrite give a table another file, which
 *      its fingerprint names. Statistics and flags that are set in place, and numbers that
 *      sequences draw, are not counted. Only a superuser can hide a change: by turning
 *      `track_counts` off, or with code that writes without counting. While the server has
 *      `track_counts` off, or sets it for a role or a database, or is in recovery, nothing is
 *      read, and so nothing is proved.
 *
 *   I2 (order) A poll reads the sessions before the first counter.
 *      Assumes: PostgreSQL evaluates the columns of a query from left to right, and takes one
 *      snapshot of all sessions when it reads the first `numbackends`. A poll is not part of a
 *      transaction, which would go on with the sessions and counters that it has read before;
 *      or it is the first in its transaction that reads them.
 *
 *   I3 (fingerprint) Two polls return equal fingerprints only if no counter was raised from the
 *      first to the second.
 *      Assumes: counters never decrease in one run of a server, except by a reset, which
 *      changes `stats_reset` of the database (also if it is one of a single table), or by a
 *      crash, which loses the counters and changes `stats_reset` of `pg_stat_bgwriter`. The
 *      fingerprint names both resets, the cluster, the start of the server, and the OID of the
 *      database and of the table. So after a restart, a crash, a failover or a restore of the
 *      whole server, or of another database under the name, everything counts as changed.
 *
 * Let poll A be answered at a, with the fingerprint `proof`, the snapshot begin at s > a, and
 * poll B begin at b > s, with the fingerprint of A and without sessions (`now`).
 *
 *   1. Suppose that a change W was visible at b, but not to the snapshot. Then W committed
 *      after s, and so after a.
 *   2. By 1 and I1, the counters that A returned do not include W.
 *   3. W committed before b. B found no session, so by I1 and I2 the session of W had added W
 *      to the counters before B read them. The counters that B returned include W.
 *   4. By I3, 2 and 3, the fingerprints differ: a contradiction. So the snapshot has all that
 *      was visible at b.
 *
 * So the counters are read before the snapshot that they belong to. A poll that finds a session
 * proves nothing; a later one that finds none, with the same fingerprint, also proves the time
 * in between.
 * @param proof a fingerprint from before the snapshot; null or undefined: none was read
 * @param now a later poll; undefined: it returned nothing
 */
export function isProvedUnchanged(
  proof: string | null | undefined,
  now: ChangeCounters | undefined,
): boolean {
  return now?.isUnused === true && now.fingerprint === proof;
}

/** SQL that is true while all changes are counted (I1). */
const countsAll = `current_setting('track_counts')::boolean and not pg_is_in_recovery()
     and not exists (select from pg_db_role_setting, unnest(setconfig) as setting
                      where setting ilike 'track\\_counts=%')`;

/**
 * SQL for a fingerprint (I3). Its time stamps do not depend on the settings of the session.
 * @param parts SQL for the names of the database or table, for its counters, and for the last
 *   reset of its database
 */
function fingerprintOf(names: string, counters: string, statsReset: string): string {
  return `concat_ws(' ', (select system_identifier from pg_control_system()),
           extract(epoch from pg_postmaster_start_time()), ${names}, ${counters},
           coalesce(extract(epoch from ${statsReset}), 0),
           (select coalesce(extract(epoch from stats_reset), 0) from pg_stat_bgwriter))`;
}

/**
 * SQL that reads the counters of all databases of a server (`DatabaseCounters`), without a
 * connection to any of them. It returns no row while nothing is proved. The order of the
 * columns matters (I2): `numbackends` comes before the counters.
 */
const databaseCountersSql = `
  select datname::text as name, numbackends = 0 as "isUnused",
         ${fingerprintOf('datid', 'tup_inserted, tup_updated, tup_deleted', 'stats_reset')} as fingerprint
    from pg_stat_database where datid <> 0 and ${countsAll}`;

/** Reads the counters of all databases of a server, by name; none while nothing is proved. */
export async function readDatabaseCounters(
  client: Queryable,
): Promise<Map<string, DatabaseCounters>> {
  const { rows } =
    await client.query<{ [Field in keyof DatabaseCounters]: DatabaseCounters[Field] }>(
      databaseCountersSql,
    );
  return new Map(rows.map(row => [row.name, row]));
}

/**
 * The fingerprints of a table. A reader knows which sessions may change the table, and reads
 * the sessions first (I2).
 */
export interface TableFingerprints {
  /** The fingerprint of all tables, as in `ChangeCounters`. */
  readonly all: string;
  /**
   * The fingerprint without inserted rows, which proves that no earlier row was changed or
   * deleted.
   */
  readonly withoutInserts: string;
}

/**
 * Reads the fingerprints of all tables of the connected database, by name; none while nothing
 * is proved.
 */
export async function readTableFingerprints(
  client: Queryable,
): Promise<Map<string, TableFingerprints>> {
  const rewritten = 'pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_deleted(c.oid)';
  const of = (counters: string): string =>
    fingerprintOf('d.oid, c.oid, c.relfilenode', counters, 'pg_stat_get_db_stat_reset_time(d.oid)');
  const { rows } = await client.query<{ name: string; all: string; withoutInserts: string }>(
    `select c.relname::text as name, ${of(`pg_stat_get_tuples_inserted(c.oid), ${rewritten}`)} as all,
            ${of(rewritten)} as "withoutInserts"
       from pg_class c join pg_database d on d.datname = current_database()
      where relnamespace = 'public'::regnamespace and relkind = 'r' and ${countsAll}`,
  );
  return new Map(rows.map(({ name, ...fingerprints }) => [name, fingerprints]));
}

import type { Queryable } from '../../postgres/shared-connection.ts';

/** The counters of one database, as its server has them. */
export interface DatabaseCounters {
  /** Equal fingerprints of two polls prove, with `isUnused` in the later one, that nothing was written in between. */
  readonly fingerprint: string;
  /** True if no session was connected to the database. */
  readonly isUnused: boolean;
}

// The order of the columns matters (I2): `numbackends` comes before the counters.
const counters = `
  select datname as name, numbackends = 0 as "isUnused",
         concat_ws(' ', (select system_identifier from pg_control_system()),
                   extract(epoch from pg_postmaster_start_time()), datid, tup_inserted, tup_updated, tup_deleted,
                   coalesce(extract(epoch from stats_reset), 0),
                   (select coalesce(extract(epoch from stats_reset), 0) from pg_stat_bgwriter)) as fingerprint
    from pg_stat_database
   where datid <> 0 and current_setting('track_counts')::boolean and not pg_is_in_recovery()`;

/**
 * Reads the counters of all databases of a server, in one statement and without a connection to any of them. Returns
 * nothing while the server has `track_counts` off or is in recovery: then nothing is proved.
 *
 * The proof that a database did not change since its archive is that of the write monitor
 * (`response-cache/write-monitor.ts`), with the same invariants:
 *
 *   I1 (counting) A committed change of rows raises the counters of its database. Its session adds to the counters some
 *      time after the commit, but before it stops being counted in `numbackends`.
 *   I2 (order) A poll reads the connections of all databases before the first counter.
 *   I3 (fingerprint) Two polls return equal fingerprints only if no counter changed in between: counters never decrease
 *      in one run of a server, except by a reset, which changes a `stats_reset`. The fingerprint also names the
 *      cluster, the start of the server and the database (`datid`). So after a crash, a restart, a failover or a
 *      restore of the whole server, every database counts as changed.
 *
 * Let poll A be answered at a, the snapshot of the archive begin at s > a, and poll B of a later run begin at b, with
 * the fingerprint of A and no connection to the database.
 *
 *   1. Suppose that a change W was visible at b, but not to the snapshot. Then W committed after s, and so after a.
 *   2. By 1 and I1, the counters that A returned do not include W.
 *   3. W committed before b. B found no connection, so by I1 and I2 the session of W had added W to the counters before
 *      B read them. The counters that B returned include W.
 *   4. By I3, 2 and 3, the fingerprints differ: a contradiction. So the archive has all that is visible at b.
 *
 * So the counters are read before the snapshot, and stored with the archive. Nothing is said about sequences: a number
 * that was drawn without a row is not counted.
 */
export async function readCounters(client: Queryable): Promise<Map<string, DatabaseCounters>> {
  const { rows } = await client.query<DatabaseCounters & { name: string }>(counters);
  return new Map(rows.map(({ name, fingerprint, isUnused }) => [name, { fingerprint, isUnused }]));
}

/**
 * Returns whether the counters prove that a database did not change since an archive.
 * @param proof the fingerprint that was read before the snapshot of the archive
 */
export function isProvedUnchanged(proof: string | null | undefined, now: DatabaseCounters | undefined): boolean {
  return now?.isUnused === true && now.fingerprint === proof;
}

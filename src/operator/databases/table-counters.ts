import type pg from 'pg';

/** What changes with each committed change of the rows of a table. */
export interface TableCounters {
  readonly inserts: string;
  /**
   * Updates and deletes; also the files of the table, which `truncate` replaces, and the last reset of the counters.
   */
  readonly changes: string;
}

/**
 * Reads the counters of all tables, by name. A session adds its changes to them after their commit, and before it
 * disappears. A table without counters (`track_counts` is off) is missing.
 */
export async function readTableCounters(client: pg.Client): Promise<Map<string, TableCounters>> {
  const { rows } = await client.query<{ name: string } & TableCounters>(
    `select c.relname as name, n_tup_ins::text as inserts,
            concat_ws(' ', c.oid, c.relfilenode, n_tup_upd, n_tup_del,
              (select stats_reset from pg_stat_database where datname = current_database())) as changes
       from pg_class c join pg_stat_user_tables s on s.relid = c.oid
      where c.relnamespace = 'public'::regnamespace and current_setting('track_counts')::boolean`,
  );
  return new Map(rows.map(({ name, ...counters }) => [name, counters]));
}

/**
 * Returns whether sessions exist in the connected database that belong neither to a role nor to a move. Their changes
 * may not be counted yet.
 * PostgreSQL hides the kind of a session from logins that are neither superusers nor members of its role, and shows the
 * login of a session only if it is a client's.
 */
export async function hasOtherSessions(source: pg.Client, role: string): Promise<boolean> {
  const { rowCount } = await source.query(
    `select from pg_stat_activity where datname = current_database() and usesysid is not null
        and coalesce(backend_type, 'client backend') = 'client backend'
        and application_name not like 'backoffice-move%' and usename <> $1`,
    [role],
  );
  return rowCount !== 0;
}

import type pg from 'pg';
import { reserveOf } from '../../tenancy/connections/share.ts';
import { minServerVersion } from '../servers/usable-server.ts';
import type { Report } from './finding.ts';
import type { ServerMeasures } from './reports.ts';

/**
 * The settings of a server that depend on its use by an installation, and the values that they
 * are compared with.
 */
export interface ServerSettings
  extends Pick<ServerMeasures, 'databases' | 'archiveFails' | 'receivers' | 'lagBytes'> {
  /** `server_version_num`: 160003 is PostgreSQL 16.3. */
  version: number;
  /** Connections for logins that are not superusers. */
  connections: number;
  /** The time at which a part of the write-ahead log was last archived; null: never. */
  archivedAt: Date | null;
  /**
   * The database with the oldest transaction ids, and how many transactions ago the oldest one
   * was.
   */
  oldest: string;
  oldestAge: number;
}

/** Reads the settings in one query. */
export async function readServerSettings(client: pg.Client): Promise<ServerSettings> {
  const { rows } = await client.query<ServerSettings>(`
    with settings as (select name, setting from pg_settings), oldest as (
      select datname::text as name, age(datfrozenxid) as age from pg_database order by age desc limit 1
    ), receivers as (
      select pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn()
                                  else pg_current_wal_lsn() end,
                             coalesce(replay_lsn, flush_lsn, write_lsn)) as lag
        from pg_stat_replication where state is distinct from 'backup'
    )
    select current_setting('server_version_num')::int as version,
           (select sum(case name when 'max_connections' then setting::int else -setting::int end)::int from settings
             where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')) as connections,
           last_archived_time as "archivedAt",
           coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) as "archiveFails",
           (select count(*)::int from pg_database) as databases,
           (select count(*)::int from receivers) as receivers, (select max(lag)::float8 from receivers) as "lagBytes",
           oldest.name as oldest, oldest.age as "oldestAge"
      from oldest, pg_stat_archiver`);

  const [settings] = rows;
  if (!settings) throw new Error('the server has no databases');

  return settings;
}

/**
 * The age of the oldest transaction, in transactions, that is reported. At 2.1 billion,
 * PostgreSQL refuses to write; at 0.2 billion, by default, autovacuum begins to freeze rows.
 */
const maxAge = 1_000_000_000;

/**
 * Checks for settings with which a server refuses or cannot do its work. Makes no query. A
 * setting that would suit many databases better is advice of the handbook, not a finding: a
 * server with the defaults of PostgreSQL is healthy.
 */
export function checkServerSettings(settings: ServerSettings, connectionBudget?: number): Report[] {
  const { version, connections, oldest, oldestAge, archiveFails, archivedAt } = settings;
  const reports: Report[] = [];

  if (version < minServerVersion) {
    reports.push({
      check: 'server_version',
      problem: `the server is PostgreSQL ${Math.floor(version / 10_000)}, tenants need 16 or later`,
      remedy: 'Upgrade the server.',
    });
  }

  const room =
    connectionBudget === undefined ? 0 : connectionBudget + 2 * reserveOf(connectionBudget);
  if (connectionBudget !== undefined && connections < room) {
    reports.push({
      check: 'few_connections',
      problem:
        `the server accepts ${connections} connections; CONNECTION_BUDGET is ${connectionBudget}, and commands, a ` +
        `process that starts and one that is paused may need ${room - connectionBudget} more`,
      remedy:
        'Raise max_connections on the server and restart it, or lower CONNECTION_BUDGET in all processes.',
    });
  }

  if (oldestAge > maxAge) {
    reports.push({
      check: 'old_transaction_ids',
      problem: `database ${oldest} has transaction ids of ${oldestAge} transactions ago; at 2.1 billion the server refuses to write`,
      remedy:
        'Find out what holds autovacuum back: a long transaction, a prepared one, or a replication slot.',
    });
  }

  if (archiveFails) {
    // A time that changes with each attempt would make a new finding of each: `diagnose` checks
    // twice.
    const last = archivedAt ? `since ${archivedAt.toISOString()}` : 'so far';
    reports.push({
      check: 'wal_not_archived',
      problem:
        `the write-ahead log cannot be archived, and nothing was ${last}: no later moment can be restored, and the log ` +
        'fills the disk of the server',
      remedy:
        'Correct archive_command, or make room in the archive. The log of the server has the reason.',
    });
  }

  return reports;
}

import type pg from 'pg';
import { reserveOf } from '../../connections/share.ts';
import { embeddedCluster } from '../../embedded/cluster.ts';
import type { Report } from './finding.ts';
import type { ServerMeasures } from './reports.ts';

/** The settings of a server that depend on what an installation does with it, and what they are compared with. */
export interface ServerSettings extends Pick<ServerMeasures, 'databases' | 'archiveFails' | 'receivers' | 'lagBytes'> {
  /** `server_version_num`: 160003 is PostgreSQL 16.3. */
  version: number;
  /** Connections for logins that are not superusers. */
  connections: number;
  /** `autovacuum_naptime` in seconds; null if autovacuum is off. */
  naptime: number | null;
  initSync: string;
  /** True if the operating system has `syncfs`. */
  hasSyncfs: boolean;
  /** `max_slot_wal_keep_size` in MB; -1: no limit. */
  slotWal: number;
  walLevel: string;
  archiveMode: string;
  /** `archive_library` or `archive_command`: what archives the write-ahead log. */
  archiver: string;
  /** When the server has last archived a part of the write-ahead log; null: never. */
  archivedAt: Date | null;
  /** True if the project has started the server, on a machine without one. */
  embedded: boolean;
  /** Replication slots of all databases. */
  slots: number;
  /** The database with the oldest transaction ids, and how many transactions ago the oldest one was. */
  oldest: string;
  oldestAge: number;
}

/** Reads the settings in one query. */
export async function readServerSettings(client: pg.Client): Promise<ServerSettings> {
  const { rows } = await client.query<ServerSettings>(`
    with settings as (select name, setting from pg_settings), oldest as (
      select datname::text as name, age(datfrozenxid) as age from pg_database order by age desc limit 1
    ), receivers as (
      select pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end,
                             coalesce(replay_lsn, flush_lsn, write_lsn)) as lag
        from pg_stat_replication where state is distinct from 'backup'
    )
    select current_setting('server_version_num')::int as version,
           (select sum(case name when 'max_connections' then setting::int else -setting::int end)::int from settings
             where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')) as connections,
           case when current_setting('autovacuum')::boolean then
             (select setting::int from settings where name = 'autovacuum_naptime') end as naptime,
           current_setting('recovery_init_sync_method') as "initSync",
           exists (select from settings where name = 'recovery_init_sync_method') and version() like '%linux%' as "hasSyncfs",
           (select setting::int from settings where name = 'max_slot_wal_keep_size') as "slotWal",
           current_setting('wal_level') as "walLevel", current_setting('archive_mode') as "archiveMode",
           trim(concat(current_setting('archive_library', true), current_setting('archive_command'))) as archiver,
           last_archived_time as "archivedAt",
           coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) as "archiveFails",
           current_setting('cluster_name') = '${embeddedCluster}' as embedded,
           (select count(*)::int from pg_database) as databases,
           (select count(*)::int from pg_replication_slots) as slots,
           (select count(*)::int from receivers) as receivers, (select max(lag)::float8 from receivers) as "lagBytes",
           oldest.name as oldest, oldest.age as "oldestAge"
      from oldest, pg_stat_archiver`);
  const [settings] = rows;
  if (!settings) throw new Error('the server has no databases');
  return settings;
}

const minVersion = 160_000;
/** PostgreSQL starts at most one autovacuum worker in this time (`MIN_AUTOVAC_SLEEPTIME` in autovacuum.c). */
const minWorkerSeconds = 0.1;
/** A worker that finds nothing to do takes 2 to 3 ms of CPU time: ten per second are 2 to 3 % of a core. */
const workerSeconds = 0.5;
/** From this number of databases on, the method `fsync`, which opens each of their about 300 files, takes minutes. */
const manyDatabases = 200;
/** PostgreSQL refuses to write at 2.1 billion. Autovacuum begins to freeze rows at 0.2 billion by default. */
const maxAge = 1_000_000_000;

const tooFewRemedy = 'Raise max_connections on the server and restart it, or lower CONNECTION_BUDGET in all processes.';

/** Checks that a server is set up for what the installation does with it. Makes no query. */
export function checkServerSettings(settings: ServerSettings, connectionBudget?: number): Report[] {
  const { version, connections, naptime, initSync, hasSyncfs, slotWal, walLevel, databases, slots } = settings;
  const reports: Report[] = [];
  if (version < minVersion)
    reports.push({
      check: 'server_version',
      problem: `the server is PostgreSQL ${Math.floor(version / 10_000)}, tenants need 16 or later`,
      remedy: 'Upgrade the server.',
    });
  if (connectionBudget !== undefined && connections < connectionBudget)
    reports.push({
      check: 'too_few_connections',
      problem: `the server accepts ${connections} connections, CONNECTION_BUDGET is ${connectionBudget}`,
      remedy: tooFewRemedy,
    });
  else if (connectionBudget !== undefined && connections < connectionBudget + 2 * reserveOf(connectionBudget))
    reports.push({
      check: 'few_connections',
      problem:
        `the server accepts ${connections} connections; CONNECTION_BUDGET is ${connectionBudget}, and commands, a process ` +
        `that starts and one that is paused may need ${2 * reserveOf(connectionBudget)} more`,
      remedy: tooFewRemedy,
    });
  if (settings.oldestAge > maxAge)
    reports.push({
      check: 'old_transaction_ids',
      problem: `database ${settings.oldest} has transaction ids of ${settings.oldestAge} transactions ago; at 2.1 billion the server refuses to write`,
      remedy: 'Find out what holds autovacuum back: a long transaction, a prepared one, or a replication slot.',
    });
  const minNaptime = Math.ceil(databases * workerSeconds);
  if (naptime !== null && naptime < minNaptime)
    reports.push(
      setting(
        `autovacuum starts a worker every ${workerPause(naptime, databases)} s: autovacuum_naptime is ${naptime} s for ${databases} databases`,
        `alter system set autovacuum_naptime = '${minNaptime}s'`,
      ),
    );
  if (initSync === 'fsync' && hasSyncfs && databases >= manyDatabases)
    reports.push(
      setting(
        `a start after a crash opens every file of ${databases} databases: recovery_init_sync_method is fsync`,
        `alter system set recovery_init_sync_method = 'syncfs'`,
      ),
    );
  if (slots > 0 && slotWal < 0)
    reports.push(
      setting(
        'a replication slot that nobody reads fills the disk: max_slot_wal_keep_size has no limit',
        `alter system set max_slot_wal_keep_size = '10GB'`,
      ),
    );
  if (walLevel === 'minimal')
    reports.push({
      check: 'server_setting',
      problem: 'the server can be neither archived continuously nor replicated: wal_level is minimal',
      remedy: `As a superuser, run on the server, then restart it: alter system set wal_level = 'replica';`,
    });
  reports.push(...checkArchive(settings));
  return reports;
}

/** Commands that report success and archive nothing. */
const noArchiver = /^(|:|true|\/(usr\/)?bin\/true|exit 0)$/;

/**
 * The problem names no time that changes from one attempt to the next: `diagnose` reports what it finds twice. The
 * embedded server discards the log until an operator lets it be archived: it is for development only.
 */
function checkArchive({
  walLevel,
  archiveMode,
  archiver,
  archivedAt,
  archiveFails,
  embedded,
}: ServerSettings): Report[] {
  const last = archivedAt ? `since ${archivedAt.toISOString()}` : 'so far';
  if (archiveMode === 'off')
    return walLevel === 'minimal' ? [] : [notArchived(`nothing was archived ${last}: archive_mode is off`)];
  if (noArchiver.test(archiver))
    return embedded ? [] : [notArchived(`archive_command is '${archiver}', which archives nothing`)];
  if (!archiveFails) return [];
  return [
    {
      check: 'wal_not_archived',
      problem:
        `the write-ahead log cannot be archived, and nothing was ${last}: no later moment can be restored, and the log ` +
        'fills the disk of the server',
      remedy: 'Correct archive_command, or make room in the archive. The log of the server has the reason.',
    },
  ];
}

function notArchived(reason: string): Report {
  return {
    check: 'wal_not_archived',
    problem: `the write-ahead log is not archived, so no tenant can be restored to a moment: ${reason}`,
    remedy:
      "Unless another tool reads it, set in the configuration of the server archive_mode = 'on' and archive_command, and restart the server.",
  };
}

/** Seconds between the starts of two workers: each database has its turn once in `naptime`. */
function workerPause(naptime: number, databases: number): string {
  return Math.max(minWorkerSeconds, naptime / databases).toFixed(1);
}

function setting(problem: string, statement: string): Report {
  return {
    check: 'server_setting',
    problem,
    remedy: `As a superuser, run on the server: ${statement}; select pg_reload_conf();`,
  };
}

import { backupRunKey, lockSpaces } from '../lib/postgres/advisory-locks.ts';
import { atMost } from '../lib/runtime/within.ts';
import { type ControlDatabase, queryControl } from './database.ts';

/** Counts of the fleet, for the metrics. */
export interface FleetCounts {
  readonly tenants: readonly { status: string; schemaVersion: string | null; tenants: number }[];
  /** The newest migration run; null before the first one. Times are in seconds since 1970. */
  readonly lastRun: {
    readonly state: string;
    readonly head: string;
    readonly startedAt: number;
    readonly finishedAt: number | null;
  } | null;
  /** Tenants of the newest migration run by outcome. */
  readonly outcomes: readonly { state: string; tenants: number }[];
  /** The backups. Times are in seconds since 1970; null: never. */
  readonly backup: {
    /** The end of the newest run without a failure. */
    readonly lastSuccessAt: number | null;
    /** The start of the run that is in progress; null: none is. */
    readonly runningSince: number | null;
    /** The time at which an archive was last restored and compared. */
    readonly lastProvedAt: number | null;
    /** The time of the last proof of the tenant whose last proof is the oldest. */
    readonly oldestProofAt: number | null;
    readonly tenantsUnarchived: number;
    readonly tenantsUnproved: number;
    readonly faultyArchives: number;
    /** Old archives that the target refused to remove in the newest run. */
    readonly notRemoved: number;
    /** Purged tenants whose archives the target still has. */
    readonly purgedLeft: number;
  };
  /** The webhooks of the served tenants, as of the time at which they were served last. */
  readonly webhooks: {
    /** The longest wait of a tenant that is due; 0: none waits. */
    readonly longestWaitSeconds: number;
    readonly failing: number;
    readonly disabled: number;
  };
  /** The mails of served tenants that no mail server has accepted yet. */
  readonly mails: {
    readonly waiting: number;
    /** The longest wait of a mail that is due; 0: none waits. */
    readonly longestWaitSeconds: number;
  };
}

const maxAgeMs = 10_000;
const maxWaitMs = 1_000;

/** SQL that is true while a process has the lock of backup runs: a killed run has none. */
const isRunning = `exists (
  select from pg_locks
   where locktype = 'advisory' and granted and classid = ${lockSpaces.backup} and objid = ${backupRunKey} and objsubid = 2
     and database = (select oid from pg_database where datname = current_database()))`;

/** The results of the last runs and drills in the control database. */
const backupCounts = `
  select json_build_object(
      'lastSuccessAt', (select extract(epoch from max(finished_at)) from backup_runs where state = 'succeeded'),
      'runningSince', (select extract(epoch from max(started_at)) from backup_runs where state = 'running' and ${isRunning}),
      'lastProvedAt', extract(epoch from max(proved.proved_at)),
      'oldestProofAt', extract(epoch from min(proved.proved_at)),
      'tenantsUnarchived', count(*) filter (where newest.archived_at is null),
      'tenantsUnproved', count(*) filter (where proved.proved_at is null),
      'faultyArchives', count(*) filter (where newest.fault is not null),
      'notRemoved', coalesce((select not_removed from backup_runs where finished_at is not null
                               order by id desc limit 1), 0),
      'purgedLeft', (select count(*) from purged_tenants where archives = 'left'))
    from tenants
    left join lateral (
      select archived_at, fault from archives
       where target = (select backup_target from installation) and tenant_guid = guid and state = 'complete'
       order by archived_at desc limit 1) newest on true
    left join (
      select tenant_guid, max(proved_at) as proved_at from archives
       where target = (select backup_target from installation) and state = 'complete' and proved_at is not null
         and fault is null
       group by 1) proved on proved.tenant_guid = guid
   where status <> 'provisioning'`;

const fleetCounts = `
  with last_run as (select * from migration_runs order by id desc limit 1)
  select (select coalesce(json_agg(t), '[]') from (
            select status, schema_version as "schemaVersion", count(*)::int as tenants from tenants
             group by 1, 2) t) as tenants,
         (select json_build_object('state', state, 'head', head, 'startedAt', extract(epoch from started_at),
                                   'finishedAt', extract(epoch from finished_at)) from last_run) as "lastRun",
         (select coalesce(json_agg(o), '[]') from (
            select o.state, count(*)::int as tenants from migration_outcomes o join last_run on run_id = last_run.id
             group by 1) o) as outcomes,
         (${backupCounts}) as backup,
         (select json_build_object(
              'longestWaitSeconds', greatest(0, coalesce(extract(epoch from now() - min(coalesce(waiting_since, due_at)) filter (where is_active)), 0)),
              'failing', coalesce(sum(failing) filter (where is_active), 0), 'disabled', coalesce(sum(disabled), 0))
            from webhook_tenants join tenants t on t.id = tenant_id
           where t.status = 'active' and not isolated) as webhooks,
         (select json_build_object(
              'waiting', count(*),
              'longestWaitSeconds', greatest(0, coalesce(extract(epoch from now() - min(m.created_at)), 0)))
            from (select tenant_id, created_at from mail_deliveries where state = 'waiting'
                   union all
                  select tenant_id, created_at from account_notices where state = 'waiting' and created_at <= now()) m
            join tenants t on t.id = tenant_id
           where t.status = 'active') as mails`;

/**
 * Returns a function that reads the counts of the fleet, at most once in 10 s. When the control
 * database does not respond within 1 s, the function returns the previous counts; undefined
 * when there are none.
 */
export function createFleetCounter(
  control: ControlDatabase,
): () => Promise<FleetCounts | undefined> {
  let counts: FleetCounts | undefined;
  let readAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;

  const read = async (): Promise<void> => {
    const [row] = await queryControl<FleetCounts>(control, 'fleet_counts', fleetCounts, []);
    counts = row;
    readAt = performance.now();
  };

  return async () => {
    if (performance.now() - readAt < maxAgeMs) return counts;
    reading ??= read()
      .catch(() => {}) // `change_feed_current` shows that the control database fails
      .finally(() => (reading = undefined));
    await atMost(reading, maxWaitMs);
    return counts;
  };
}

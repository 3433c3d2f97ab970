import type { Registry } from '@prometheus-io/client';
import type { FleetCounts } from '../../control/fleet-counts.ts';
import { addGauge, addValue } from '../../lib/collectors.ts';

/**
 * The metrics with a single value, and the function that reads it in the counts; null or
 * undefined: there is none.
 */
const values: readonly [
  name: string,
  help: string,
  value: (fleet: FleetCounts) => number | null | undefined,
][] = [
  [
    'migration_run_last_start_timestamp_seconds',
    'Start of the newest migration run, in seconds since 1970.',
    fleet => fleet.lastRun?.startedAt,
  ],
  [
    'migration_run_last_finish_timestamp_seconds',
    'End of the newest migration run, in seconds since 1970; absent while it runs.',
    fleet => fleet.lastRun?.finishedAt,
  ],
  [
    'backup_last_success_timestamp_seconds',
    'End of the newest backup run without a failure, in seconds since 1970; absent before the first one.',
    ({ backup }) => backup.lastSuccessAt,
  ],
  [
    'backup_running_since_timestamp_seconds',
    'Start of the backup run that is in progress, in seconds since 1970; absent while none is.',
    ({ backup }) => backup.runningSince,
  ],
  [
    'backup_last_proved_timestamp_seconds',
    'When an archive was last restored and compared, in seconds since 1970; absent before the first drill.',
    ({ backup }) => backup.lastProvedAt,
  ],
  [
    'backup_oldest_proof_timestamp_seconds',
    'When an archive of the tenant with the oldest drill was last restored as a drill, in seconds since 1970; tenants without a drill do not count.',
    ({ backup }) => backup.oldestProofAt,
  ],
  [
    'backup_tenants_unarchived',
    'Tenants without an archive.',
    ({ backup }) => backup.tenantsUnarchived,
  ],
  [
    'backup_tenants_unproved',
    'Tenants without an archive that a drill has proved.',
    ({ backup }) => backup.tenantsUnproved,
  ],
  [
    'backup_archives_faulty',
    'Tenants whose newest archive failed its last verification or drill.',
    ({ backup }) => backup.faultyArchives,
  ],
  [
    'backup_archives_not_removed',
    'Old archives that the target refused to remove in the newest backup run.',
    ({ backup }) => backup.notRemoved,
  ],
  [
    'backup_purged_tenants_left',
    'Purged tenants whose archives the target still has, or may have.',
    ({ backup }) => backup.purgedLeft,
  ],
  [
    'webhook_longest_wait_seconds',
    'How long a tenant whose webhooks are due has waited for a process to serve them; 0 if none waits.',
    ({ webhooks }) => webhooks.longestWaitSeconds,
  ],
  [
    'webhooks_failing',
    'Enabled webhooks whose last attempt failed.',
    ({ webhooks }) => webhooks.failing,
  ],
  [
    'webhooks_disabled',
    'Webhooks that the service has disabled.',
    ({ webhooks }) => webhooks.disabled,
  ],
  ['mails_waiting', 'Mails that no mail server has accepted yet.', ({ mails }) => mails.waiting],
  [
    'mail_longest_wait_seconds',
    'How long the first of the mails has waited that no mail server has accepted yet; 0 if none waits.',
    ({ mails }) => mails.longestWaitSeconds,
  ],
];

/**
 * Registers the tenants by state and version, the newest migration run, and the state of
 * backups and webhooks.
 * @param read returns undefined until the counts are known
 */
export function addFleetMetrics(registry: Registry, read: () => FleetCounts | undefined): void {
  addGauge(registry, {
    name: 'tenants',
    help: 'Tenants by state and schema version; the version is "none" before the first migration.',
    labelNames: ['state', 'schema_version'],
    read: () =>
      (read()?.tenants ?? []).map(({ status, schemaVersion, tenants }) => ({
        labels: { state: status, schema_version: schemaVersion ?? 'none' },
        value: tenants,
      })),
  });

  addGauge(registry, {
    name: 'migration_run_last_info',
    help: 'The newest migration run: its state and the version that it migrates to. The value is 1.',
    labelNames: ['state', 'schema_version'],
    read: () => {
      const run = read()?.lastRun;
      return run ? [{ labels: { state: run.state, schema_version: run.head }, value: 1 }] : [];
    },
  });

  addGauge(registry, {
    name: 'migration_run_last_tenants',
    help: 'Tenants of the newest migration run by outcome.',
    labelNames: ['outcome'],
    read: () =>
      (read()?.outcomes ?? []).map(({ state, tenants }) => ({
        labels: { outcome: state },
        value: tenants,
      })),
  });

  for (const [name, help, value] of values) {
    addValue(registry, 'gauge', name, help, () => {
      const fleet = read();
      return fleet && value(fleet);
    });
  }
}

import type { Registry } from 'prom-client';
import type { FleetCounts } from '../control/fleet-counts.ts';
import { addGauge } from './collectors.ts';

/**
 * Registers the state of the backups.
 * @param read returns undefined until the counts are known
 */
export function addBackupMetrics(registry: Registry, read: () => FleetCounts | undefined): void {
  const gauge = (name: string, help: string, value: (backup: FleetCounts['backup']) => number | null): void =>
    addGauge(registry, {
      name: `backup_${name}`,
      help,
      read: () => {
        const counts = read();
        const current = counts ? value(counts.backup) : null;
        return current === null ? [] : [{ value: current }];
      },
    });
  gauge(
    'last_success_timestamp_seconds',
    'End of the newest backup run without a failure, in seconds since 1970; absent before the first one.',
    backup => backup.lastSuccessAt,
  );
  gauge(
    'last_proved_timestamp_seconds',
    'When an archive was last restored and compared, in seconds since 1970; absent before the first drill.',
    backup => backup.lastProvedAt,
  );
  gauge(
    'oldest_proof_timestamp_seconds',
    'When an archive of the tenant with the oldest drill was last restored as a drill, in seconds since 1970; tenants without a drill do not count.',
    backup => backup.oldestProofAt,
  );
  gauge('tenants_unarchived', 'Tenants without an archive.', backup => backup.tenantsUnarchived);
  gauge('tenants_unproved', 'Tenants without an archive that a drill has proved.', backup => backup.tenantsUnproved);
  gauge('archives_faulty', 'Archives that failed their last verification or drill.', backup => backup.faultyArchives);
}

import type { Registry } from 'prom-client';
import type { FleetCounts } from '../control/fleet-counts.ts';
import { addGauge } from './collectors.ts';

/**
 * Registers the tenants by state and version, and the newest migration run.
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
  const time = (name: string, help: string, value: (run: NonNullable<FleetCounts['lastRun']>) => number | null): void =>
    addGauge(registry, {
      name: `migration_run_last_${name}_timestamp_seconds`,
      help,
      read: () => {
        const run = read()?.lastRun;
        const at = run ? value(run) : null;
        return at === null ? [] : [{ value: at }];
      },
    });
  time('start', 'Start of the newest migration run, in seconds since 1970.', run => run.startedAt);
  time(
    'finish',
    'End of the newest migration run, in seconds since 1970; absent while it runs.',
    run => run.finishedAt,
  );
  addGauge(registry, {
    name: 'migration_run_last_tenants',
    help: 'Tenants of the newest migration run by outcome.',
    labelNames: ['outcome'],
    read: () => (read()?.outcomes ?? []).map(({ state, tenants }) => ({ labels: { outcome: state }, value: tenants })),
  });
}

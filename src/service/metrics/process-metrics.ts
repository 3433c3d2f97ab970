import { collectDefaultMetrics, type Registry } from '@prometheus-io/client';
import { addGauge } from '../../lib/collectors.ts';
import { buildVersion } from '../../lib/runtime/build-version.ts';
import { setAggregator } from '../../lib/seams/metric-values.ts';

/** Metrics of the client that `promtool check metrics` refuses. */
const misnamed = [
  // Gauges with the ending of counters. The same numbers are in metrics with a label `type`.
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
  // Names that contain their type. Besides, sums of quantiles of several workers mean nothing.
  'nodejs_eventloop_utilization_summary',
  'nodejs_eventloop_utilization_histogram',
];
/**
 * The longest delay of a timer: the event loop is not sampled every 100 ms for metrics that are
 * removed.
 */
const neverMs = 2 ** 31 - 1;

/** Registers the metrics of the process and of Node. */
export function addNodeMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry, eventLoopUtilizationTimeout: neverMs });
  for (const name of misnamed) registry.removeSingleMetric(name);

  // The aggregators for several processes: the slowest event loop counts, and the start of the
  // first process, which started the others.
  for (const { name } of registry.getMetricsAsArray()) {
    if (name.startsWith('nodejs_eventloop_lag_')) setAggregator(registry, name, 'max');
  }
  setAggregator(registry, 'process_start_time_seconds', 'first');
}

/**
 * Registers the build that runs.
 * @param schemaVersion of tenants in this build
 */
export function addBuildMetric(registry: Registry, schemaVersion: string): void {
  addGauge(registry, {
    name: 'build_info',
    help: 'The build that runs: its version and the schema version of its tenants. The value is 1.',
    labelNames: ['version', 'schema_version'],
    aggregator: 'max',
    read: () => [{ labels: { version: buildVersion, schema_version: schemaVersion }, value: 1 }],
  });
}

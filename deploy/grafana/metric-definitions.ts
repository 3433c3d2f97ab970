import type { MetricDefinition } from '../../src/lib/seams/metric-values.ts';
import { createMetrics, type MetricsSources } from '../../src/service/metrics/metrics.ts';
import { WorkerMetrics } from '../../src/service/metrics/worker-metrics.ts';

/** A process that has done nothing. Only its definitions are read. */
const idle: MetricsSources = {
  databases: {
    budgets: { all: new Map() },
    largeReads: { running: 0 },
  } as unknown as MetricsSources['databases'],
  responseCache: { bytes: 0, counts: { hits: 0, misses: 0 } },
  feed: { current: true },
  secrets: { isReady: true },
  passwords: { usage: { hashed: 0, waiting: 0 } },
  logOutput: { droppedLines: 0 },
  mails: { sent: 0, failed: 0, refused: 0 },
  unsentResponses: { bytes: 0, cut: 0 },
  rateLimitStore: { isFallback: false },
  heldFeeds: { oldest: undefined },
  webhooks: { succeeded: 0, failed: 0, running: 0 },
  readFleet: async () => undefined,
  schemaVersion: '',
};

/** Returns every metric that a process of the service can have, in the order of their names. */
export function metricDefinitions(): MetricDefinition[] {
  const all = [
    ...createMetrics(idle).definitions,
    ...new WorkerMetrics(() => ({ serving: 0, died: 0 })).definitions,
  ];
  const byName = new Map(all.map(definition => [definition.name, definition]));
  return [...byName.values()].sort((a, b) => a.name.localeCompare(b.name));
}

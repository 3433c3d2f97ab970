import { collectDefaultMetrics, Registry } from 'prom-client';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import type { ChangeFeed } from '../control/change-feed.ts';
import type { RequestOutcome } from '../http/access-log.ts';
import type { LogOutput } from '../log-output.ts';
import type { ResponseCache } from '../response-cache/response-cache.ts';
import { addCacheMetrics } from './cache-metrics.ts';
import { addCounter, addGauge } from './collectors.ts';
import { addConnectionMetrics } from './connection-metrics.ts';
import { addRequestMetrics } from './request-metrics.ts';

export interface Metrics {
  /** Counts one request. */
  count(outcome: RequestOutcome): void;
  /** Renders all metrics in the text format of Prometheus. */
  render(): Promise<string>;
  readonly contentType: string;
}

interface MetricsSources {
  databases: Pick<TenantDatabases, 'budgets'>;
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>;
  feed: Pick<ChangeFeed, 'current'>;
  passwords: { readonly usage: { readonly hashed: number; readonly waiting: number } };
  logOutput: Pick<LogOutput, 'droppedLines'>;
}

/** Collects the metrics of the process. The number of label values is bounded, however many tenants there are. */
export function createMetrics({ databases, responseCache, feed, passwords, logOutput }: MetricsSources): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const count = addRequestMetrics(registry);
  addConnectionMetrics(registry, databases.budgets);
  addCacheMetrics(registry, responseCache, feed);
  addCounter(registry, {
    name: 'password_hashes_total',
    help: 'Passwords hashed, for verification or to set them.',
    read: () => [{ value: passwords.usage.hashed }],
  });
  addGauge(registry, {
    name: 'password_hashes_waiting',
    help: 'Requests that wait for a password hash.',
    read: () => [{ value: passwords.usage.waiting }],
  });
  addCounter(registry, {
    name: 'log_lines_dropped_total',
    help: 'Log lines dropped, because standard output did not accept them.',
    read: () => [{ value: logOutput.droppedLines }],
  });
  return { count, render: () => registry.metrics(), contentType: registry.contentType };
}

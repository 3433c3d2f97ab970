import { type Metric, type MetricObjectWithValues, type MetricValue, Registry } from 'prom-client';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import type { ChangeFeed } from '../control/change-feed.ts';
import type { FleetCounts } from '../control/fleet-counts.ts';
import type { MasterKeyWatch } from '../control/master-key-watch.ts';
import type { RequestOutcome } from '../http/access-log.ts';
import type { RateLimitStore } from '../http/rate-limit/rate-limit-store.ts';
import type { UnsentResponses } from '../http/unsent-responses.ts';
import type { LogOutput } from '../log/log-output.ts';
import type { ResponseCache } from '../response-cache/response-cache.ts';
import { addCacheMetrics } from './cache-metrics.ts';
import { addValue } from './collectors.ts';
import { addConnectionMetrics } from './connection-metrics.ts';
import { addFleetMetrics } from './fleet-metrics.ts';
import { addBuildMetric, addNodeMetrics } from './process-metrics.ts';
import { addRequestMetrics } from './request-metrics.ts';
import { addWebhookMetrics, type DeliveryCounts } from './webhook-metrics.ts';

/** A metric with its current values, as JSON. */
export type MetricValues = MetricObjectWithValues<MetricValue<string>>;

/** What is known of a metric without its values. */
export interface MetricDefinition {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary';
  readonly labelNames: readonly string[];
}

export interface Metrics {
  /** Counts one request. */
  count(outcome: RequestOutcome): void;
  /** Renders all metrics in the text format of Prometheus. */
  render(): Promise<string>;
  /**
   * Reads the values of all metrics, which the primary process combines with those of other workers.
   * @param withFleet false leaves out the metrics that are the same in every process
   */
  read(withFleet: boolean): Promise<MetricValues[]>;
  readonly contentType: string;
  readonly definitions: readonly MetricDefinition[];
}

export interface MetricsSources {
  databases: Pick<TenantDatabases, 'budgets' | 'readMemory'>;
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>;
  feed: Pick<ChangeFeed, 'current'>;
  masterKey: Pick<MasterKeyWatch, 'isKnown'>;
  passwords: { readonly usage: { readonly hashed: number; readonly waiting: number } };
  logOutput: Pick<LogOutput, 'droppedLines'>;
  mails: { readonly sent: number; readonly failed: number };
  unsentResponses: Pick<UnsentResponses, 'bytes' | 'cut'>;
  rateLimitStore: Pick<RateLimitStore, 'isFallback'>;
  webhooks: DeliveryCounts;
  readFleet: () => Promise<FleetCounts | undefined>;
  /** The schema version of tenants in this build. */
  schemaVersion: string;
}

/** Collects the metrics of the process. The number of label values is bounded, however many tenants there are. */
export function createMetrics(sources: MetricsSources): Metrics {
  const { databases, responseCache, feed, passwords, logOutput, mails, unsentResponses, rateLimitStore, readFleet } =
    sources;
  const registry = new Registry();
  const gauge = addValue.bind(undefined, registry, 'gauge');
  const counter = addValue.bind(undefined, registry, 'counter');
  let fleet: FleetCounts | undefined;
  addNodeMetrics(registry);
  addBuildMetric(registry, sources.schemaVersion);
  const count = addRequestMetrics(registry);
  addFleetMetrics(registry, () => fleet);
  addWebhookMetrics(registry, sources.webhooks);
  addConnectionMetrics(registry, databases.budgets);
  addCacheMetrics(registry, responseCache, feed);
  gauge(
    'master_key_known',
    '1 while the process has the master key of the control database; 0 after a reseal under another one.',
    () => Number(sources.masterKey.isKnown),
    'min',
  );
  counter('password_hashes_total', 'Passwords hashed, for verification or to set them.', () => passwords.usage.hashed);
  gauge('password_hashes_waiting', 'Requests that wait for a password hash.', () => passwords.usage.waiting);
  gauge(
    'large_read_bytes',
    'Bytes of large results that were received from tenant databases and are not yet encoded.',
    () => databases.readMemory.bytes,
  );
  gauge('unsent_response_bytes', 'Bytes of responses that clients have not received yet.', () => unsentResponses.bytes);
  counter(
    'unsent_responses_cut_total',
    'Connections reset, because the unsent bytes of all responses were above the limit.',
    () => unsentResponses.cut,
  );
  counter(
    'log_lines_dropped_total',
    'Log lines dropped, because standard output did not accept them.',
    () => logOutput.droppedLines,
  );
  counter('mails_sent_total', 'Mails that the mail server accepted, or that were written to a file.', () => mails.sent);
  counter('mails_failed_total', 'Mails that could not be sent.', () => mails.failed);
  gauge(
    'rate_limits_own',
    '1 while a process cannot reach Redis or its primary process, and counts rate limits alone; otherwise 0.',
    () => Number(rateLimitStore.isFallback),
    'max',
  );
  const render = async (): Promise<string> => {
    fleet = await readFleet();
    return registry.metrics();
  };
  const read = async (withFleet: boolean): Promise<MetricValues[]> => {
    fleet = withFleet ? await readFleet() : undefined;
    return registry.getMetricsAsJSON();
  };
  return { count, render, read, contentType: registry.contentType, definitions: definitionsOf(registry) };
}

/** Returns what a registry knows of its metrics. prom-client has the labels and the type, and does not declare them. */
export function definitionsOf(registry: Registry): MetricDefinition[] {
  return (registry.getMetricsAsArray() as unknown as (Metric & MetricDefinition)[]).map(metric => ({
    name: metric.name,
    help: metric.help,
    type: metric.type,
    labelNames: metric.labelNames,
  }));
}

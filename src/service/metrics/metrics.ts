import { Registry } from '@prometheus-io/client';
import type { ChangeFeed } from '../../control/change-feed.ts';
import type { FleetCounts } from '../../control/fleet-counts.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import { addCounter, addGauge, addValue, type Sample } from '../../lib/collectors.ts';
import type { UnsentResponses } from '../../lib/http/response/unsent-responses.ts';
import type { RateLimitStore } from '../../lib/http/steps/rate-limit/rate-limit-store.ts';
import type { LogOutput } from '../../lib/log/log-output.ts';
import { definitionsOf, type MetricValues } from '../../lib/seams/metric-values.ts';
import {
  addWebhookMetrics,
  type DeliveryCounts,
  type HeldFeed,
} from '../../sales/webhooks/webhook-metrics.ts';
import type { ConnectionBudget } from '../../tenancy/connections/connection-budget.ts';
import type { TenantDatabases } from '../../tenancy/connections/tenant-databases.ts';
import type { ResponseCache } from '../../tenancy/response-cache/response-cache.ts';
import { addFleetMetrics } from './fleet-metrics.ts';
import { addBuildMetric, addNodeMetrics } from './process-metrics.ts';
import { addRequestMetrics } from './request-metrics.ts';

export interface MetricsSources {
  databases: Pick<TenantDatabases, 'budgets' | 'largeReads'>;
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>;
  feed: Pick<ChangeFeed, 'current'>;
  secrets: Pick<SecretBox, 'isReady'>;
  passwords: { readonly usage: { readonly hashed: number; readonly waiting: number } };
  logOutput: Pick<LogOutput, 'droppedLines'>;
  mails: { readonly sent: number; readonly failed: number; readonly refused: number };
  unsentResponses: Pick<UnsentResponses, 'bytes' | 'cut'>;
  rateLimitStore: Pick<RateLimitStore, 'isFallback'>;
  webhooks: DeliveryCounts;
  heldFeeds: HeldFeed;
  readFleet: () => Promise<FleetCounts | undefined>;
  /** The schema version of tenants in this build. */
  schemaVersion: string;
}

/**
 * Collects the metrics of the process. No label names a tenant, so the number of series is
 * bounded.
 */
export function createMetrics(sources: MetricsSources) {
  const {
    databases,
    responseCache,
    feed,
    passwords,
    logOutput,
    mails,
    unsentResponses,
    rateLimitStore,
    readFleet,
  } = sources;

  const registry = new Registry();
  const gauge = addValue.bind(undefined, registry, 'gauge');
  const counter = addValue.bind(undefined, registry, 'counter');
  let fleet: FleetCounts | undefined;

  addNodeMetrics(registry);
  addBuildMetric(registry, sources.schemaVersion);
  const count = addRequestMetrics(registry);
  addFleetMetrics(registry, () => fleet);
  addWebhookMetrics(registry, sources.webhooks, sources.heldFeeds);
  addConnectionMetrics(registry, databases.budgets.all);
  addCacheMetrics(registry, responseCache, feed);

  gauge(
    'master_key_known',
    '1 while the process has the present master key of the control database; 0 after a reseal under another one.',
    () => Number(sources.secrets.isReady),
    'min',
  );

  counter(
    'password_hashes_total',
    'Passwords hashed, for verification or to set them.',
    () => passwords.usage.hashed,
  );
  gauge(
    'password_hashes_waiting',
    'Requests that wait for a password hash.',
    () => passwords.usage.waiting,
  );

  gauge(
    'large_reads',
    'Large results that are being received from tenant databases, or encoded.',
    () => databases.largeReads.running,
  );

  gauge(
    'unsent_response_bytes',
    'Bytes of responses, streams and exports that clients have not received yet.',
    () => unsentResponses.bytes,
  );
  counter(
    'unsent_responses_cut_total',
    'Connections reset, because the unsent bytes of a tenant or of all were above the limit.',
    () => unsentResponses.cut,
  );

  counter(
    'log_lines_dropped_total',
    'Log lines dropped, because standard output did not accept them.',
    () => logOutput.droppedLines,
  );

  counter(
    'mails_sent_total',
    'Mails that the mail server accepted, or that were written to a file.',
    () => mails.sent,
  );
  counter(
    'mails_failed_total',
    'Attempts to send a mail that failed; most are repeated.',
    () => mails.failed,
  );
  counter(
    'mails_refused_total',
    'Mails that are not tried again, because the mail server refused them, or accepted none of the attempts.',
    () => mails.refused,
  );

  gauge(
    'rate_limits_own',
    '1 while a process cannot reach Redis, and counts rate limits alone; otherwise 0.',
    () => Number(rateLimitStore.isFallback),
    'max',
  );

  /** Renders all metrics in the text format of Prometheus. */
  const render = async (): Promise<string> => {
    fleet = await readFleet();
    return registry.metrics();
  };

  /**
   * Reads the values of all metrics, which the primary process combines with those of other
   * workers.
   * @param withFleet false leaves out the metrics that are the same in every process
   */
  const read = async (withFleet: boolean): Promise<MetricValues[]> => {
    fleet = withFleet ? await readFleet() : undefined;
    return registry.getMetricsAsJSON();
  };

  return {
    count,
    render,
    read,
    contentType: registry.contentType,
    definitions: definitionsOf(registry),
  };
}

/**
 * Registers the counts and the memory of the response cache, and the state of the change feed
 * that it depends on.
 */
function addCacheMetrics(
  registry: Registry,
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>,
  feed: Pick<ChangeFeed, 'current'>,
): void {
  const counter = (name: keyof ResponseCache['counts'], help: string) =>
    addValue(
      registry,
      'counter',
      `response_cache_${name}_total`,
      help,
      () => responseCache.counts[name],
    );

  counter('hits', 'Responses served from memory.');
  counter('misses', 'Cacheable responses that had to be read from a database.');
  const bytes = 'Memory used by cached responses, in bytes.';
  addValue(registry, 'gauge', 'response_cache_bytes', bytes, () => responseCache.bytes);
  addValue(
    registry,
    'gauge',
    'change_feed_current',
    '1 while the change feed works; 0 while it is down and the service serves nothing from memory.',
    () => Number(feed.current),
    'min',
  );
}

/**
 * Registers the counts of each connection budget. The label `server` is host and port of the
 * PostgreSQL server.
 */
function addConnectionMetrics(
  registry: Registry,
  budgets: ReadonlyMap<string, ConnectionBudget>,
): void {
  const perServer = (value: (budget: ConnectionBudget) => number) => (): Sample[] =>
    [...budgets].map(([server, budget]) => ({ labels: { server }, value: value(budget) }));
  const gauge = (name: string, help: string, value: (budget: ConnectionBudget) => number) =>
    addGauge(registry, {
      name: `database_connections_${name}`,
      help,
      labelNames: ['server'],
      read: perServer(value),
    });
  const counter = (name: string, help: string, value: (budget: ConnectionBudget) => number) =>
    addCounter(registry, { name, help, labelNames: ['server'], read: perServer(value) });

  gauge(
    'open',
    'Tenant connections to the server, including those being opened or closed.',
    b => b.usage.open,
  );
  gauge('in_use', 'Tenant connections in use by a request.', b => b.usage.inUse);
  gauge('waiting', 'Requests that wait for a connection.', b => b.usage.waiting);
  gauge('limit', 'Maximum tenant connections of this process to the server.', b => b.max);
  counter('database_connections_opened_total', 'Connections opened.', b => b.counts.opened);
  counter(
    'database_connections_evicted_total',
    'Idle connections of one tenant closed to make room for another tenant.',
    b => b.counts.evicted,
  );
  counter(
    'database_connection_waits_total',
    'Waits for a connection that have ended.',
    b => b.counts.waits,
  );
  counter(
    'database_connection_wait_seconds_total',
    'Seconds that requests have waited for a connection.',
    b => b.counts.waitedMs / 1_000,
  );
  counter(
    'database_connections_refused_total',
    'Waits that ended without a connection.',
    b => b.counts.refused,
  );
  counter(
    'database_server_full_total',
    'Connections that the server refused because it had no more (SQLSTATE 53300); they are tried again.',
    b => b.counts.serverFull,
  );
}

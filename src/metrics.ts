import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { BudgetCounts, ConnectionBudget } from './connections/connection-budget.ts';
import type { TenantDatabases } from './connections/tenant-databases.ts';
import type { ChangeFeed } from './control/change-feed.ts';
import type { RequestOutcome } from './http/access-log.ts';
import type { ResponseCache } from './response-cache/response-cache.ts';

export interface Metrics {
  count(outcome: RequestOutcome): void;
  /** In the text format of Prometheus. */
  render(): Promise<string>;
  readonly contentType: string;
}

/** The requests of one route that were answered in one way. Counted here, where it costs next to nothing, and told when asked. */
interface Answered {
  readonly labels: { method: string; route: string; status: number };
  requests: number;
  readonly duration: Histogram.Internal<string>;
}

interface MetricsSources {
  databases: Pick<TenantDatabases, 'budgets'>;
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>;
  feed: Pick<ChangeFeed, 'current'>;
  passwords: { readonly usage: { readonly hashed: number; readonly waiting: number } };
}

const maxTenants = 100;

/**
 * Numbers for the operator's monitoring. Every label takes few values: routes by their pattern, servers, and the first
 * 100 tenants that this process meets by their slug; those after them are counted together, as `other`.
 */
export function createMetrics({ databases, responseCache, feed, passwords }: MetricsSources): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });

  const answered = new Map<string, Answered>();
  new Counter({
    name: 'http_requests_total',
    help: 'Requests answered, by route and status; 499 when the client left before',
    labelNames: ['method', 'route', 'status'],
    registers,
    collect() {
      this.reset();
      for (const { labels, requests } of answered.values()) this.inc(labels, requests);
    },
  });
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'From the head of a request to the end of its answer',
    labelNames: ['route'],
    buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers,
  });
  const byTenant = new Map<string, number>();
  new Counter({
    name: 'tenant_requests_total',
    help: `Requests of users by tenant: the first ${maxTenants} of this process by name, all others together`,
    labelNames: ['tenant'],
    registers,
    collect() {
      this.reset();
      for (const [tenant, requests] of byTenant) this.inc({ tenant }, requests);
    },
  });

  const perServer = (name: string, help: string, value: (budget: ConnectionBudget) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['server'],
      registers,
      collect() {
        for (const [server, budget] of databases.budgets) this.set({ server }, value(budget));
      },
    });
  perServer('database_connections_open', 'Tenant connections that a server sees', ({ usage }) => usage.open);
  perServer('database_connections_in_use', 'Of them, those in use', ({ usage }) => usage.inUse);
  perServer('database_connections_waiting', 'Requests that wait for a connection', ({ usage }) => usage.waiting);
  perServer('database_connections_limit', 'The most tenant connections to a server', ({ max }) => max);

  const totalPerServer = (name: string, help: string, value: (counts: BudgetCounts) => number) =>
    new Counter({
      name,
      help,
      labelNames: ['server'],
      registers,
      collect() {
        this.reset();
        for (const [server, { counts }] of databases.budgets) this.inc({ server }, value(counts));
      },
    });
  totalPerServer('database_connections_opened_total', 'Connections opened', counts => counts.opened);
  totalPerServer(
    'database_connections_evicted_total',
    'Idle connections of one tenant closed to make room for another',
    counts => counts.evicted,
  );
  totalPerServer('database_connection_waits_total', 'Waits for a connection that ended', counts => counts.waits);
  totalPerServer(
    'database_connection_wait_seconds_total',
    'Time that requests have waited for a connection',
    counts => counts.waitedMs / 1_000,
  );
  totalPerServer('database_connections_refused_total', 'Waits that ended without one', counts => counts.refused);

  new Gauge({
    name: 'response_cache_bytes',
    help: 'Memory used by cached responses.',
    registers,
    collect() {
      this.set(responseCache.bytes);
    },
  });
  const cacheTotal = (name: string, help: string, value: (counts: ResponseCache['counts']) => number) =>
    new Counter({
      name: `response_cache_${name}_total`,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(value(responseCache.counts));
      },
    });
  cacheTotal('hits', 'Responses served from memory.', counts => counts.hits);
  cacheTotal('misses', 'Cacheable responses that had to be read from a database.', counts => counts.misses);
  cacheTotal(
    'revalidations',
    'Cached responses revalidated without a query, because the write monitor proved the database unchanged.',
    counts => counts.revalidations,
  );
  new Gauge({
    name: 'change_feed_current',
    help: '1 while the change feed works; at 0 nothing is served from memory',
    registers,
    collect() {
      this.set(feed.current ? 1 : 0);
    },
  });

  new Counter({
    name: 'password_hashes_total',
    help: 'Passwords hashed, to check one or to set one',
    registers,
    collect() {
      this.reset();
      this.inc(passwords.usage.hashed);
    },
  });
  new Gauge({
    name: 'password_hashes_waiting',
    help: 'Logins and other requests that wait until a password can be hashed',
    registers,
    collect() {
      this.set(passwords.usage.waiting);
    },
  });

  const answeredAs = (method: string, route: string, status: number): Answered => {
    const key = `${method} ${route} ${status}`;
    let found = answered.get(key);
    if (!found) {
      found = { labels: { method, route, status }, requests: 0, duration: durations.labels(route) };
      answered.set(key, found);
    }
    return found;
  };
  return {
    count: ({ method, route = 'none', status, ms, tenant }) => {
      const found = answeredAs(method, route, status);
      found.requests++;
      found.duration.observe(ms / 1_000);
      if (tenant === undefined) return;
      const name = byTenant.has(tenant) || byTenant.size < maxTenants ? tenant : 'other';
      byTenant.set(name, (byTenant.get(name) ?? 0) + 1);
    },
    render: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

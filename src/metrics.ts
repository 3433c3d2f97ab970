import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { BudgetCounts, ConnectionBudget } from './connections/connection-budget.ts';
import type { TenantDatabases } from './connections/tenant-databases.ts';
import type { ChangeFeed } from './control/change-feed.ts';
import type { RequestOutcome } from './http/access-log.ts';
import type { KeptAnswers } from './response-cache/response-cache.ts';

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

interface MetricsParts {
  databases: Pick<TenantDatabases, 'budgets'>;
  answers: Pick<KeptAnswers, 'bytes' | 'counts'>;
  feed: Pick<ChangeFeed, 'current'>;
  passwords: { readonly usage: { readonly hashed: number; readonly waiting: number } };
}

const mostTenants = 100;

/**
 * Numbers for the operator's monitoring. Every label takes few values: routes by their pattern, servers, and the first
 * 100 tenants that this process meets by their slug; those after them are counted together, as `other`.
 */
export function createMetrics({ databases, answers, feed, passwords }: MetricsParts): Metrics {
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
    help: `Requests of users by tenant: the first ${mostTenants} of this process by name, all others together`,
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
    name: 'kept_answers_bytes',
    help: 'Memory that answers take which are served without a database',
    registers,
    collect() {
      this.set(answers.bytes);
    },
  });
  new Counter({
    name: 'kept_answers_total',
    help: 'Answers served from memory, and those that had to be read',
    labelNames: ['from'],
    registers,
    collect() {
      this.reset();
      this.inc({ from: 'memory' }, answers.counts.found);
      this.inc({ from: 'database' }, answers.counts.read);
    },
  });
  new Counter({
    name: 'kept_answers_prolonged_total',
    help: 'Answers that were not read again in time, because nobody had written to their database',
    registers,
    collect() {
      this.reset();
      this.inc(answers.counts.prolonged);
    },
  });
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
      const name = byTenant.has(tenant) || byTenant.size < mostTenants ? tenant : 'other';
      byTenant.set(name, (byTenant.get(name) ?? 0) + 1);
    },
    render: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

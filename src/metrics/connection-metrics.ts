import type { Registry } from 'prom-client';
import type { ConnectionBudget } from '../connections/connection-budget.ts';
import { addCounter, addGauge, type Sample } from './collectors.ts';

/** Registers the counts of each connection budget. The label `server` is host and port of the PostgreSQL server. */
export function addConnectionMetrics(registry: Registry, budgets: ReadonlyMap<string, ConnectionBudget>): void {
  const perServer = (value: (budget: ConnectionBudget) => number) => (): Sample[] =>
    [...budgets].map(([server, budget]) => ({ labels: { server }, value: value(budget) }));
  const gauge = (name: string, help: string, value: (budget: ConnectionBudget) => number) =>
    addGauge(registry, { name: `database_connections_${name}`, help, labelNames: ['server'], read: perServer(value) });
  const counter = (name: string, help: string, value: (budget: ConnectionBudget) => number) =>
    addCounter(registry, { name, help, labelNames: ['server'], read: perServer(value) });

  gauge('open', 'Tenant connections to the server, including those being opened or closed.', b => b.usage.open);
  gauge('in_use', 'Tenant connections in use by a request.', b => b.usage.inUse);
  gauge('waiting', 'Requests that wait for a connection.', b => b.usage.waiting);
  gauge('limit', 'Maximum tenant connections of this process to the server.', b => b.max);
  counter('database_connections_opened_total', 'Connections opened.', b => b.counts.opened);
  counter(
    'database_connections_evicted_total',
    'Idle connections of one tenant closed to make room for another tenant.',
    b => b.counts.evicted,
  );
  counter('database_connection_waits_total', 'Waits for a connection that have ended.', b => b.counts.waits);
  counter(
    'database_connection_wait_seconds_total',
    'Seconds that requests have waited for a connection.',
    b => b.counts.waitedMs / 1_000,
  );
  counter('database_connections_refused_total', 'Waits that ended without a connection.', b => b.counts.refused);
}

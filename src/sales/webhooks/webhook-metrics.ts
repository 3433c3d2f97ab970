import type { Registry } from '@prometheus-io/client';
import { addCounter, addGauge, addValue } from '../../lib/collectors.ts';

/** Attempts since the start of the process, and attempts that run now. */
export interface DeliveryCounts {
  readonly succeeded: number;
  readonly failed: number;
  readonly running: number;
}

/** The oldest transaction that holds back changes, at the moment. */
export interface HeldFeed {
  readonly oldest:
    | { readonly pid: number | null; readonly application: string; readonly seconds: number }
    | undefined;
}

/** Registers the metrics of attempts to send, and of transactions that hold back changes. */
export function addWebhookMetrics(
  registry: Registry,
  counts: DeliveryCounts,
  held: HeldFeed,
): void {
  addCounter(registry, {
    name: 'webhook_attempts_total',
    help: 'Attempts to send a message to a webhook, by whether the receiver accepted it.',
    labelNames: ['outcome'],
    read: () => [
      { labels: { outcome: 'success' }, value: counts.succeeded },
      { labels: { outcome: 'failure' }, value: counts.failed },
    ],
  });
  addGauge(registry, {
    name: 'feed_oldest_holder_seconds',
    help:
      'Age of the oldest transaction that has held back changes of a tenant, in its feed and for its webhooks, for 30 s; ' +
      'absent without one. Its session and application are labels.',
    labelNames: ['pid', 'application'],
    aggregator: 'max',
    read: () => {
      const { oldest } = held;
      if (!oldest) return [];

      const { pid, application, seconds } = oldest;
      return [{ labels: { pid: pid ?? 0, application }, value: seconds }];
    },
  });
  const help = 'Messages that are being sent to webhooks.';
  addValue(registry, 'gauge', 'webhook_attempts_running', help, () => counts.running);
}

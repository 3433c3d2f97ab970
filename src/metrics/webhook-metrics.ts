import type { Registry } from 'prom-client';
import type { FleetCounts } from '../control/fleet-counts.ts';
import { addCounter, addGauge } from './collectors.ts';

/** Attempts since the start of the process, and those that run now. */
export interface DeliveryCounts {
  readonly succeeded: number;
  readonly failed: number;
  readonly running: number;
}

/**
 * Registers what the process sends to webhooks, and how those of the fleet are doing.
 * @param read returns undefined until the counts are known
 */
export function addWebhookMetrics(
  registry: Registry,
  counts: DeliveryCounts,
  read: () => FleetCounts | undefined,
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
    name: 'webhook_attempts_running',
    help: 'Messages that are being sent to webhooks.',
    read: () => [{ value: counts.running }],
  });
  const gauge = (name: string, help: string, value: (webhooks: FleetCounts['webhooks']) => number): void =>
    addGauge(registry, {
      name,
      help,
      read: () => {
        const fleet = read();
        return fleet ? [{ value: value(fleet.webhooks) }] : [];
      },
    });
  gauge(
    'webhook_longest_wait_seconds',
    'How long a tenant whose webhooks are due has waited for a process to serve them; 0 if none waits.',
    webhooks => webhooks.longestWaitSeconds,
  );
  gauge('webhooks_failing', 'Enabled webhooks whose last attempt failed.', webhooks => webhooks.failing);
  gauge('webhooks_disabled', 'Webhooks that the service has disabled.', webhooks => webhooks.disabled);
}

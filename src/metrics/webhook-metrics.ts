import type { Registry } from '@prometheus-io/client';
import { addCounter, addValue } from './collectors.ts';

/** Attempts since the start of the process, and those that run now. */
export interface DeliveryCounts {
  readonly succeeded: number;
  readonly failed: number;
  readonly running: number;
}

/** Registers what the process sends to webhooks. */
export function addWebhookMetrics(registry: Registry, counts: DeliveryCounts): void {
  addCounter(registry, {
    name: 'webhook_attempts_total',
    help: 'Attempts to send a message to a webhook, by whether the receiver accepted it.',
    labelNames: ['outcome'],
    read: () => [
      { labels: { outcome: 'success' }, value: counts.succeeded },
      { labels: { outcome: 'failure' }, value: counts.failed },
    ],
  });
  const help = 'Messages that are being sent to webhooks.';
  addValue(registry, 'gauge', 'webhook_attempts_running', help, () => counts.running);
}

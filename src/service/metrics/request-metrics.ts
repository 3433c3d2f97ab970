import { Histogram, type Registry } from '@prometheus-io/client';
import { addCounter } from '../../lib/collectors.ts';
import type { RequestOutcome } from '../../lib/http/steps/access-log.ts';

/** The requests of one route that ended with one status. */
interface RouteCount {
  readonly labels: { method: string; route: string; status: number };
  requests: number;
  readonly duration: Histogram.Internal<string>;
}

/**
 * Registers requests by route and status.
 * @returns the function that counts a request
 */
export function addRequestMetrics(registry: Registry): (outcome: RequestOutcome) => void {
  const byRoute = new Map<string, RouteCount>();
  const byReason = new Map<string, number>();
  addCounter(registry, {
    name: 'http_requests_total',
    help: 'Requests by route and status; status 499 if the client disconnected before the response.',
    labelNames: ['method', 'route', 'status'],
    read: () => [...byRoute.values()].map(({ labels, requests }) => ({ labels, value: requests })),
  });
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Seconds from the head of a request to the end of its response.',
    labelNames: ['route'],
    buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers: [registry],
  });
  addCounter(registry, {
    name: 'http_unauthorized_total',
    help: 'Responses with status 401 by reason.',
    labelNames: ['reason'],
    read: () => [...byReason].map(([reason, value]) => ({ labels: { reason }, value })),
  });

  const countOf = (method: string, route: string, status: number): RouteCount => {
    const key = `${method} ${route} ${status}`;
    let count = byRoute.get(key);
    if (!count) {
      count = { labels: { method, route, status }, requests: 0, duration: durations.labels(route) };
      byRoute.set(key, count);
    }
    return count;
  };
  return ({ method, route = 'none', status, ms, reason = 'none' }) => {
    const count = countOf(method, route, status);
    count.requests++;
    count.duration.observe(ms / 1_000);
    if (status === 401) byReason.set(reason, (byReason.get(reason) ?? 0) + 1);
  };
}

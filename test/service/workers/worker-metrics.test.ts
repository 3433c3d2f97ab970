import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import { expect } from 'chai';
import type { MetricValues } from '../../../src/lib/seams/metric-values.ts';
import { WorkerMetrics } from '../../../src/service/metrics/worker-metrics.ts';

interface Values {
  requests: number;
  seconds: number;
  open: number;
  current: 0 | 1;
}

/** Returns the metrics of a worker. */
async function metricsOf({ requests, seconds, open, current }: Values): Promise<MetricValues[]> {
  const registry = new Registry();
  const options = { help: 'help', registers: [registry] };
  new Counter({ name: 'requests_total', labelNames: ['route'], ...options }).inc(
    { route: '/a' },
    requests,
  );
  new Histogram({ name: 'duration_seconds', buckets: [0.1, 1], ...options }).observe(seconds);
  new Gauge({ name: 'open', ...options }).set(open);
  new Gauge({ name: 'current', aggregator: 'min', ...options }).set(current);
  // The metrics, as they arrive from another process.
  return JSON.parse(JSON.stringify(await registry.getMetricsAsJSON()));
}

async function render(metrics: WorkerMetrics): Promise<Record<string, number>> {
  const lines = [...(await metrics.render()).matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm)];
  return Object.fromEntries(lines.map(([, name = '', value]) => [name, Number(value)]));
}

describe('metrics of workers', () => {
  it('counters, histograms and gauges of all workers are summed, or combined as the gauge says', async () => {
    const metrics = new WorkerMetrics(() => ({ serving: 2, died: 3 }));
    metrics.record(1, await metricsOf({ requests: 5, seconds: 0.05, open: 2, current: 1 }));
    metrics.record(2, await metricsOf({ requests: 7, seconds: 0.5, open: 4, current: 0 }));

    expect(await render(metrics)).to.include({
      'requests_total{route="/a"}': 12,
      'duration_seconds_bucket{le="0.1"}': 1,
      'duration_seconds_bucket{le="1"}': 2,
      'duration_seconds_bucket{le="+Inf"}': 2,
      duration_seconds_sum: 0.55,
      duration_seconds_count: 2,
      open: 6,
      current: 0,
      workers: 2,
      workers_died_total: 3,
    });

    expect((await render(metrics)).process_start_time_seconds).to.be.closeTo(
      Date.now() / 1_000,
      86_400,
    );
  });

  it('the counts of a worker that has ended stay in the counters, and are removed from the gauges', async () => {
    const metrics = new WorkerMetrics(() => ({ serving: 1, died: 0 }));
    metrics.record(1, await metricsOf({ requests: 5, seconds: 0.05, open: 2, current: 0 }));
    metrics.record(2, await metricsOf({ requests: 7, seconds: 0.5, open: 4, current: 1 }));

    metrics.end(1);
    metrics.record(3, await metricsOf({ requests: 1, seconds: 2, open: 1, current: 1 }));
    metrics.end(3);

    expect(await render(metrics)).to.include({
      'requests_total{route="/a"}': 13,
      'duration_seconds_bucket{le="1"}': 2,
      duration_seconds_count: 3,
      open: 4,
      current: 1,
    });
  });

  it('no counter ever falls, however fractions are rounded when workers end', async () => {
    const metrics = new WorkerMetrics(() => ({ serving: 1, died: 0 }));
    let last = 0;

    for (let worker = 1; worker <= 60; worker++) {
      metrics.record(
        worker,
        await metricsOf({ requests: 0.1 * worker, seconds: 1 / worker, open: 0, current: 1 }),
      );
      if (worker > 3) metrics.end(worker - 3);
      const { duration_seconds_sum: sum = 0 } = await render(metrics);
      expect(sum).to.be.at.least(last);
      last = sum;

      metrics.end(worker - 1);
      const { duration_seconds_sum: afterEnd = 0 } = await render(metrics);
      expect(afterEnd).to.be.at.least(last);
      last = afterEnd;
    }
  });
});

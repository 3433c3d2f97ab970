import { AggregatorRegistry, Registry } from 'prom-client';
import { addCounter, addGauge } from './collectors.ts';
import type { MetricValues } from './metrics.ts';
import { addNodeMetrics } from './process-metrics.ts';

interface WorkerCounts {
  /** Workers that serve requests. */
  readonly serving: number;
  /** Workers that have ended although nobody stopped them. */
  readonly died: number;
}

/**
 * The metrics of a primary process and all of its workers, as those of one process: counters and histograms are sums,
 * gauges are combined as `aggregator` says. A counter never falls: the last known values of a worker that has ended
 * remain in the sums. A worker that does not respond to a scrape counts with its last known values.
 */
export class WorkerMetrics {
  readonly #own = new Registry();
  readonly #last = new Map<number, MetricValues[]>();
  /** Counters and histograms of the workers that have ended. */
  #ended: MetricValues[] = [];

  constructor(readCounts: () => WorkerCounts) {
    addNodeMetrics(this.#own);
    addGauge(this.#own, {
      name: 'workers',
      help: 'Worker processes that serve requests; without PROCESSES there is none.',
      read: () => [{ value: readCounts().serving }],
    });
    addCounter(this.#own, {
      name: 'workers_died_total',
      help: 'Worker processes that ended although nobody stopped them.',
      read: () => [{ value: readCounts().died }],
    });
  }

  get contentType(): string {
    return this.#own.contentType;
  }

  /** Replaces the last known values of a worker. */
  record(worker: number, values: MetricValues[]): void {
    this.#last.set(worker, values);
  }

  /** Must be called after the last `record` of a worker that has ended. */
  end(worker: number): void {
    const totals = (this.#last.get(worker) ?? []).filter(isTotal);
    this.#last.delete(worker);
    // The metrics of this registry have their values as properties, which their type does not declare.
    this.#ended = AggregatorRegistry.aggregate([this.#ended, totals]).getMetricsAsArray() as unknown as MetricValues[];
  }

  /** Renders the sums in the text format of Prometheus. */
  async render(): Promise<string> {
    const own = await this.#own.getMetricsAsJSON();
    return AggregatorRegistry.aggregate([own, ...this.#last.values(), this.#ended]).metrics();
  }
}

/** True for values that only grow. prom-client writes the type as text, although its declaration has numbers. */
function isTotal({ type }: MetricValues): boolean {
  return ['counter', 'histogram'].includes(String(type));
}

import { type MetricValueWithName, Registry } from '@prometheus-io/client';
import { addValue } from '../../lib/collectors.ts';
import {
  definitionsOf,
  type MetricDefinition,
  type MetricValues,
  valuesOf,
} from '../../lib/seams/metric-values.ts';
import { addNodeMetrics } from './process-metrics.ts';

interface WorkerCounts {
  /** Workers that serve requests. */
  readonly serving: number;
  /** Workers that have ended although nobody stopped them. */
  readonly died: number;
}

/**
 * The metrics of a primary process and all of its workers, as those of one process. The metrics
 * client combines them: counters and histograms are sums, gauges are combined as `aggregator`
 * says. Its own gathering over `node:cluster` is not used: one silent worker makes each scrape
 * fail after 5 s, the counters of a killed worker are lost, and the gauges of a worker that has
 * ended are counted for ever (0.16.1). Here, a worker that does not respond to a scrape counts
 * with its last known values.
 *
 * A counter never falls, because Prometheus takes a smaller value for a restart of the service,
 * and adds the whole value to each rate. So the last known values of a worker that has ended
 * remain in the sums; and a sum that is smaller than the last rendered one is rendered as that
 * one, because sums of floating-point numbers differ by their order.
 */
export class WorkerMetrics {
  readonly #own = new Registry();
  readonly #last = new Map<number, MetricValues[]>();
  /** Counters and histograms of the workers that have ended. */
  #ended: MetricValues[] = [];
  /** The last rendered values of counters and histograms, by name and labels. */
  readonly #rendered = new Map<string, number>();

  constructor(readCounts: () => WorkerCounts) {
    addNodeMetrics(this.#own);
    const serving = 'Worker processes that serve requests; without PROCESSES there is none.';
    addValue(this.#own, 'gauge', 'workers', serving, () => readCounts().serving);
    const died = 'Worker processes that ended although nobody stopped them.';
    addValue(this.#own, 'counter', 'workers_died_total', died, () => readCounts().died);
  }

  /** The metrics of the primary process alone. */
  get definitions(): readonly MetricDefinition[] {
    return definitionsOf(this.#own);
  }

  get contentType(): string {
    return this.#own.contentType;
  }

  /** Replaces the last known values of a worker. */
  record(worker: number, values: MetricValues[]): void {
    this.#last.set(worker, values);
  }

  /**
   * Adds the values of a worker that has ended to the sums for good. Call it after the last
   * `record` of the worker.
   */
  end(worker: number): void {
    const totals = (this.#last.get(worker) ?? []).filter(isTotal);
    this.#last.delete(worker);
    this.#ended = valuesOf(Registry.aggregate([this.#ended, totals]));
  }

  /** Renders the sums in the text format of Prometheus. */
  async render(): Promise<string> {
    const own = await this.#own.getMetricsAsJSON();
    const sums = Registry.aggregate([own, ...this.#last.values(), this.#ended]);
    for (const metric of valuesOf(sums).filter(isTotal)) this.#keepFromFalling(metric);
    return sums.metrics();
  }

  #keepFromFalling({ name, values }: MetricValues): void {
    for (const sample of values as MetricValueWithName<string>[]) {
      const key = `${sample.metricName ?? name} ${JSON.stringify(sample.labels)}`;
      sample.value = Math.max(sample.value, this.#rendered.get(key) ?? 0);
      this.#rendered.set(key, sample.value);
    }
  }
}

/**
 * True for values that only grow. The client writes the type as text, although its declaration
 * has numbers.
 */
function isTotal({ type }: MetricValues): boolean {
  return ['counter', 'histogram'].includes(String(type));
}

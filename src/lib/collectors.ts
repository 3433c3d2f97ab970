import { Counter, Gauge, type Registry } from '@prometheus-io/client';

/** One value of a metric, with its labels. */
export interface Sample {
  readonly labels?: Record<string, string | number>;
  readonly value: number;
}

interface MetricOptions {
  name: string;
  help: string;
  labelNames?: string[];
  /**
   * The function by which the values of several worker processes become one. Default: their
   * sum.
   */
  aggregator?: 'sum' | 'min' | 'max' | undefined;
  /**
   * Reads the current values. It is called at each scrape, so that a request only has to add to
   * a number.
   */
  read: () => Iterable<Sample>;
}

/** Registers a value that can go up and down, such as the number of open connections. */
export function addGauge(registry: Registry, options: MetricOptions): void {
  addMetric(Gauge, registry, options);
}

/** Registers a total that only grows while the process runs. */
export function addCounter(registry: Registry, options: MetricOptions): void {
  addMetric(Counter, registry, options);
}

/**
 * Registers a metric of one number without labels.
 * @param read returns null or undefined while there is none
 */
export function addValue(
  registry: Registry,
  type: 'gauge' | 'counter',
  name: string,
  help: string,
  read: () => number | null | undefined,
  aggregator?: MetricOptions['aggregator'],
): void {
  const samples = (value: number | null | undefined): Sample[] =>
    value == null ? [] : [{ value }];
  addMetric(type === 'gauge' ? Gauge : Counter, registry, {
    name,
    help,
    aggregator,
    read: () => samples(read()),
  });
}

function addMetric(
  Metric: typeof Counter | typeof Gauge,
  registry: Registry,
  { name, help, labelNames = [], aggregator = 'sum', read }: MetricOptions,
): void {
  new Metric({
    name,
    help,
    labelNames,
    aggregator,
    registers: [registry],
    collect() {
      this.reset();
      // A metric without labels has the value 0 from then on: a time that is not known would be
      // 1970.
      if (labelNames.length === 0) this.remove();
      for (const { labels = {}, value } of read()) this.inc(labels, value);
    },
  });
}

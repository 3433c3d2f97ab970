import { Counter, Gauge, type Registry } from 'prom-client';

/** One value of a metric, with the labels that it stands under. */
export interface Sample {
  readonly labels?: Record<string, string | number>;
  readonly value: number;
}

interface MetricOptions {
  name: string;
  help: string;
  labelNames?: string[];
  /** Reads the current values; called at each scrape, so that counting costs a request nothing but an addition. */
  read: () => Iterable<Sample>;
}

/** Registers a value that can go up and down, such as open connections. */
export function addGauge(registry: Registry, { name, help, labelNames = [], read }: MetricOptions): void {
  new Gauge({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const { labels = {}, value } of read()) this.set(labels, value);
    },
  });
}

/** Registers a total that only grows while the process runs. */
export function addCounter(registry: Registry, { name, help, labelNames = [], read }: MetricOptions): void {
  new Counter({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const { labels = {}, value } of read()) this.inc(labels, value);
    },
  });
}

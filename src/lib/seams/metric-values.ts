import type {
  Aggregator,
  Metric,
  MetricObjectWithValues,
  MetricValue,
  Registry,
} from '@prometheus-io/client';

/** A metric with its current values, as JSON. */
export type MetricValues = MetricObjectWithValues<MetricValue<string>>;

/** A metric without its values. */
export interface MetricDefinition {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary';
  readonly labelNames: readonly string[];
}

/**
 * Returns the definitions of the metrics of a registry. The client has the labels and the type,
 * and does not declare them.
 */
export function definitionsOf(registry: Registry): MetricDefinition[] {
  return (registry.getMetricsAsArray() as unknown as (Metric & MetricDefinition)[]).map(metric => ({
    name: metric.name,
    help: metric.help,
    type: metric.type,
    labelNames: metric.labelNames,
  }));
}

/**
 * Returns the metrics of an aggregated registry. They have their values as properties, which
 * their type hides.
 */
export function valuesOf(aggregated: Pick<Registry, 'getMetricsAsArray'>): MetricValues[] {
  return aggregated.getMetricsAsArray() as unknown as MetricValues[];
}

/** Sets how the values of several processes become one, for a metric that exists. */
export function setAggregator(registry: Registry, name: string, aggregator: Aggregator): void {
  Object.assign(registry.getSingleMetric(name) ?? {}, { aggregator });
}

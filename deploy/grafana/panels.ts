import type { MetricDefinition } from '../../src/lib/seams/metric-values.ts';

export interface PanelContent {
  readonly title: string;
  readonly description: string;
  /** A unit of Grafana. */
  readonly unit: string;
  readonly queries: readonly (readonly [query: string, legend: string])[];
}

/** The data source of the kit, in `provisioning/datasources.yaml`. */
export const datasource = { type: 'prometheus', uid: 'prometheus' };

const selector = '{job="backoffice"}';
/** Labels with so many values that only the largest are shown. */
const manyValues = ['route', 'tenant'];
const maxSeries = 20;

/**
 * Returns the query of a metric with the legend of its series: rates of counters, ages of
 * times, sums over all processes.
 */
export function queryOf({
  name,
  type,
  labelNames,
}: MetricDefinition): readonly [query: string, legend: string] {
  const labels = labelNames.filter(label => label !== 'le' && label !== 'quantile');
  const legend = labels.map(label => `{{${label}}}`).join(' ');
  const by = labels.length > 0 ? ` by (${labels.join(', ')})` : '';
  if (type === 'histogram') {
    const buckets = `sum by (${['le', ...labels].join(', ')}) (rate(${name}_bucket${selector}[$__rate_interval]))`;
    return [largest(`histogram_quantile(0.99, ${buckets})`, labels), `p99 ${legend}`];
  }
  if (type === 'counter') {
    return [largest(`sum${by} (rate(${name}${selector}[$__rate_interval]))`, labels), legend];
  }
  if (isTime(name)) return [`time() - max${by} (${name}${selector})`, legend];
  // These numbers are the same in every process, or those of the worst one count.
  const combine = /^(tenants|build_info|migration|backup)|_current$|^rate_limits|lag_/.test(name)
    ? 'max'
    : 'sum';
  return [`${combine}${by} (${name}${selector})`, legend];
}

function largest(query: string, labels: readonly string[]): string {
  return labels.some(label => manyValues.includes(label)) ? `topk(${maxSeries}, ${query})` : query;
}

function isTime(name: string): boolean {
  return name.endsWith('_time_seconds') || name.endsWith('_timestamp_seconds');
}

export function unitOf({ name, type }: MetricDefinition): string {
  // Seconds per second are a share of the time.
  if (type === 'counter') return name.endsWith('_seconds_total') ? 'percentunit' : 'ops';
  if (/_seconds$/.test(name)) return 's';
  return /_bytes$/.test(name) ? 'bytes' : 'short';
}

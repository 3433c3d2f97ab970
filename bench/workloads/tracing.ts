import { measureCases } from '../measure.ts';
import type { Plan } from '../plan.ts';
import { startCollector, startServer, type Target, withTargets } from '../targets.ts';
import { ratios, type Workload } from '../workload.ts';

const path = '/api/v1/EntityStatus/1';
const connections = 32;

/**
 * Cached reads of services that trace no, some and all requests, compared with one that has no
 * collector.
 */
export const tracedReads: Workload = {
  name: 'tracing',
  title: 'a single record by its id, traced',
  run: bench =>
    withTargets([() => startCollector(bench.testbed)], collector => {
      const start = (share: number) => () =>
        startServer(bench.testbed, {
          environment: {
            OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
            OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
            OTEL_TRACES_SAMPLER_ARG: String(share),
          },
        });

      return withTargets(
        [() => startServer(bench.testbed), start(0), start(0.01), start(1)],
        async (...services) => {
          const names = ['no collector', 'traced 0 %', 'traced 1 %', 'traced 100 %'] as const;
          const cases = services.map((target, index) => ({
            name: names[index] ?? '',
            target,
            tenants: [0],
            plan: (): Plan => reading(target, bench.tokens.headersFor(target, 0)),
          }));

          const results = await measureCases(bench, 'tracing', cases);
          const aims = { 'traced 0 %': 0.99, 'traced 1 %': 0.95, 'traced 100 %': 0.6 };
          const figures = Object.entries(aims).map(([name, atLeast]) => ({
            text: `reads, ${name} / no collector`,
            values: ratios(results, name, 'no collector'),
            aim: { atLeast },
          }));

          return { results, figures, notes: [] };
        },
      );
    }),
};

function reading(target: Target, headers: Record<string, string>): Plan {
  return {
    requests: [{ method: 'GET', path: target.path(0, path), headers }],
    connections,
    expect: { status: 200 },
  };
}

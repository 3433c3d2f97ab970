import { type BenchContext, type Case, measureCases } from '../measure.ts';
import { type Plan, uniform, zipf } from '../plan.ts';
import { startFastify, startRawPg, startServer, type Target, withTargets } from '../targets.ts';
import { errorsOf, ratios, samplesOf, type Workload } from '../workload.ts';

const connections = 32;
const title = 'single reads over many tenants, all warm';
const mixedPaths = [
  '/api/v1/EntityStatus/1',
  '/api/v1/EntityStatus/2',
  '/api/v1/EntityStatus/3',
  '/api/v1/EntityStatus',
];

/**
 * Returns a plan of reads from several tenants; each path of a tenant is equally likely.
 * @param order returns the order of tenants, as indexes below `count`
 */
export function readsOver(
  { tokens }: BenchContext,
  target: Target,
  tenants: number[],
  order: (count: number) => number[],
  { paths = ['/api/v1/EntityStatus/1'], headers = {} }: { paths?: string[]; headers?: Record<string, string> } = {},
): Plan {
  const requests = paths.flatMap(path =>
    tenants.map(tenant => ({
      method: 'GET' as const,
      path: target.path(tenant, path),
      headers: { ...tokens.headersFor(target, tenant), ...headers },
    })),
  );
  const tenantOrder = order(tenants.length);
  const pathOf = uniform(paths.length);
  return {
    requests,
    order: tenantOrder.map((tenant, turn) => (pathOf[turn] ?? 0) * tenants.length + tenant),
    connections,
    expect: { status: 200 },
  };
}

/** Returns the tenant indexes from 0 to `count` - 1. */
export function firstTenants(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

/** Single reads: the cost of additional tenants when nothing else differs. */
export const tenantReads: Workload = {
  name: 'tenants',
  title,
  run: bench => overTenants(bench, 'tenants', ['/api/v1/EntityStatus/1'], true),
};

/** Reads of three records and a list, as clients send them. */
export const mixedReads: Workload = {
  name: 'mixed',
  title: 'mixed reads (three records, a list of 3) over many tenants, all warm',
  run: bench => overTenants(bench, 'mixed', mixedPaths, false),
};

function overTenants(bench: BenchContext, workload: string, paths: string[], withAims: boolean) {
  const { testbed } = bench;
  const all = testbed.tenants.length;
  const starts = [() => startRawPg(testbed), () => startFastify(testbed), () => startServer(testbed)];
  return withTargets(starts, async (rawPg, fastify, service) => {
    const readCase = (name: string, target: Target, count: number, order = uniform): Case => ({
      name,
      target,
      tenants: firstTenants(count),
      plan: () => readsOver(bench, target, firstTenants(count), order, { paths }),
      countConnections: target === service,
    });
    const [one, many, skewed] = ['service, 1 tenant', `service, ${all} uniform`, `service, ${all} Zipf`] as const;
    const cases = [
      readCase('raw-pg', rawPg as Target, 1),
      readCase('fastify', fastify as Target, 1),
      readCase(one, service as Target, 1),
      readCase('service, 10 uniform', service as Target, Math.min(10, all)),
      readCase('service, 10 Zipf', service as Target, Math.min(10, all), zipf),
      readCase(many, service as Target, all),
      readCase(skewed, service as Target, all, zipf),
    ];
    const results = await measureCases(bench, workload, cases);
    const usedConnections = (name: string): number[] =>
      samplesOf(results, name).map(sample => sample.connections?.tenants ?? Number.NaN);
    const aims = [
      { text: `${title}: ${all} uniform / 1 tenant`, values: ratios(results, many, one), aim: { atLeast: 0.9 } },
      { text: `${title}: ${all} Zipf / 1 tenant`, values: ratios(results, skewed, one), aim: { atLeast: 0.9 } },
      { text: `${title}: errors over ${all}`, values: errorsOf(results, many), aim: { atMost: 0 } },
      { text: `${title}: tenant connections used over ${all}`, values: usedConnections(many), aim: { atMost: 0 } },
    ];
    const notes = [
      `maximum tenant connections used by the service over ${all} tenants, by round: ${usedConnections(many).join(', ')}`,
    ];
    return { results, figures: withAims ? aims : [], notes };
  });
}

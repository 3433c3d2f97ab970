import { type BenchContext, type Case, measureCases } from '../measure.ts';
import { type Plan, uniform, zipf } from '../plan.ts';
import { startFastify, startRawPg, startServer, type Target, withTargets } from '../targets.ts';
import { errorsOf, ratios, samplesOf, type Workload, type WorkloadResult } from '../workload.ts';

const connections = 32;
const title = 'single reads over many tenants, all warm';
const path = '/api/v1/EntityStatus/1';

/**
 * Returns a plan of reads of one record from several tenants.
 * @param order returns the order of tenants, as indexes below `count`
 */
export function readsOver(
  { tokens }: BenchContext,
  target: Target,
  tenants: number[],
  order: (count: number) => number[],
  headers: Record<string, string> = {},
): Plan {
  const requests = tenants.map(tenant => ({
    method: 'GET' as const,
    path: target.path(tenant, path),
    headers: { ...tokens.headersFor(target, tenant), ...headers },
  }));
  return { requests, order: order(tenants.length), connections, expect: { status: 200 } };
}

/** Returns the tenant indexes from 0 to `count` - 1. */
export function firstTenants(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

/** Single reads: the cost of additional tenants when nothing else differs. */
export const tenantReads: Workload = { name: 'tenants', title, run: overTenants };

async function overTenants(bench: BenchContext): Promise<WorkloadResult> {
  const { testbed } = bench;
  const all = testbed.tenants.length;
  const start = () => startServer(testbed);

  return withTargets(
    [() => startRawPg(testbed), () => startFastify(testbed), start],
    async (rawPg, fastify, service) => {
      const readCase = (name: string, target: Target, count: number, order = uniform): Case => ({
        name,
        target,
        tenants: firstTenants(count),
        plan: () => readsOver(bench, target, firstTenants(count), order),
        countConnections: target === service,
      });

      const [one, many, skewed] = [
        'service, 1 tenant',
        `service, ${all} uniform`,
        `service, ${all} Zipf`,
      ] as const;
      const cases = [
        readCase('raw-pg', rawPg, 1),
        readCase('fastify', fastify, 1),
        readCase(one, service, 1),
        readCase('service, 10 uniform', service, Math.min(10, all)),
        readCase('service, 10 Zipf', service, Math.min(10, all), zipf),
        readCase(many, service, all),
        readCase(skewed, service, all, zipf),
      ];

      const results = await measureCases(bench, 'tenants', cases);
      const usedConnections = (name: string): number[] =>
        samplesOf(results, name).map(sample => sample.connections?.tenants ?? Number.NaN);

      const figures = [
        {
          text: `${title}: ${all} uniform / 1 tenant`,
          values: ratios(results, many, one),
          aim: { atLeast: 0.9 },
        },
        {
          text: `${title}: ${all} Zipf / 1 tenant`,
          values: ratios(results, skewed, one),
          aim: { atLeast: 0.9 },
        },
        {
          text: `${title}: errors over ${all}`,
          values: errorsOf(results, many),
          aim: { atMost: 0 },
        },
        {
          text: `${title}: tenant connections used over ${all}`,
          values: usedConnections(many),
          aim: { atMost: 0 },
        },
      ];
      const notes = [
        `maximum tenant connections used by the service over ${all} tenants, by round: ${usedConnections(many).join(', ')}`,
      ];

      return { results, figures, notes };
    },
  );
}

import { measureCases } from '../measure.ts';
import { uniform, zipf } from '../plan.ts';
import { startBarePool, startServer, withTargets } from '../targets.ts';
import { errorsOf, ratios, samplesOf, type Workload } from '../workload.ts';
import { firstTenants, readsOver } from './many-tenants.ts';

const bypassCache = { 'Cache-Control': 'no-cache' };

/**
 * Reads that need the tenant database each time, within a connection budget, compared with
 * bare-pool. `uncached` has more clients than connections, so that some always wait; `zipf` has
 * fewer, so that the result depends on which idle connections are evicted.
 */
export const budgetWorkloads: Workload[] = [
  budgetWorkload({
    name: 'uncached',
    budget: 40,
    spread: 'uniform',
    connections: 64,
    aim: { atLeast: 0.9 },
  }),
  budgetWorkload({
    name: 'zipf',
    budget: 80,
    spread: 'Zipf',
    connections: 32,
    aim: { atLeast: 1.2 },
  }),
];

interface BudgetOptions {
  name: string;
  budget: number;
  spread: 'uniform' | 'Zipf';
  /** Number of concurrent clients. */
  connections: number;
  aim: { atLeast: number };
}

function budgetWorkload({ name, budget, spread, connections, aim }: BudgetOptions): Workload {
  const title = `uncached reads over all tenants (${spread}), budget ${budget}`;

  const run: Workload['run'] = bench => {
    const { testbed } = bench;
    const tenants = firstTenants(testbed.tenants.length);
    const starts = [() => startBarePool(testbed, budget), () => startServer(testbed, { budget })];

    return withTargets(starts, async (...targets) => {
      const cases = targets.map(target => ({
        name: target.name,
        target,
        tenants,
        plan: () => ({
          ...readsOver(bench, target, tenants, spread === 'Zipf' ? zipf : uniform, bypassCache),
          connections,
        }),
        countConnections: true,
      }));

      const results = await measureCases(bench, name, cases);
      const maxConnections = (of: 'service' | 'bare-pool'): number[] =>
        samplesOf(results, of).map(
          sample => sample.connections?.[of === 'service' ? 'service' : 'barePool'] ?? Number.NaN,
        );

      return {
        results,
        figures: [
          {
            text: `${title}: service / bare-pool`,
            values: ratios(results, 'service', 'bare-pool'),
            aim,
          },
          { text: `${title}: errors`, values: errorsOf(results, 'service'), aim: { atMost: 0 } },
          {
            text: `${title}: maximum connections of the service`,
            values: maxConnections('service'),
            aim: { atMost: budget },
          },
        ],
        notes: [
          `maximum connections of bare-pool, by round: ${maxConnections('bare-pool').join(', ')}`,
        ],
      };
    });
  };

  return { name, title, run };
}

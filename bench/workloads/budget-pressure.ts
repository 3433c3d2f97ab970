import { compete } from '../measure.ts';
import { uniform, zipf } from '../plan.ts';
import { startGovernor, startServer } from '../targets.ts';
import { errorsOf, ratios, type Work, withTargets } from '../workload.ts';
import { firstTenants, readsOver } from './many-tenants.ts';

const readThrough = { 'Cache-Control': 'no-cache' };

/**
 * Work that needs the tenant's database each time, within a connection budget, against the least that keeps one. In the
 * first, more clients than connections, so that some always wait; in the second fewer, so that all depends on which
 * connections are kept.
 */
export const budgetWorks: Work[] = [
  budgetWork({ name: 'uncached', budget: 40, spread: 'uniform', connections: 64, aim: { atLeast: 0.9 } }),
  budgetWork({ name: 'zipf', budget: 80, spread: 'Zipf', connections: 32, aim: { atLeast: 1.2 } }),
];

interface BudgetWork {
  name: string;
  budget: number;
  spread: 'uniform' | 'Zipf';
  /** Clients that ask at the same time. */
  connections: number;
  aim: { atLeast: number };
}

function budgetWork({ name, budget, spread, connections, aim }: BudgetWork): Work {
  const title = `reads through over all tenants (${spread}), budget ${budget}`;
  return {
    name,
    title,
    run: bench => {
      const { stage } = bench;
      const tenants = firstTenants(stage.tenants.length);
      const starts = [() => startGovernor(stage, budget), () => startServer(stage, { budget })];
      return withTargets(starts, async (...targets) => {
        const contestants = targets.map(target => ({
          name: target.name,
          target,
          tenants,
          plan: () => ({
            ...readsOver(bench, target, tenants, spread === 'Zipf' ? zipf : uniform, { headers: readThrough }),
            connections,
          }),
          watch: true,
        }));
        const rows = await compete(bench, name, contestants);
        const most = (who: 'service' | 'governor'): number[] =>
          rows.find(row => row.name === who)?.samples.map(({ backends }) => backends?.[who] ?? Number.NaN) ?? [];
        return {
          rows,
          figures: [
            { text: `${title}: service / bare governor`, values: ratios(rows, 'service', 'governor'), aim },
            { text: `${title}: errors`, values: errorsOf(rows, 'service'), aim: { atMost: 0 } },
            { text: `${title}: most connections of the service`, values: most('service'), aim: { atMost: budget } },
          ],
          notes: [`Most connections of the bare governor: ${most('governor').join(', ')} (by round).`],
        };
      });
    },
  };
}

import { compete } from '../measure.ts';
import { uniform, zipf } from '../plan.ts';
import { startGovernor, startService } from '../targets.ts';
import { errorsOf, ratios, type Work, withTargets } from '../work.ts';
import { firstTenants, readsOver } from './many-tenants.ts';

/** More than either budget, so that some always wait for a connection. */
const connections = 100;
const readThrough = { 'Cache-Control': 'no-cache' };

/** Work that needs the tenant's database each time, within a connection budget, against the least that keeps one. */
export const budgetWorks: Work[] = [
  budgetWork('uncached', 40, 'uniform', { atLeast: 0.9 }),
  budgetWork('zipf', 80, 'Zipf', { atLeast: 1.2 }),
];

function budgetWork(name: string, budget: number, spread: 'uniform' | 'Zipf', aim: { atLeast: number }): Work {
  const title = `reads through over all tenants (${spread}), budget ${budget}`;
  return {
    name,
    title,
    run: bench => {
      const { stage } = bench;
      const tenants = firstTenants(stage.tenants.length);
      const starts = [() => startGovernor(stage, budget), () => startService(stage, { budget })];
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

import { describeEnvironment } from './environment.ts';
import { measureCases } from './measure.ts';
import { type Plan, uniform } from './plan.ts';
import { report } from './report.ts';
import { readScriptOptions } from './script-options.ts';
import { startServer, withTargets } from './targets.ts';
import { openTestbed } from './testbed.ts';
import { Tokens } from './tokens.ts';
import { type Figure, ratios } from './workload.ts';
import { firstTenants, readsOver } from './workloads/many-tenants.ts';

/**
 * Reads over many tenants of two PostgreSQL servers, beside fewer of one of them: what more
 * tenants and a second server cost a process. Half of the tenants are on each server.
 */
const usage = {
  command: 'bench:servers',
  text: 'Compares reads over the tenants of two PostgreSQL servers with fewer on one.',
};
const { tenants, beside, rounds, seconds } = readScriptOptions(usage, {
  tenants: 5_000,
  beside: 1_000,
  rounds: 5,
  seconds: 3,
});

let close = async (): Promise<void> => {};
try {
  const onOpen = (end: () => Promise<void>): void => {
    close = end;
  };
  const tenantCount = Math.max(tenants, 2 * beside);
  const testbed = await openTestbed({ tenantCount, hasSecondServer: true, isTuned: false, onOpen });
  const environment = await describeEnvironment(testbed, { rounds, seconds, tenants: tenantCount });
  const bench = { testbed, tokens: new Tokens(testbed), rounds, seconds, passTurn: async () => {} };

  const [few, many] = [`${beside} of one server`, `${tenantCount} of two`] as const;
  const kinds = { cached: {}, uncached: { 'Cache-Control': 'no-cache' } };
  const figures: Figure[] = [];
  const results = await withTargets([() => startServer(testbed)], service => {
    const cases = Object.entries(kinds).flatMap(([kind, headers]) =>
      [
        { name: `${kind}, ${few}`, count: beside },
        { name: `${kind}, ${many}`, count: tenantCount },
      ].map(({ name, count }) => ({
        name,
        target: service,
        tenants: firstTenants(count),
        plan: (): Plan => readsOver(bench, service, firstTenants(count), uniform, headers),
      })),
    );
    return measureCases(bench, 'servers', cases);
  });
  for (const kind of Object.keys(kinds)) {
    const [above, below] = [`${kind}, ${many}`, `${kind}, ${few}`] as const;
    figures.push(
      { text: `${above} / ${few}: requests`, values: ratios(results, above, below) },
      {
        text: `${above} / ${few}: CPU of the service`,
        values: ratios(results, above, below, 'cpuServer'),
      },
    );
  }

  const title = usage.text;
  const notes = ['CPU PostgreSQL is that of the first server.'];
  console.log(report([{ name: 'servers', title, results, figures, notes }], environment));
} finally {
  await close();
}

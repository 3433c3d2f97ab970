import { type Bench, type Contestant, compete } from '../measure.ts';
import { type Plan, uniform, zipf } from '../plan.ts';
import { startLimit, startPeer, startServer, type Target } from '../targets.ts';
import { errorsOf, ratios, type Work, withTargets } from '../workload.ts';

const connections = 32;
const title = 'single reads over many tenants, each warm';
const mixedPaths = [
  '/api/v1/EntityStatus/1',
  '/api/v1/EntityStatus/2',
  '/api/v1/EntityStatus/3',
  '/api/v1/EntityStatus',
];

/** Reads of every tenant, by chance; one of a tenant's paths as often as another. */
export function readsOver(
  { tokens }: Bench,
  target: Target,
  tenants: number[],
  order: (count: number) => number[],
  { paths = ['/api/v1/EntityStatus/1'], headers = {} }: { paths?: string[]; headers?: Record<string, string> } = {},
): Plan {
  const requests = paths.flatMap(path =>
    tenants.map(tenant => ({
      method: 'GET' as const,
      path: target.path(tenant, path),
      headers: { ...tokens.of(target, tenant), ...headers },
    })),
  );
  const chosen = order(tenants.length);
  const pathOf = uniform(paths.length);
  return {
    requests,
    order: chosen.map((tenant, turn) => (pathOf[turn] ?? 0) * tenants.length + tenant),
    connections,
    expect: { status: 200 },
  };
}

export function firstTenants(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

/** Single reads: what a tenant more costs when nothing else differs. */
export const tenantReads: Work = {
  name: 'tenants',
  title,
  run: bench => overTenants(bench, 'tenants', ['/api/v1/EntityStatus/1'], true),
};

/** The same with three rows and a list, as clients do. */
export const mixedReads: Work = {
  name: 'mixed',
  title: 'mixed reads (three rows, a list of 3) over many tenants, each warm',
  run: bench => overTenants(bench, 'mixed', mixedPaths, false),
};

function overTenants(bench: Bench, work: string, paths: string[], withAims: boolean) {
  const { stage } = bench;
  const all = stage.tenants.length;
  const starts = [() => startLimit(stage), () => startPeer(stage), () => startServer(stage)];
  return withTargets(starts, async (limit, peer, service) => {
    const contestant = (name: string, target: Target, count: number, order = uniform): Contestant => ({
      name,
      target,
      tenants: firstTenants(count),
      plan: () => readsOver(bench, target, firstTenants(count), order, { paths }),
      watch: target === service,
    });
    const [one, many, skewed] = ['service, 1 tenant', `service, ${all} uniform`, `service, ${all} Zipf`] as const;
    const contestants = [
      contestant('limit', limit as Target, 1),
      contestant('peer', peer as Target, 1),
      contestant(one, service as Target, 1),
      contestant('service, 10 uniform', service as Target, Math.min(10, all)),
      contestant('service, 10 Zipf', service as Target, Math.min(10, all), zipf),
      contestant(many, service as Target, all),
      contestant(skewed, service as Target, all, zipf),
    ];
    const rows = await compete(bench, work, contestants);
    const used = (name: string): number[] =>
      (rows.find(row => row.name === name)?.samples ?? []).map(sample => sample.backends?.tenants ?? Number.NaN);
    const aims = [
      { text: `${title}: ${all} uniform / 1 tenant`, values: ratios(rows, many, one), aim: { atLeast: 0.9 } },
      { text: `${title}: ${all} Zipf / 1 tenant`, values: ratios(rows, skewed, one), aim: { atLeast: 0.9 } },
      { text: `${title}: errors over ${all}`, values: errorsOf(rows, many), aim: { atMost: 0 } },
      { text: `${title}: tenant connections used over ${all}`, values: used(many), aim: { atMost: 0 } },
    ];
    const notes = [
      `Most tenant connections of the service used at a time over ${all} tenants: ${used(many).join(', ')} (by round).`,
    ];
    return { rows, figures: withAims ? aims : [], notes };
  });
}

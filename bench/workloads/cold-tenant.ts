import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { progress } from '../bench-progress.ts';
import { call } from '../call.ts';
import type { Bench, Row, Sample } from '../measure.ts';
import { seeded } from '../plan.ts';
import { spread, timed } from '../spread.ts';
import { startServer, type Target } from '../targets.ts';
import { renewTokens } from '../tokens.ts';
import { type Work, withTargets } from '../workload.ts';
import { firstTenants } from './many-tenants.ts';

const title = "a cold tenant's first request";
const warmTenants = 5;
const warmRequests = 400; // each, so that the code is compiled
const mostEach = 100;
const path = '/api/v1/EntityStatus/1';
const text = 'select id, title, weighting, created_at from entity_statuses where id = $1';

/**
 * The first request of tenants that this process of the service has never seen, one at a time, in turn with a bare
 * connect and query to others. Each round has a process of its own, and a tenant is asked by one of the two only.
 */
export const coldTenant: Work = {
  name: 'cold',
  title,
  run: async bench => {
    const service: Row = { name: 'service', samples: [] };
    const bare: Row = { name: 'bare connect + query', samples: [] };
    for (let round = 1; round <= bench.rounds; round++) {
      await renewTokens(bench, firstTenants(bench.stage.tenants.length));
      await withTargets([() => startServer(bench.stage)], async target => {
        const times = await oneRound(bench, target, round);
        service.samples.push(sampleOf(times.service));
        bare.samples.push(sampleOf(times.bare));
        progress(
          `cold ${round}/${bench.rounds}: p50 ${spread(times.service).median.toFixed(1)} ms, ${spread(times.bare).median.toFixed(1)} ms`,
        );
      });
    }
    const values = service.samples.map((sample, round) => sample.p50 / (bare.samples[round]?.p50 ?? Number.NaN));
    const figures = [{ text: `${title}, p50: service / bare connect + query`, values, aim: { atMost: 1.25 } }];
    return { rows: [bare, service], figures, notes: [] };
  },
};

async function oneRound(
  { stage, tokens }: Bench,
  target: Target,
  round: number,
): Promise<Record<'service' | 'bare', number[]>> {
  const ask = async (tenant: number): Promise<void> => {
    const { status, body } = await call(target.url, { method: 'GET', path, headers: tokens.of(target, tenant) });
    if (status !== 200) throw new Error(`a cold tenant was answered ${status} ${body}`);
  };
  const connect = async (tenant: number): Promise<() => Promise<void>> => {
    const client = new pg.Client({ connectionString: stage.tenants[tenant]?.url, application_name: 'bench-baseline' });
    await client.connect();
    await client.query(text, [1]);
    return () => client.end();
  };
  const warm = Math.min(warmTenants, stage.tenants.length - 2);
  for (let turn = 0; turn < warmRequests; turn++) {
    for (let tenant = 0; tenant < warm; tenant++) await ask(tenant);
  }
  for (let turn = 0; turn < 2 * warmTenants; turn++) await (await connect(turn % warm))();

  const random = seeded(round);
  const cold = firstTenants(stage.tenants.length)
    .slice(warm)
    .map(tenant => ({ tenant, rank: random() }))
    .toSorted((a, b) => a.rank - b.rank)
    .slice(0, 2 * mostEach);
  const times = { service: [] as number[], bare: [] as number[] };
  for (const [index, { tenant }] of cold.entries()) {
    if (index % 2 === 0) {
      times.service.push(await timed(() => ask(tenant)));
    } else {
      let close = async (): Promise<void> => {};
      times.bare.push(
        await timed(async () => {
          close = await connect(tenant);
        }),
      );
      await close();
    }
    await delay(5); // what one has left to do is not the next one's
  }
  return times;
}

/** One at a time: how many in a second is not what is asked. */
function sampleOf(times: number[]): Sample {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.round((sorted.length - 1) * share)] ?? Number.NaN;
  const unknown = Number.NaN;
  return {
    requests: times.length,
    seconds: times.reduce((sum, ms) => sum + ms, 0) / 1_000,
    p50: at(0.5),
    p99: at(0.99),
    statusErrors: 0,
    socketErrors: 0,
    perSecond: unknown,
    cpuServer: unknown,
    cpuPostgres: unknown,
    cpuRedis: unknown,
    residentMb: unknown,
  };
}

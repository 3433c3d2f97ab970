import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { Random } from '../../test/simulation/random.ts';
import { progress } from '../bench-progress.ts';
import { call, prepare } from '../call.ts';
import type { BenchContext, CaseResult, Sample } from '../measure.ts';
import { percentile, spread, timed } from '../spread.ts';
import { startServer, type Target, withTargets } from '../targets.ts';
import type { Workload } from '../workload.ts';
import { firstTenants } from './many-tenants.ts';

const title = "a cold tenant's first request";
const warmTenants = 5;
const warmUpRequests = 400; // per warm tenant, so that V8 compiles the code
const maxColdTenants = 100; // per case and round
const path = '/api/v1/EntityStatus/1';
const text = 'select id, title, weighting, created_at from entity_statuses where id = $1';

/**
 * Times the first request to tenants that this process of the service has not served yet, one
 * at a time, in turn with a bare connect and query to other tenants. Each round starts a new
 * process, and a tenant is used by only one of the two cases.
 */
export const coldTenant: Workload = {
  name: 'cold',
  title,
  run: async bench => {
    const service: CaseResult = { name: 'service', samples: [] };
    const bare: CaseResult = { name: 'bare connect + query', samples: [] };

    for (let round = 1; round <= bench.rounds; round++) {
      await bench.tokens.renewAhead(firstTenants(bench.testbed.tenants.length));
      await withTargets([() => startServer(bench.testbed)], async target => {
        const times = await oneRound(bench, target, round);
        service.samples.push(sampleOf(times.service));
        bare.samples.push(sampleOf(times.bare));

        const [serviceMs, bareMs] = [times.service, times.bare].map(all =>
          spread(all).median.toFixed(1),
        );
        progress(`cold ${round}/${bench.rounds}: p50 service ${serviceMs} ms, bare ${bareMs} ms`);
      });
      await bench.passTurn();
    }

    const values = service.samples.map(
      (sample, round) => sample.p50 / (bare.samples[round]?.p50 ?? Number.NaN),
    );
    const figures = [
      { text: `${title}, p50: service / bare connect + query`, values, aim: { atMost: 1.4 } },
    ];

    return { results: [bare, service], figures, notes: [] };
  },
};

async function oneRound(
  { testbed, tokens }: BenchContext,
  target: Target,
  round: number,
): Promise<Record<'service' | 'bare', number[]>> {
  const readFromService = async (tenant: number, send = call): Promise<void> => {
    const { status, body } = await send(target.url, {
      method: 'GET',
      path,
      headers: tokens.headersFor(target, tenant),
    });
    if (status !== 200) throw new Error(`the read of a cold tenant returned ${status} ${body}`);
  };
  const connect = async (tenant: number): Promise<() => Promise<void>> => {
    const client = new pg.Client({
      connectionString: testbed.tenants[tenant]?.url,
      application_name: 'bench-baseline',
    });
    await client.connect();
    await client.query(text, [1]);
    return () => client.end();
  };
  const warm = Math.min(warmTenants, testbed.tenants.length - 2);
  for (let turn = 0; turn < warmUpRequests; turn++) {
    for (let tenant = 0; tenant < warm; tenant++) await readFromService(tenant, prepare);
  }
  for (let turn = 0; turn < 2 * warmTenants; turn++) await (await connect(turn % warm))();

  const random = new Random(round);
  const cold = firstTenants(testbed.tenants.length)
    .slice(warm)
    .map(tenant => ({ tenant, rank: random.next() }))
    .toSorted((a, b) => a.rank - b.rank)
    .slice(0, 2 * maxColdTenants);
  const times = { service: [] as number[], bare: [] as number[] };
  for (const [index, { tenant }] of cold.entries()) {
    if (index % 2 === 0) {
      times.service.push(await timed(() => readFromService(tenant)));
    } else {
      let close = async (): Promise<void> => {};
      times.bare.push(
        await timed(async () => {
          close = await connect(tenant);
        }),
      );
      await close();
    }
    await delay(5); // lets background work of one case end before the next
  }
  return times;
}

/**
 * Returns a sample with latencies only; requests per second mean nothing for sequential
 * requests.
 */
function sampleOf(times: number[]): Sample {
  const unknown = Number.NaN;
  return {
    requests: times.length,
    seconds: times.reduce((sum, ms) => sum + ms, 0) / 1_000,
    p50: percentile(times, 0.5),
    p99: percentile(times, 0.99),
    statusErrors: 0,
    socketErrors: 0,
    perSecond: unknown,
    cpuServer: unknown,
    cpuPostgres: unknown,
    cpuRedis: unknown,
    residentMb: unknown,
  };
}

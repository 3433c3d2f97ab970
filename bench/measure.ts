import { type Backends, watchBackends } from './backends.ts';
import { progress } from './bench-progress.ts';
import { checkPlan } from './call.ts';
import { type LoadResult, startLoad } from './load.ts';
import type { Plan } from './plan.ts';
import type { Stage } from './stage.ts';
import type { Target } from './targets.ts';
import type { Tokens } from './tokens.ts';
import { cpuOf, cpuOfFamily, residentMb } from './usage.ts';

/** What one contestant did in one round. CPU in µs of each request, memory in MB after it; NaN where it is not known. */
export interface Sample extends LoadResult {
  readonly perSecond: number;
  readonly cpuServer: number;
  readonly cpuPostgres: number;
  readonly cpuRedis: number;
  readonly residentMb: number;
  /** Only where connections are watched. */
  readonly backends?: Backends;
}

export interface Contestant {
  readonly name: string;
  readonly target: Target;
  /** Numbers of the tenants it is asked about. */
  readonly tenants: number[];
  readonly plan: () => Plan | Promise<Plan>;
  /** Runs beside the measurement, against the same server or another one; begun a second before it. */
  readonly beside?: Beside | undefined;
  readonly watch?: boolean | undefined;
}

interface Beside {
  readonly target: Target;
  readonly plan: () => Plan | Promise<Plan>;
}

/** The samples of one contestant, one for each round. */
export interface Row {
  readonly name: string;
  readonly samples: Sample[];
  /** What ran beside it. */
  readonly beside?: LoadResult[] | undefined;
}

export interface Bench {
  readonly stage: Stage;
  readonly tokens: Tokens;
  readonly rounds: number;
  /** Of one measurement. */
  readonly seconds: number;
}

const warmUpSeconds = 2;
const besideHeadSeconds = 1;

/** All contestants one after the other, as many times as there are rounds: what a machine does meanwhile, it does to all. */
export async function compete(bench: Bench, work: string, contestants: Contestant[]): Promise<Row[]> {
  const rows = contestants.map(({ name, beside }): Row => ({ name, samples: [], ...(beside ? { beside: [] } : {}) }));
  for (let round = 1; round <= bench.rounds; round++) {
    for (const [index, contestant] of contestants.entries()) {
      if ((await renew(bench, contestant)) || round === 1) await warmUp(bench, contestant);
      const row = rows[index];
      const { sample, beside } = await measure(bench, contestant);
      row?.samples.push(sample);
      if (beside) row?.beside?.push(beside);
      progress(
        `${work} ${round}/${bench.rounds} ${contestant.name}: ${Math.round(sample.perSecond)}/s, p99 ${sample.p99} ms`,
      );
    }
  }
  for (const { target, plan } of contestants) {
    const { requests, ...rest } = await plan();
    await checkPlan(target, { ...rest, requests: requests.slice(0, 1) });
  }
  return rows;
}

async function renew({ tokens }: Bench, { target, tenants, beside }: Contestant): Promise<boolean> {
  const besides = beside ? await tokens.renew(beside.target, tenants) : false;
  return (await tokens.renew(target, tenants)) || besides;
}

/** Every request once, so that all tenants are known and what is kept is kept; then under load, so that code is compiled. */
async function warmUp({ stage }: Bench, { target, plan, beside }: Contestant): Promise<void> {
  const warm = await plan();
  await checkPlan(target, warm);
  if (beside) await checkPlan(beside.target, await beside.plan());
  const { pauseMs, ...unpaused } = warm;
  await (await startLoad(stage.children, stage.folder, target.url, unpaused, warmUpSeconds)).result;
}

async function measure(
  { stage, seconds }: Bench,
  { target, plan, beside, watch }: Contestant,
): Promise<{ sample: Sample; beside?: LoadResult | undefined }> {
  const { children, folder, postgresPid, redis, serverUrl } = stage;
  const load = await plan();
  const running = beside
    ? await startLoad(children, folder, beside.target.url, await beside.plan(), seconds + 2 * besideHeadSeconds)
    : undefined;
  if (running) await new Promise(resolve => setTimeout(resolve, besideHeadSeconds * 1_000));
  const backends = watch ? await watchBackends(serverUrl) : undefined;
  const cpu = (): Promise<number[]> =>
    Promise.all([cpuOf(target.child.pid), cpuOfFamily(postgresPid), cpuOf(redis?.pid)]);
  const before = await cpu();
  const result = await (await startLoad(children, folder, target.url, load, seconds)).result;
  const after = await cpu();
  const seen = await backends?.stop();
  const [cpuServer, cpuPostgres, cpuRedis] = after.map((ms, index) => {
    const spent = (ms - (before[index] ?? Number.NaN)) * 1_000;
    return running ? Number.NaN : spent / result.requests; // shared with what ran beside
  }) as [number, number, number];
  const perSecond = result.requests / result.seconds;
  const memory = await residentMb(target.child.pid);
  const sample = { ...result, perSecond, cpuServer, cpuPostgres, cpuRedis, residentMb: memory };
  return { sample: seen ? { ...sample, backends: seen } : sample, beside: await running?.result };
}

import { setTimeout as delay } from 'node:timers/promises';
import { progress } from './bench-progress.ts';
import { checkPlan } from './call.ts';
import { type ConnectionCounts, startConnectionCount } from './connection-counts.ts';
import { type LoadResult, startLoad } from './load.ts';
import type { Plan } from './plan.ts';
import type { Target } from './targets.ts';
import type { Testbed } from './testbed.ts';
import type { Tokens } from './tokens.ts';
import { cpuOf, cpuOfFamily, residentMb } from './usage.ts';

/**
 * Measurement of one case in one round. CPU in µs per request, memory in MB at its end; NaN if
 * unknown.
 */
export interface Sample extends LoadResult {
  readonly perSecond: number;
  readonly cpuServer: number;
  readonly cpuPostgres: number;
  readonly cpuRedis: number;
  readonly residentMb: number;
  /** The counts of connections, for a case that counts them. */
  readonly connections?: ConnectionCounts;
}

/** One thing to measure in every round of a workload: a server under a plan. */
export interface Case {
  readonly name: string;
  readonly target: Target;
  /** Indexes of the tenants whose tokens the plans need. */
  readonly tenants: number[];
  readonly plan: () => Plan | Promise<Plan>;
  /**
   * Load during the measurement, on the same server or another; starts one second before it.
   */
  readonly background?: BackgroundLoad | undefined;
  readonly countConnections?: boolean | undefined;
}

interface BackgroundLoad {
  readonly target: Target;
  readonly plan: () => Plan | Promise<Plan>;
}

/** The samples of one case, one per round. */
export interface CaseResult {
  readonly name: string;
  readonly samples: Sample[];
  /** Results of the background load, one per round. */
  readonly background?: LoadResult[] | undefined;
}

export interface BenchContext {
  readonly testbed: Testbed;
  readonly tokens: Tokens;
  readonly rounds: number;
  /** Duration of one measurement. */
  readonly seconds: number;
  /** Called between measurements: lets another server of PostgreSQL have its turn. */
  readonly passTurn: () => Promise<void>;
}

const warmUpSeconds = 2;
const backgroundLeadSeconds = 1;

/**
 * Measures all cases in turn, once per round, so that other activity of the machine affects all
 * of them alike.
 */
export async function measureCases(
  bench: BenchContext,
  workload: string,
  cases: Case[],
): Promise<CaseResult[]> {
  const results = cases.map(
    ({ name, background }): CaseResult => ({
      name,
      samples: [],
      ...(background ? { background: [] } : {}),
    }),
  );

  for (let round = 1; round <= bench.rounds; round++) {
    for (const [index, current] of cases.entries()) {
      if ((await renew(bench, current)) || round === 1) await warmUp(bench, current);

      const result = results[index];
      const { sample, background } = await measure(bench, current);
      result?.samples.push(sample);
      if (background) result?.background?.push(background);

      progress(
        `${workload} ${round}/${bench.rounds} ${current.name}: ${Math.round(sample.perSecond)}/s, p99 ${sample.p99} ms`,
      );
      await bench.passTurn();
    }
  }

  for (const { target, plan } of cases) {
    const { requests, ...rest } = await plan();
    await checkPlan(target, { ...rest, requests: requests.slice(0, 1) });
  }

  return results;
}

/** @returns whether a token was replaced */
async function renew(
  { tokens }: BenchContext,
  { target, tenants, background }: Case,
): Promise<boolean> {
  const replaced = background ? await tokens.renew(background.target, tenants) : false;
  return (await tokens.renew(target, tenants)) || replaced;
}

/**
 * Sends every request once, which opens all tenants and fills the response cache; then adds
 * load, so that V8 compiles.
 */
async function warmUp(
  { testbed }: BenchContext,
  { target, plan, background }: Case,
): Promise<void> {
  const warmUpPlan = await plan();
  await checkPlan(target, warmUpPlan);
  if (background) await checkPlan(background.target, await background.plan());
  const { pauseMs, ...unpaused } = warmUpPlan;
  await (await startLoad(testbed.children, testbed.folder, target.url, unpaused, warmUpSeconds))
    .result;
}

async function measure(
  { testbed, seconds }: BenchContext,
  { target, plan, background, countConnections }: Case,
): Promise<{ sample: Sample; background?: LoadResult | undefined }> {
  const { children, folder, postgresPid, redis, serverUrl } = testbed;
  const casePlan = await plan();

  const backgroundSeconds = seconds + 2 * backgroundLeadSeconds;
  const running = background
    ? await startLoad(
        children,
        folder,
        background.target.url,
        await background.plan(),
        backgroundSeconds,
      )
    : undefined;
  if (running) await delay(backgroundLeadSeconds * 1_000);

  const counter = countConnections ? await startConnectionCount(serverUrl) : undefined;
  const cpu = (): Promise<number[]> =>
    Promise.all([cpuOf(target.child.pid), cpuOfFamily(postgresPid), cpuOf(redis?.pid)]);
  const before = await cpu();
  const result = await (await startLoad(children, folder, target.url, casePlan, seconds)).result;
  const after = await cpu();
  const connections = await counter?.stop();

  const [cpuServer, cpuPostgres, cpuRedis] = after.map((ms, index) => {
    const spentUs = (ms - (before[index] ?? Number.NaN)) * 1_000;
    // The background load spends CPU time as well.
    return running ? Number.NaN : spentUs / result.requests;
  }) as [number, number, number];

  const perSecond = result.requests / result.seconds;
  const memory = await residentMb(target.child.pid);
  const sample = { ...result, perSecond, cpuServer, cpuPostgres, cpuRedis, residentMb: memory };

  return {
    sample: connections ? { ...sample, connections } : sample,
    background: await running?.result,
  };
}

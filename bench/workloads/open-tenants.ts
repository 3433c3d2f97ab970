import { progress } from '../bench-progress.ts';
import { checkPlan } from '../call.ts';
import { startLoad } from '../load.ts';
import type { BenchContext } from '../measure.ts';
import { type Memory, memoryOf } from '../memory.ts';
import { startServer, type Target, withTargets } from '../targets.ts';
import type { Figure, Workload } from '../workload.ts';
import { firstTenants, readsOver } from './many-tenants.ts';

const title = 'memory of all tenants open';
// the memory of cached responses is not measured here
const bypassCache = { 'Cache-Control': 'no-cache' };
const baseTenants = 5;
const baseSeconds = 3;
const passes = 6;

/**
 * Additional memory of a process that has served every tenant, compared with one that has
 * served a few. The last round repeats the pass over all tenants: their databases are opened
 * and evicted each time, and the heap must not grow.
 */
export const openTenants: Workload = {
  name: 'memory',
  title,
  run: async bench => {
    const all = firstTenants(bench.testbed.tenants.length);
    const above: Memory[] = [];
    let repeated: Memory[] = [];

    for (let round = 1; round <= bench.rounds; round++) {
      await bench.tokens.renewAhead(all);
      await withTargets([() => startServer(bench.testbed, { probe: true })], async service => {
        const base = await measureBase(bench, service, all);
        const pass = async (): Promise<Memory> => {
          await checkPlan(service, plan(bench, service, all));
          const { heap, resident } = await memoryOf(service, 'collect');
          return { heap: heap - base.heap, resident: resident - base.resident };
        };

        const first = await pass();
        above.push(first);
        progress(
          `memory ${round}/${bench.rounds}: ${first.heap.toFixed(1)} MB of heap above ${base.heap.toFixed(1)}`,
        );

        if (round < bench.rounds) return;
        repeated = [first];
        while (repeated.length < passes) repeated.push(await pass());
      });
      await bench.passTurn();
    }

    const text = `${title} (${all.length}) above the base`;
    const figures: Figure[] = [
      { text: `${text}: heap, MB`, values: above.map(({ heap }) => heap), aim: { atMost: 50 } },
      { text: `${text}: resident, MB`, values: above.map(({ resident }) => resident) },
    ];
    const growth = repeated.map(({ heap }) => heap.toFixed(1)).join(', ');

    return {
      results: [],
      figures,
      notes: [`heap above the base after each pass over all tenants, MB: ${growth}`],
    };
  },
};

function plan(bench: BenchContext, service: Target, tenants: number[]) {
  return readsOver(bench, service, tenants, firstTenants, bypassCache);
}

/** Returns the memory of a process with compiled code, full pools and a few tenants. */
async function measureBase(bench: BenchContext, service: Target, all: number[]): Promise<Memory> {
  const { testbed } = bench;
  const few = plan(bench, service, all.slice(0, baseTenants));
  await (await startLoad(testbed.children, testbed.folder, service.url, few, baseSeconds)).result;
  return memoryOf(service, 'collect');
}

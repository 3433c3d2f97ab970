import { once } from 'node:events';
import { progress } from '../bench-progress.ts';
import { checkPlan } from '../call.ts';
import { startLoad } from '../load.ts';
import type { Bench } from '../measure.ts';
import { startServer, type Target } from '../targets.ts';
import { renewTokens } from '../tokens.ts';
import { type Figure, type Work, withTargets } from '../workload.ts';
import { firstTenants, readsOver } from './many-tenants.ts';

const title = 'memory of all tenants open';
const readThrough = { 'Cache-Control': 'no-cache' }; // kept answers are another matter
const baseTenants = 5;
const baseSeconds = 3;
const passes = 6;

/** In MB: what the heap holds (with buffers) after a collection, and what the process takes of the machine. */
interface Memory {
  readonly heap: number;
  readonly resident: number;
}

/**
 * What a process of the service takes more when every tenant has been asked than when a few had. In the last round all
 * are asked again and again: their databases are opened and evicted each time, and the heap must not grow.
 */
export const openTenants: Work = {
  name: 'memory',
  title,
  run: async bench => {
    const all = firstTenants(bench.stage.tenants.length);
    const above: Memory[] = [];
    let again: Memory[] = [];
    for (let round = 1; round <= bench.rounds; round++) {
      await renewTokens(bench, all);
      await withTargets([() => startServer(bench.stage, { probe: true })], async service => {
        const base = await ready(bench, service, all);
        const pass = async (): Promise<Memory> => {
          await checkPlan(service, plan(bench, service, all));
          const { heap, resident } = await memoryOf(service);
          return { heap: heap - base.heap, resident: resident - base.resident };
        };
        const first = await pass();
        above.push(first);
        progress(`memory ${round}/${bench.rounds}: ${first.heap.toFixed(1)} MB of heap above ${base.heap.toFixed(1)}`);
        if (round < bench.rounds) return;
        again = [first];
        while (again.length < passes) again.push(await pass());
      });
    }
    const text = `${title} (${all.length}) above the base`;
    const figures: Figure[] = [
      { text: `${text}: heap, MB`, values: above.map(({ heap }) => heap), aim: { atMost: 50 } },
      { text: `${text}: resident, MB`, values: above.map(({ resident }) => resident) },
    ];
    const growth = again.map(({ heap }) => heap.toFixed(1)).join(', ');
    return { rows: [], figures, notes: [`Heap above the base after each pass over all tenants, MB: ${growth}.`] };
  },
};

function plan(bench: Bench, service: Target, tenants: number[]) {
  return readsOver(bench, service, tenants, count => firstTenants(count), { headers: readThrough });
}

/** The base: compiled code, full pools, and a few tenants. */
async function ready(bench: Bench, service: Target, all: number[]): Promise<Memory> {
  const { stage } = bench;
  const few = plan(bench, service, all.slice(0, baseTenants));
  await (await startLoad(stage.children, stage.folder, service.url, few, baseSeconds)).result;
  return memoryOf(service);
}

async function memoryOf({ child }: Target): Promise<Memory> {
  const answer = once(child.process, 'message');
  child.process.send?.('memory');
  const [{ heap, rss }] = (await answer) as [{ heap: number; rss: number }];
  return { heap: heap / 1024 ** 2, resident: rss / 1024 ** 2 };
}

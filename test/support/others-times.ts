import { setTimeout as sleep } from 'node:timers/promises';
import { failuresOf, type Served, summaryOf } from './steady-load.ts';

interface Comparison<T> {
  /** The time that the others are served before the first and after each run of the work. */
  readonly calmMs: number;
  /** The number of times that the work is run. */
  readonly rounds: number;
  /** Sends the requests of the others until `until` resolves. */
  readonly load: (until: Promise<unknown>) => Promise<readonly Served[]>;
  readonly work: (round: number) => Promise<T>;
}

/**
 * Runs work several times, with calm before and after each, and prints how long the requests of
 * others take. A 99th percentile of a few milliseconds varies from one minute to the next by as
 * much as the work changes it. So each run is compared with the calm around it, and the median
 * of the ratios counts.
 * @returns what the runs returned, and how many requests of others failed
 */
export async function compareWithCalm<T>({ calmMs, rounds, load, work }: Comparison<T>) {
  const measureCalm = () => load(sleep(calmMs));
  const results: T[] = [];
  const table: Record<string, Record<string, number>> = {};
  const ratios: number[] = [];
  let failed = 0;
  let before = await measureCalm();

  for (let round = 1; round <= rounds; round++) {
    const working = work(round);
    const [result, during] = await Promise.all([working, load(working)]);
    const after = await measureCalm();

    const calm = summaryOf([...before, ...after]);
    const busy = summaryOf(during);
    const ratio = Math.round((100 * (busy.p99 ?? 0)) / (calm.p99 ?? 0)) / 100;

    table[`others, calm around ${round}`] = calm;
    table[`others, during ${round}`] = { ...busy, ratio };
    ratios.push(ratio);
    results.push(result);
    failed += failuresOf(during);
    before = after;
  }

  console.table(table);
  const sorted = ratios.toSorted((a, b) => a - b);
  console.log(
    `      p99 of others / p99 in the calm around it: median ${sorted[Math.floor(rounds / 2)]}`,
  );
  return { results, failed };
}

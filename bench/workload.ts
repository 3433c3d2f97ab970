import type { Bench, Row } from './measure.ts';
import type { Target } from './targets.ts';

/** One thing that is measured; all its contestants run in turn. */
export interface Work {
  readonly name: string;
  readonly title: string;
  run(bench: Bench): Promise<WorkResult>;
}

export interface WorkResult {
  readonly rows: Row[];
  readonly figures: Figure[];
  /** Of what else was seen; one sentence each. */
  readonly notes: string[];
}

/** What a work is there to show: one figure for each round, and what it should be. */
export interface Figure {
  readonly text: string;
  readonly values: number[];
  readonly aim?: { atLeast: number } | { atMost: number };
}

/** Starts servers, gives them to `work`, and stops them whatever happens. */
export async function withTargets<Targets extends (() => Promise<Target>)[], Result>(
  starts: [...Targets],
  work: (...targets: { [Index in keyof Targets]: Target }) => Promise<Result>,
): Promise<Result> {
  const started: Target[] = [];
  try {
    for (const start of starts) started.push(await start());
    return await work(...(started as { [Index in keyof Targets]: Target }));
  } finally {
    await Promise.all(started.map(target => target.stop()));
  }
}

/** A figure of each round divided by another's of the same round. */
export function ratios(
  rows: Row[],
  one: string,
  other: string,
  of: 'perSecond' | 'p50' | 'p99' = 'perSecond',
): number[] {
  const [above, below] = [one, other].map(name => rows.find(row => row.name === name)?.samples ?? []);
  return (above ?? []).map((sample, round) => sample[of] / (below?.[round]?.[of] ?? Number.NaN));
}

/** Answers that should not have been: refused by status, and cut off. */
export function errorsOf(rows: Row[], name: string): number[] {
  const samples = rows.find(row => row.name === name)?.samples ?? [];
  return samples.map(({ statusErrors, socketErrors }) => statusErrors + socketErrors);
}

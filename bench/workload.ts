import type { BenchContext, CaseResult, Sample } from './measure.ts';

/** One kind of load; all its cases are measured in turn. */
export interface Workload {
  readonly name: string;
  readonly title: string;
  run(bench: BenchContext): Promise<WorkloadResult>;
}

export interface WorkloadResult {
  readonly results: CaseResult[];
  readonly figures: Figure[];
  /** Other observations, one sentence each. */
  readonly notes: string[];
}

/** A result of a workload: one value per round, and the value it should reach. */
export interface Figure {
  readonly text: string;
  readonly values: number[];
  readonly aim?: { atLeast: number } | { atMost: number };
}

/** Returns, for each round, a figure of one case divided by that of another. */
export function ratios(
  results: CaseResult[],
  numerator: string,
  denominator: string,
  of: 'perSecond' | 'p50' | 'p99' | 'cpuServer' = 'perSecond',
): number[] {
  const [above, below] = [numerator, denominator].map(name => samplesOf(results, name));
  return (above ?? []).map((sample, round) => sample[of] / (below?.[round]?.[of] ?? Number.NaN));
}

/** Returns, for each round, the number of error responses and failed connections of a case. */
export function errorsOf(results: CaseResult[], name: string): number[] {
  return samplesOf(results, name).map(
    ({ statusErrors, socketErrors }) => statusErrors + socketErrors,
  );
}

/** Returns the samples of the case with this name; empty if there is none. */
export function samplesOf(results: CaseResult[], name: string): Sample[] {
  return results.find(result => result.name === name)?.samples ?? [];
}

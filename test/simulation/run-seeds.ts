import { type PartName, parts } from './parts.ts';
import { Violation } from './violation.ts';

/** The seeds of one thread: every `step`-th of `runs` seeds from `first` on. */
export interface SeedOrder {
  readonly part: PartName;
  readonly first: number;
  readonly runs: number;
  readonly step: number;
  readonly trace: boolean;
}

export interface SeedResult {
  readonly seed: number;
  /** The broken invariant, if there is one. */
  readonly violation?: string;
  /** All steps, if they were to be collected. */
  readonly trace?: string;
}

/**
 * Runs a simulation once for each seed.
 * @throws an error that is no violation
 */
export async function runSeeds(
  order: SeedOrder,
  onResult: (result: SeedResult) => void,
): Promise<void> {
  const { first, runs, step, trace: isTraced } = order;
  const run = await parts[order.part].load();
  for (let seed = first; seed < first + runs; seed += step) {
    const trace: string[] = [];
    let violation: string | undefined;
    try {
      await run(isTraced ? { seed, trace } : { seed });
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      violation = error.message;
    }
    onResult({
      seed,
      ...(violation !== undefined && { violation }),
      ...(isTraced && { trace: trace.join('\n') }),
    });
  }
}

import { errorText } from './error-text.ts';
import { runConcurrently } from './run-concurrently.ts';

/** What a run over many tenants or archives reports, and what ends it early. */
export interface FleetObservers<Outcome> {
  /** Receives the number of outcomes. */
  readonly onStart?: (total: number) => void;
  readonly onOutcome?: (outcome: Outcome) => void;
  /** After its abort nothing further is begun. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs `attempt` for each tenant or archive, at most `concurrency` at a time, and reports each outcome as soon as it is
 * known. An attempt that fails is an outcome, and does not stop the others (`timed`).
 * @returns the outcomes in the order of the items
 * @throws the first error of an attempt, when the running ones have ended: no further attempt begins
 */
export async function runFleet<Item, Outcome>(
  items: readonly Item[],
  concurrency: number,
  { onStart, onOutcome }: FleetObservers<Outcome>,
  attempt: (item: Item) => Promise<Outcome>,
): Promise<Outcome[]> {
  onStart?.(items.length);
  return runConcurrently(items, concurrency, async item => {
    const outcome = await attempt(item);
    onOutcome?.(outcome);
    return outcome;
  });
}

/** Runs the work of an attempt. @returns how long it took, in ms, and its error as one line; null: it has succeeded */
export async function timed(work: () => Promise<unknown>): Promise<{ ms: number; error: string | null }> {
  const startedAt = performance.now();
  const error = await work().then(() => null, errorText);
  return { ms: Math.round(performance.now() - startedAt), error };
}

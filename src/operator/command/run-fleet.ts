import pLimit from 'p-limit';
import { explain } from '../../lib/log/operator-error.ts';
import { connectFailure } from '../../lib/log/postgres-causes.ts';
import type { Context } from './operation.ts';
import { errorText } from './texts.ts';

/** The observers of a run over many tenants or archives, and the signal that ends it. */
export interface FleetObservers<Outcome> {
  /** Receives the number of outcomes. */
  readonly onStart?: (total: number) => void;
  readonly onOutcome?: (outcome: Outcome) => void;
  /** The signal after whose abort nothing further is begun. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs `attempt` for each tenant or archive, at most `concurrency` at a time, and reports each
 * outcome as soon as it is known. An attempt that fails is an outcome, and does not stop the
 * others (`measure`).
 * @returns the outcomes in the order of the items
 * @throws the first error of an attempt, when the running ones have ended: no further attempt
 *   begins
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

/**
 * Runs the work of an attempt.
 * @returns the time of the attempt, in ms, and its error as one line; null: the attempt has
 *   succeeded
 */
export async function measure(
  work: () => Promise<unknown>,
): Promise<{ ms: number; error: string | null }> {
  const startedAt = performance.now();
  const error = await work().then(() => null, failureText);
  return { ms: Math.round(performance.now() - startedAt), error };
}

/** Describes an error in one line; one of a connection with its cause and the next step. */
function failureText(error: unknown): string {
  return errorText(connectFailure(error) === undefined ? error : explain(error));
}

/**
 * Runs `task` for every item, at most `concurrency` at a time, and returns the results in the
 * order of the items.
 * @throws the first error of a task: no further task begins, and the error is thrown when the
 *   running tasks have ended
 */
export async function runConcurrently<Item, Result>(
  items: readonly Item[],
  concurrency: number,
  task: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const limit = pLimit({ concurrency, rejectOnClear: true });

  const run = async (item: Item): Promise<Result> => {
    try {
      return await task(item);
    } catch (error) {
      limit.clearQueue();
      throw error;
    }
  };

  const settled = await Promise.allSettled(items.map(item => limit(run, item)));
  // Tasks begin in the order of the items, so the error of a task comes before the AbortErrors
  // of tasks that did not begin.
  return settled.map(result => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}

/** The appearance of the outcomes of a run. */
interface Appearance<Outcome> {
  readonly text: (outcome: Outcome) => string;
  readonly hasFailed: (outcome: Outcome) => boolean;
  /** False for an outcome that is only printed as a document. Without it, all are printed. */
  readonly isShown?: (outcome: Outcome) => boolean;
}

/** The outcome of one tenant, archive or database. */
interface TracedOutcome {
  /** The slug; null: the control database. */
  readonly slug: string | null;
  /** The time that the work on the tenant took, in ms. */
  readonly ms?: number;
}

/**
 * Runs a fleet run, counts its outcomes as progress, prints each one, and adds it to the trace;
 * `signal` ends the run early. The text of the failed ones follows at the end, where nobody has
 * to search for it, also when the run throws.
 */
export async function reportOutcomes<Outcome extends TracedOutcome, Result>(
  { output, progress, signal, trace }: Pick<Context, 'output' | 'progress' | 'signal' | 'trace'>,
  { text, hasFailed, isShown = () => true }: Appearance<Outcome>,
  run: (observers: FleetObservers<Outcome>) => Promise<Result>,
): Promise<Result> {
  const failures: Outcome[] = [];

  const onOutcome = (outcome: Outcome): void => {
    const isFailed = hasFailed(outcome);
    progress.advance(isFailed);
    addSpan(trace, outcome, isFailed);
    if (output.wantsDocuments) output.part(outcome, () => '');
    else if (isShown(outcome) && isFailed) failures.push(outcome);
    else if (isShown(outcome)) output.text(() => text(outcome));
  };

  try {
    return await run({ signal, onStart: total => progress.start(total), onOutcome });
  } finally {
    for (const failure of failures) output.text(() => text(failure));
  }
}

/** Adds a span for a tenant whose work took time: a tenant without a change has none. */
function addSpan(
  trace: Context['trace'],
  { slug, ms = 0 }: TracedOutcome,
  isFailed: boolean,
): void {
  if (!trace || ms === 0) return;
  const endedAt = performance.now();
  const name = slug === null ? 'control database' : 'tenant';
  trace.addStep(name, endedAt - ms, endedAt, {
    attributes: slug === null ? {} : { 'backoffice.tenant': slug },
    isFailed,
  });
}

/** True for the outcome of a failed attempt. */
export function hasFailed({ state }: { readonly state: string }): boolean {
  return state === 'failed';
}

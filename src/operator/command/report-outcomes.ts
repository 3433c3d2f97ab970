import type { Context } from './operation-context.ts';
import type { FleetObservers } from './run-fleet.ts';

/** How the outcomes of a run appear. */
interface Appearance<Outcome> {
  readonly text: (outcome: Outcome) => string;
  readonly hasFailed: (outcome: Outcome) => boolean;
  /** False for an outcome that is only printed as a document. Without it, all are printed. */
  readonly isShown?: (outcome: Outcome) => boolean;
}

/** The outcome of one tenant, archive or database. */
interface TracedOutcome {
  /** Null: the control database. */
  readonly slug: string | null;
  /** How long it took, in ms. */
  readonly ms?: number;
}

/**
 * Runs a fleet run, counts its outcomes as progress, prints each one, and adds it to the trace; `signal` ends the run
 * early. The text of those that failed follows at the end, so that nobody has to search for it, also when the run throws.
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

/** Adds what took time: a tenant without a change has no span. */
function addSpan(trace: Context['trace'], { slug, ms = 0 }: TracedOutcome, isFailed: boolean): void {
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

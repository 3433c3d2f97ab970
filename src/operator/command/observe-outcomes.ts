import type { Context } from './operation-context.ts';
import type { FleetObservers } from './run-fleet.ts';

/** How the outcomes of a run appear. */
interface Appearance<Outcome> {
  readonly text: (outcome: Outcome) => string;
  readonly hasFailed: (outcome: Outcome) => boolean;
  /** False for an outcome that is only printed as a document. Without it, all are printed. */
  readonly isShown?: (outcome: Outcome) => boolean;
}

/** Returns observers of a run that count its outcomes as progress, and print each one; `signal` ends it early. */
export function observeOutcomes<Outcome>(
  { output, progress, signal }: Pick<Context, 'output' | 'progress' | 'signal'>,
  { text, hasFailed, isShown = () => true }: Appearance<Outcome>,
): FleetObservers<Outcome> {
  return {
    signal,
    onStart: total => progress.start(total),
    onOutcome: outcome => {
      progress.advance(hasFailed(outcome));
      if (output.wantsDocuments || isShown(outcome)) output.part(outcome, () => text(outcome));
    },
  };
}

/** True for the outcome of a failed attempt. */
export function hasFailed({ state }: { readonly state: string }): boolean {
  return state === 'failed';
}

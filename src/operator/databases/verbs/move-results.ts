import { OperatorError } from '../../../lib/log/operator-error.ts';
import type { Context, Output } from '../../command/operation.ts';
import { amount, flag } from '../../command/operation-fields.ts';
import { countText } from '../../command/texts.ts';
import { createFenceGuard } from '../protocol/fence-guard.ts';
import type { RunObservers } from '../protocol/run-databases.ts';
import type { MoveSummary } from './move-tenant.ts';

/**
 * The field of every operation that leaves or drops a database in which somebody else may have
 * made tables.
 */
export const leaveSchemas = flag(
  'go on although tables that others have made are left behind, or dropped',
  {
    label: 'Leave the tables of others',
    isAdvanced: true,
  },
);

/**
 * The field of every operation that sessions of others in the database of a tenant can hinder.
 */
export const endSessions = flag(
  'end sessions of others in the database of the tenant, such as psql or an agent',
  {
    label: 'End sessions of others',
    isAdvanced: true,
  },
);

/** The fields that every operation has that moves tenants. */
export const moveFields = {
  pause: amount('seconds', 'maximum estimated time for which requests wait', {
    label: 'Longest pause',
    parse: parseAmount('seconds'),
    default: 1,
    isAdvanced: true,
  }),
  keep: amount('hours', 'how long the old database is kept, so that the tenant can be moved back', {
    label: 'Keep the old database',
    parse: parseAmount('hours'),
    default: 24,
    isAdvanced: true,
  }),
  leaveSchemas,
  endSessions,
};

/** Describes the output of `--json` for an operation that moves tenants. */
export const moveJson = 'print JSON lines on stdout: the steps, and at the end the move';

export const moveInterrupt = { text: 'the next step at which the tenant is served' };

/** Returns the move that the fields ask for. */
export function moveRequest({
  pause,
  keep,
  leaveSchemas,
  endSessions,
}: {
  pause: number;
  keep: number;
  leaveSchemas: boolean;
  endSessions: boolean;
}) {
  return { keepSeconds: keep * 3_600, maxPauseMs: pause * 1_000, leaveSchemas, endSessions };
}

/**
 * Returns the observers of a run, which show its steps, and interrupt it where no request
 * waits.
 */
export function observeRun({ progress, signal, output }: Context): RunObservers {
  return {
    warn: text => output.warn(text),
    guard: createFenceGuard(),
    signal,
    onStep: (slug, step) => progress.step(`${slug}: ${step}`),
  };
}

/**
 * Runs moves, one after the other, with observers that also print their steps as documents, and
 * add them to the trace: a step ends when the next one begins, and the last one with the run.
 */
export async function observeMoves<T>(
  context: Context,
  run: (observers: RunObservers) => Promise<T>,
): Promise<T> {
  const { onStep, ...observers } = observeRun(context);
  const { output, trace } = context;
  const startedAt = performance.now();
  let last: { slug: string; step: string; startedAt: number } | undefined;

  const endStep = (isFailed: boolean): void => {
    if (last) {
      trace?.addStep(last.step, last.startedAt, performance.now(), {
        attributes: { 'backoffice.tenant': last.slug },
        isFailed,
      });
    }
    last = undefined;
  };

  const observed: RunObservers = {
    ...observers,
    onStep: (slug, step) => {
      endStep(false);
      last = { slug, step, startedAt: performance.now() };

      if (output.wantsDocuments) {
        output.part({ slug, step, ms: Math.round(last.startedAt - startedAt) }, () => '');
      }
      onStep?.(slug, step);
    },
  };

  let isDone = false;
  try {
    const result = await run(observed);
    isDone = true;
    return result;
  } finally {
    endStep(!isDone);
  }
}

/** Returns the end of a move. */
export function returnMove(output: Output, move: MoveSummary): void {
  const { slug, from, to, rows, pauseMs, reversibleUntil } = move;
  output.part(
    move,
    () =>
      `${slug} is on ${to} now: ${countText(rows, 'row')}, of which the changed ones were copied and compared while its requests waited ` +
      `for ${pauseMs} ms. Until ${reversibleUntil} it can be moved back to ${from}: bin/backoffice move ${slug} --back`,
  );
}

/** Returns a function that parses a number above 0, such as 24 or 0.5. */
export function parseAmount(unit: 'hours' | 'seconds') {
  return (value: string): number => {
    if (!/^\d{1,4}(\.\d{1,3})?$/.test(value) || Number(value) === 0) {
      throw new OperatorError(`Give a number of ${unit} above 0.`);
    }
    return Number(value);
  };
}

import { OperatorError } from '../../operator-error.ts';
import { countText } from '../count-text.ts';
import { createFenceGuard } from '../move/fence-guard.ts';
import type { MoveStep } from '../move/move-protocol.ts';
import type { MoveSummary } from '../move/read-moves.ts';
import type { MoveObservers } from '../move/run-move.ts';
import type { Context, Output } from './operation-context.ts';
import { option } from './operation-fields.ts';

/** The fields that every operation has that moves tenants. */
export const moveFields = {
  pause: option('<seconds>', 'maximum estimated time for which requests wait', { parse: parseSeconds, default: 1 }),
  keep: option('<hours>', 'how long the old database is kept for --back', { parse: parseHours, default: 24 }),
};

/** What `--json` prints of an operation that moves tenants. */
export const moveJson = 'print JSON lines on stdout: the steps, and at the end the move';

export const moveInterrupt = { text: 'the next step of the move at which the tenant is served' };

/** Returns what the fields ask for. */
export function moveRequest({ pause, keep }: { pause: number; keep: number }) {
  return { keepSeconds: keep * 3_600, maxPauseMs: pause * 1_000 };
}

/** Returns the observers of a move, which say its steps, and interrupt it where nothing waits for it. */
export function observeMove({ output, progress, signal }: Context): MoveObservers {
  const startedAt = performance.now();
  return {
    guard: createFenceGuard('move'),
    signal,
    onStep: (slug, step) => {
      const document = { slug, step: stepText(step), ms: Math.round(performance.now() - startedAt) };
      if (output.wantsDocuments) output.part(document, () => '');
      progress.step(`${slug}: ${document.step}`);
    },
  };
}

/** Returns the end of a move. */
export function returnMove(output: Output, move: MoveSummary): void {
  const { slug, from, to, rows, pauseMs, reversibleUntil } = move;
  output.part(
    move,
    () =>
      `${slug} is on ${to} now: ${countText(rows ?? 0, 'row')}, of which the changed ones were copied and compared while its requests waited ` +
      `for ${pauseMs} ms. Until ${reversibleUntil} it can be moved back to ${from}: npx backoffice move ${slug} --back`,
  );
}

function stepText(step: MoveStep): string {
  return step.kind === 'enter' ? step.to : step.kind;
}

function parseSeconds(value: string): number {
  if (!/^\d{1,4}(\.\d{1,3})?$/.test(value) || Number(value) === 0)
    throw new OperatorError('Give a number of seconds above 0.');
  return Number(value);
}

function parseHours(value: string): number {
  if (!/^\d{1,4}(\.\d{1,3})?$/.test(value)) throw new OperatorError('Give a number of hours.');
  return Number(value);
}

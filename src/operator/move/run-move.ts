import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { errorText } from '../error-text.ts';
import type { FenceGuard } from './fence-guard.ts';
import { recordFacts } from './move-facts.ts';
import { type MoveGoal, type MoveState, type MoveStep, moveProtocol } from './move-protocol.ts';
import { MoveSteps } from './move-steps.ts';
import { type Move, readView, takeOver } from './move-store.ts';
import { RunReplacedError } from './tenant-guard.ts';

export interface MoveObservers {
  /** Called before each step. */
  onStep?: ((slug: string, step: MoveStep) => void) | undefined;
  /** After its abort, the run retreats, unless the fence is closed already: it then finishes. */
  signal?: AbortSignal | undefined;
  /** Puts the tenant back into service if this process dies behind the fence. */
  guard?: FenceGuard | undefined;
}

/**
 * Lets a new run work on a move until its goal is reached. When a step fails, the run retreats: requests of the tenant
 * go on in the database that the tenant has.
 * @param control holds the lock of the tenant
 * @returns the state that the move has now
 */
export async function runMove(
  installation: Installation,
  control: pg.Client,
  id: number,
  goal: MoveGoal,
  observers: MoveObservers = {},
): Promise<MoveState> {
  const move = await takeOver(control, id);
  if (goal === 'switch') await observers.guard?.protect(move.slug);
  try {
    const state = await drive(installation, control, move, goal, observers);
    observers.guard?.release(move.slug);
    return state;
  } catch (error) {
    if (error instanceof RunReplacedError) observers.guard?.release(move.slug);
    if (error instanceof RunReplacedError) throw error;
    await retreat(installation, control, move, error);
    observers.guard?.release(move.slug);
    await recordFacts(control, move, { error: errorText(error) }).catch(() => {});
    throw error;
  }
}

async function drive(
  installation: Installation,
  control: pg.Client,
  move: Move,
  goal: MoveGoal,
  { onStep, signal }: MoveObservers,
): Promise<MoveState> {
  const steps = new MoveSteps(installation, control, move);
  try {
    const protocol = moveProtocol(move, goal);
    for (let next = protocol.next(); ; next = protocol.next()) {
      if (next.done) return next.value;
      if (signal?.aborted && isInterruptible(next.value)) throw new OperatorError('the move was interrupted');
      onStep?.(move.slug, next.value);
      await steps.take(next.value);
    }
  } finally {
    await steps.close();
  }
}

function isInterruptible(step: MoveStep): boolean {
  return step.kind === 'announce fence' || step.kind === 'copy' || (step.kind === 'enter' && step.to === 'fenced');
}

/** @throws {OperatorError} when the tenant could not be put back into service */
async function retreat(installation: Installation, control: pg.Client, move: Move, cause: unknown): Promise<void> {
  try {
    const view = await readView(control, move);
    await drive(installation, control, { ...move, ...view }, 'retreat', {});
  } catch (error) {
    if (error instanceof RunReplacedError) throw error;
    throw new OperatorError(
      `${errorText(cause)}. Then the run could not retreat either: ${errorText(error)}. Requests of ${move.slug} may ` +
        `get 503 until another run succeeds, which is tried for 15 minutes by itself: npx backoffice move resume ${move.slug}`,
      { cause: error },
    );
  }
}

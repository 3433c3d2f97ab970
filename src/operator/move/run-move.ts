import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { sqlState } from '../../postgres/database-error.ts';
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
 * go on in the database that the tenant has. If that is the new one already, the move has succeeded.
 * @param control holds the lock of the tenant
 * @returns the state that the move has now
 * @throws {OperatorError} when a server refuses or breaks off a step
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
    const state = await retreat(installation, control, move, error);
    observers.guard?.release(move.slug);
    if (goal === 'switch' && state === 'switched') return state;
    await recordFacts(control, move, { error: errorText(error) }).catch(() => {});
    throw sqlState(error) === undefined ? error : await stopped(control, move, state, error);
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

/** Says which servers the move needs to go on, and who serves the tenant meanwhile. */
async function stopped(control: pg.Client, move: Move, state: MoveState, cause: unknown): Promise<OperatorError> {
  const { rows } = await control.query<{ from: string; to: string; now: string }>(
    `select f.name as from, s.name as to, n.name as now
       from tenant_moves m join tenants t on t.id = tenant_id join servers n on n.id = t.server_id
       join servers f on f.id = from_server_id join servers s on s.id = to_server_id where m.id = $1`,
    [move.id],
  );
  const { from, to, now } = rows[0] ?? { from: '', to: '', now: '' };
  const verbs: Partial<Record<MoveState, string>> = { aborting: 'abort', switched: 'settle', settling: 'settle' };
  return new OperatorError(
    `The move of ${move.slug} from ${from} to ${to} has stopped (${errorText(cause)}): ${move.slug} is served by ${now}, ` +
      `as before. When both servers work, go on: npx backoffice move ${verbs[state] ?? 'resume'} ${move.slug}`,
    { cause },
  );
}

/**
 * @returns the state that the move has now
 * @throws {OperatorError} when the tenant could not be put back into service
 */
async function retreat(installation: Installation, control: pg.Client, move: Move, cause: unknown): Promise<MoveState> {
  try {
    const view = await readView(control, move);
    return await drive(installation, control, { ...move, ...view }, 'retreat', {});
  } catch (error) {
    if (error instanceof RunReplacedError) throw error;
    throw new OperatorError(
      `${errorText(cause)}. Then the run could not retreat either: ${errorText(error)}. Requests of ${move.slug} may ` +
        `get 503 until another run succeeds, which is tried for 15 minutes by itself: npx backoffice move resume ${move.slug}`,
      { cause: error },
    );
  }
}

import type pg from 'pg';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { errorText } from '../../error-text.ts';
import type { FenceGuard } from '../../move/fence-guard.ts';
import { lockTenant } from '../../move/lock-tenant.ts';
import type { MoveState } from '../../move/move-protocol.ts';
import { commandToEnd } from '../../move/read-moves.ts';
import { RunReplacedError } from '../../move/tenant-guard.ts';
import { requireNotPurging } from '../../tenants/purging.ts';
import { findRestoredPair, type RestoredPair } from '../find-side.ts';
import { type RestoreGoal, type SwapStep, takeSteps } from '../restore-protocol.ts';
import { SwapRun } from './swap-run.ts';

export interface SwapResult {
  tenant: string;
  side: string;
  /** True if the tenant now has the restored data, and the side its former data. */
  isSwapped: boolean;
  /** How long requests of the tenant waited, at most. 0 if nothing was to be swapped. */
  pauseMs: number;
}

interface SwapObservers {
  /** Called before each step. */
  onStep?: (step: SwapStep) => void;
  /** Puts the tenant back into service if this process dies behind the fence. */
  guard?: FenceGuard;
}

/**
 * Gives a tenant the restored database and its side the former one, or undoes that. Requests of the tenant wait
 * meanwhile. Killed at any point, the command is run again, with either direction: `restoreProtocol` has the proof.
 *
 * @param toRestored true: the tenant gets the restored data; false: it gets its former data back
 * @throws {OperatorError} when another command works on the tenant, or the side is served
 */
export async function swapTenants(
  installation: Installation,
  slug: string,
  toRestored: boolean,
  observers: SwapObservers = {},
): Promise<SwapResult> {
  const found = await findRestoredPair(installation, slug);
  return withLockedPair(installation, found, async (control, pair) => {
    await requireNotPurging(installation, pair.side.slug);
    await requireIdle(control, pair, toRestored);
    const run = new SwapRun(installation, control, pair);
    await drive(installation, run, toRestored ? 'swapped' : 'aside', observers);
    return { tenant: pair.tenant.slug, side: pair.side.slug, isSwapped: toRestored, pauseMs: run.pauseMs };
  });
}

/**
 * Puts a tenant back into service, with the database that it has, whose swap has ended behind the fence. Has no effect
 * if the side is purged.
 * @param slug of the side
 * @throws {OperatorError} when another command works on one of the two
 */
export async function retreatSwap(installation: Installation, slug: string): Promise<void> {
  const found = await findRestoredPair(installation, slug).catch(ignoreMissing);
  if (found) await withLockedPair(installation, found, (control, pair) => retreat(installation, control, pair));
}

function ignoreMissing(error: unknown): undefined {
  if (!(error instanceof OperatorError)) throw error;
}

/** Locks both tenants against other commands, and reads them again. */
async function withLockedPair<T>(
  installation: Installation,
  { tenant, side }: RestoredPair,
  work: (control: pg.Client, pair: RestoredPair) => Promise<T>,
): Promise<T> {
  return withConnection(installation.controlUrl, async control => {
    for (const each of [tenant, side]) await lockTenant(control, each.id, each.slug);
    return work(control, await findRestoredPair(installation, side.slug));
  });
}

/** @throws {OperatorError} unless the side is not served, and no move of either is unfinished */
async function requireIdle(control: pg.Client, pair: RestoredPair, toRestored: boolean): Promise<void> {
  const { tenant, side } = pair;
  if (side.status === 'deleted' && toRestored && !pair.isSwapped)
    throw new OperatorError(`${side.slug} is deleted. End the swap: npx backoffice restore back ${side.slug}`);
  if (side.status !== 'suspended' && side.status !== 'deleted')
    throw new OperatorError(`${side.slug} is ${side.status}. Suspend it first: npx backoffice suspend ${side.slug}`);
  for (const { slug, schemaVersion } of [tenant, side])
    if (!schemaVersion) throw new OperatorError(`${slug} is being migrated: npx backoffice migrate ${slug}`);
  const { rows } = await control.query<{ slug: string; state: MoveState }>(
    `select slug, state from tenant_moves m join tenants t on t.id = m.tenant_id
      where t.id in ($1, $2) and ended_at is null`,
    [tenant.id, side.id],
  );
  const [moving] = rows;
  if (moving)
    throw new OperatorError(
      `${moving.slug} has two databases, because of a move. End it first: ${commandToEnd(moving.state, moving.slug)}`,
    );
}

/** Takes the steps to a goal. When one fails, puts the tenant back into service with the database that it has. */
async function drive(
  installation: Installation,
  run: SwapRun,
  goal: RestoreGoal,
  { onStep, guard }: SwapObservers,
): Promise<void> {
  const { tenant, side } = run.pair;
  await guard?.protect(side.slug);
  try {
    await takeSteps<SwapStep>(run.view, goal, run.effects, onStep);
  } catch (error) {
    await run.close();
    // Otherwise another run has taken over; or nothing was changed, and the tenant was not behind its fence.
    if (!(error instanceof RunReplacedError) && run.mayBeFenced)
      await retreatAfter(error, () => retreat(installation, run.control, run.pair, onStep), tenant.slug);
    guard?.release(side.slug);
    throw error;
  } finally {
    await run.close();
  }
  guard?.release(side.slug);
}

/** @throws {OperatorError} when the tenant could not be put back into service */
async function retreatAfter(error: unknown, work: () => Promise<void>, slug: string): Promise<void> {
  await work().catch(cause => {
    if (cause instanceof RunReplacedError) return;
    throw new OperatorError(
      `${errorText(error)}. Then ${slug} could not be put back into service either: ${errorText(cause)}. Its requests ` +
        'may get 503 until that succeeds, which is tried for 15 minutes by itself, or the command is run again',
      { cause },
    );
  });
}

/** With connections of its own: those of a failed run may be broken. */
async function retreat(
  installation: Installation,
  control: pg.Client,
  { side }: RestoredPair,
  onStep?: (step: SwapStep) => void,
): Promise<void> {
  const run = new SwapRun(installation, control, await findRestoredPair(installation, side.slug));
  try {
    await takeSteps<SwapStep>(run.view, 'retreat', run.effects, onStep);
  } finally {
    await run.close();
  }
}

import type pg from 'pg';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { errorText } from '../../error-text.ts';
import { lockTenant } from '../../move/lock-tenant.ts';
import { RunReplacedError } from '../../move/tenant-guard.ts';
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

/** Called before each step. */
type OnStep = (step: SwapStep) => void;

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
  onStep: OnStep = () => {},
): Promise<SwapResult> {
  const { tenant, side } = await findRestoredPair(installation, slug);
  return withConnection(installation.controlUrl, async control => {
    for (const each of [tenant, side]) await lockTenant(control, each.id, each.slug);
    const pair = await findRestoredPair(installation, side.slug);
    await requireIdle(control, pair, toRestored);
    const run = new SwapRun(installation, control, pair);
    await drive(installation, run, toRestored ? 'swapped' : 'aside', onStep);
    return { tenant: tenant.slug, side: side.slug, isSwapped: toRestored, pauseMs: run.pauseMs };
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
  const { rows } = await control.query<{ slug: string }>(
    `select slug from tenant_moves m join tenants t on t.id = m.tenant_id
      where t.id in ($1, $2) and ended_at is null`,
    [tenant.id, side.id],
  );
  const [moving] = rows;
  if (moving)
    throw new OperatorError(
      `${moving.slug} is being moved, or its old database is still kept: end that first (npx backoffice move list)`,
    );
}

/** Takes the steps to a goal. When one fails, puts the tenant back into service with the database that it has. */
async function drive(installation: Installation, run: SwapRun, goal: RestoreGoal, onStep: OnStep): Promise<void> {
  try {
    await takeSteps<SwapStep>(run.view, goal, run.effects, onStep);
  } catch (error) {
    await run.close();
    // Another run has taken over; or nothing was changed, and the tenant was not behind its fence.
    if (error instanceof RunReplacedError || !run.mayBeFenced) throw error;
    await retreat(installation, run, onStep).catch(cause => {
      if (cause instanceof RunReplacedError) throw cause;
      throw new OperatorError(
        `${errorText(error)}. Then ${run.pair.tenant.slug} could not be put back into service either: ${errorText(cause)}. ` +
          'Its requests may get 503 until the command is run again',
        { cause },
      );
    });
    throw error;
  } finally {
    await run.close();
  }
}

/** With connections of its own: those of the failed run may be broken. */
async function retreat(installation: Installation, failed: SwapRun, onStep: OnStep): Promise<void> {
  const pair = await findRestoredPair(installation, failed.pair.side.slug);
  const run = new SwapRun(installation, failed.control, pair);
  try {
    await takeSteps<SwapStep>(run.view, 'retreat', run.effects, onStep);
  } finally {
    await run.close();
  }
}

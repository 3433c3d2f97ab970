import type pg from 'pg';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { errorText } from '../../error-text.ts';
import { announceFence, closeFence, drainProcesses, liftFence } from '../../move/fence.ts';
import { lockTenant } from '../../move/lock-tenant.ts';
import { becomeMember, endSessions } from '../../schema/tenant-sessions.ts';
import { findRestoredPair, type RestoredPair } from '../find-side.ts';
import { announceData, exchangePointers } from './exchange-pointers.ts';
import { closeDatabase, handOver, inDatabase, openDatabases } from './swap-databases.ts';

export interface SwapResult {
  tenant: string;
  side: string;
  /** True if the tenant now has the restored data, and the side its former data. */
  isSwapped: boolean;
  /** How long requests of the tenant waited, at most. 0 if nothing was to be swapped. */
  pauseMs: number;
}

/** A step of a swap, in this order. */
export const swapSteps = [
  'announce fence',
  'close fence',
  'wait for processes',
  'close former database',
  'end sessions',
  'hand over restored database',
  'exchange databases',
  'open databases',
  'lift fence',
] as const;
type SwapStep = (typeof swapSteps)[number];

/** Called before each step. */
type OnStep = (step: SwapStep) => void;

/**
 * Gives a tenant the restored database and its side the former one, or undoes that. Requests of the tenant wait
 * meanwhile. Killed at any point, the command is run again, with either direction:
 *
 *   S1 (pointer) One transaction of the control database exchanges the two databases. Whether they are swapped is
 *      known by it alone.
 *   S2 (writers) Before S1, the former database lets in no session of the tenant: its stamp names the side, its login
 *   is
 *      closed, and its sessions have ended. So no change is lost in it. The side is suspended throughout.
 *   S3 (repair) At its end, each run makes stamps and logins of both databases agree with the control database, and
 *   lifts
 *      the fence, also when a step has failed. So a run after a killed one completes the swap, or with the other
 *      direction takes it back.
 *   S4 (fence) A fence that a killed run has closed stays closed until then: no request of the tenant gets to a
 *   database
 *      that refuses it.
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
  const { id, slug: name } = (await findRestoredPair(installation, slug)).tenant;
  return withConnection(installation.controlUrl, async control => {
    await lockTenant(control, id, name);
    const pair = await findRestoredPair(installation, slug);
    await lockTenant(control, pair.side.id, pair.side.slug);
    await requireIdle(control, pair);
    const isDone = pair.isSwapped === toRestored;
    const pauseMs = isDone ? 0 : await exchangeOrRetreat(installation, control, pair, onStep);
    await settle(installation, control, pair.side.slug, onStep);
    return { tenant: pair.tenant.slug, side: pair.side.slug, isSwapped: toRestored, pauseMs };
  });
}

/** @throws {OperatorError} unless the side is suspended, and no move of either is unfinished */
async function requireIdle(control: pg.Client, { tenant, side }: RestoredPair): Promise<void> {
  if (side.status !== 'suspended')
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

/**
 * Exchanges the databases. When a step fails, puts the tenant back into service with the database that it has.
 * @returns how long requests waited, in ms
 */
async function exchangeOrRetreat(
  installation: Installation,
  control: pg.Client,
  pair: RestoredPair,
  onStep: OnStep,
): Promise<number> {
  try {
    return await exchange(installation, control, pair, onStep);
  } catch (error) {
    await settle(installation, control, pair.side.slug, onStep).catch(cause => {
      throw new OperatorError(
        `${errorText(error)}. Then ${pair.tenant.slug} could not be put back into service either: ${errorText(cause)}. ` +
          'Its requests may get 503 until the command is run again',
        { cause },
      );
    });
    throw error;
  }
}

/** @returns how long requests waited, in ms */
async function exchange(
  installation: Installation,
  control: pg.Client,
  { tenant, side }: RestoredPair,
  onStep: OnStep,
): Promise<number> {
  // Connected before the fence is closed, so that requests do not wait for that.
  return inDatabase(installation, tenant, former =>
    inDatabase(installation, side, async restored => {
      await becomeMember(former, tenant.roleName);
      if (!(await isFenceClosed(control, tenant.guid))) {
        onStep('announce fence');
        await announceFence(control, tenant.guid, side.server.id);
      }
      const startedAt = performance.now();
      onStep('close fence');
      await control.query(closeFence, [tenant.guid]);
      onStep('wait for processes');
      await drainProcesses(control, tenant.guid);
      onStep('close former database');
      await closeDatabase(former, tenant, side);
      onStep('end sessions');
      await endSessions(former, tenant.roleName);
      onStep('hand over restored database');
      await handOver(restored, side, tenant);
      onStep('exchange databases');
      await exchangePointers(control, installation.secrets, tenant, side);
      return performance.now() - startedAt;
    }),
  );
}

async function isFenceClosed(control: pg.Client, guid: string): Promise<boolean> {
  const { rowCount } = await control.query('select from tenant_fences where tenant_guid = $1 and closed', [guid]);
  return rowCount === 1;
}

/** Opens both databases as the control database says now, and lifts the fence. */
async function settle(installation: Installation, control: pg.Client, slug: string, onStep: OnStep): Promise<void> {
  const { tenant, side } = await findRestoredPair(installation, slug);
  onStep('open databases');
  await openDatabases(installation, [tenant, side]);
  onStep('lift fence');
  await announceData(control, tenant.guid);
  await control.query(liftFence, [tenant.guid]);
}

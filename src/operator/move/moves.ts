import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import { findTenant } from '../tenants/tenants.ts';
import { beginMove, findUnfinished, type MoveRequest } from './begin-move.ts';
import { lockTenant } from './lock-tenant.ts';
import type { MoveGoal } from './move-protocol.ts';
import { type MoveSummary, noUnfinishedMove, readMove } from './read-moves.ts';
import { type MoveObservers, runMove } from './run-move.ts';

/** Moves a tenant to another server, or goes on with its move there. @returns the move */
export async function moveTenant(
  installation: Installation,
  slug: string,
  request: MoveRequest,
  observers: MoveObservers = {},
): Promise<MoveSummary> {
  return withTenantLock(installation, slug, async (control, tenantId) => {
    const id = await beginMove(installation, control, tenantId, request);
    await runMove(installation, control, id, 'switch', observers);
    await settleEarlier(installation, control, tenantId, id, observers);
    return readMove(installation, id);
  });
}

/**
 * Moves a tenant back to the server that it was moved from, with what was written since.
 * @throws {OperatorError} when the time for that has passed
 */
export async function moveBack(
  installation: Installation,
  slug: string,
  request: Omit<MoveRequest, 'to'>,
  observers: MoveObservers = {},
): Promise<MoveSummary> {
  const to = await reversibleTarget(installation, slug);
  return moveTenant(installation, slug, { ...request, to }, observers);
}

/**
 * Returns the server that a tenant can be moved back to.
 * @throws {OperatorError} when the time for that has passed
 */
export async function reversibleTarget(installation: Installation, slug: string): Promise<string> {
  const { id } = await findTenant(installation, slug);
  const [move] = await installation.statements.execute<{ from: string; open: boolean; until: string | null }[]>(
    `select s.name as from, coalesce(reversible_until > now(), false) as open, ${isoTime('reversible_until')} as until
       from tenant_moves m join servers s on s.id = from_server_id
      where tenant_id = ? and state = 'switched' order by m.id desc limit 1`,
    [id],
  );
  if (move?.open) return move.from;
  throw new OperatorError(
    move
      ? `The move of ${slug} could be reversed until ${move.until}. Move it as always: npx backoffice move ${slug} ` +
          `--to ${move.from}`
      : `${slug} has no move that can be reversed. See its moves: npx backoffice move list`,
  );
}

/**
 * Goes on with the unfinished move of a tenant, or gives it up.
 * @throws {OperatorError} when there is none, or the tenant has the new database already and it cannot be given up
 */
export async function resumeMove(
  installation: Installation,
  slug: string,
  goal: Extract<MoveGoal, 'switch' | 'abort'>,
  observers: MoveObservers = {},
): Promise<MoveSummary> {
  return withTenantLock(installation, slug, async (control, tenantId) => {
    const unfinished = await findUnfinished(control, tenantId);
    if (!unfinished) throw noUnfinishedMove(slug);
    const id = Number(unfinished.id);
    // From `aborting` there is no way but to the end.
    const state = await runMove(installation, control, id, unfinished.state === 'aborting' ? 'abort' : goal, observers);
    if (goal === 'abort' && state === 'switched')
      throw new OperatorError(
        `${slug} had its new database already, and is served by ${unfinished.to} now. Move it back: ` +
          `npx backoffice move ${slug} --back`,
      );
    if (goal === 'switch') await settleEarlier(installation, control, tenantId, id, observers);
    return readMove(installation, id);
  });
}

/**
 * Puts a tenant back into service whose move has ended behind the fence. The move can be resumed.
 * @throws {OperatorError} when another command works on the tenant
 */
export async function retreatMove(installation: Installation, slug: string): Promise<void> {
  await withTenantLock(installation, slug, async (control, tenantId) => {
    const unfinished = await findUnfinished(control, tenantId);
    if (!unfinished || unfinished.state === 'aborting') return;
    await runMove(installation, control, Number(unfinished.id), 'retreat');
  });
}

/** Drops the old databases of a tenant's switched moves. @returns these moves */
export async function settleMoves(
  installation: Installation,
  slug: string,
  observers: MoveObservers = {},
): Promise<MoveSummary[]> {
  return withTenantLock(installation, slug, (control, tenantId) =>
    settleEarlier(installation, control, tenantId, Number.MAX_SAFE_INTEGER, observers),
  );
}

async function settleEarlier(
  installation: Installation,
  control: pg.Client,
  tenantId: number,
  before: number,
  observers: MoveObservers,
): Promise<MoveSummary[]> {
  const { rows } = await control.query<{ id: string }>(
    `select id from tenant_moves where tenant_id = $1 and id < $2 and state in ('switched', 'settling') order by id`,
    [tenantId, before],
  );
  const settled: MoveSummary[] = [];
  for (const row of rows) {
    await runMove(installation, control, Number(row.id), 'settle', observers);
    settled.push(await readMove(installation, Number(row.id)));
  }
  return settled;
}

async function withTenantLock<T>(
  installation: Installation,
  slug: string,
  work: (control: pg.Client, tenantId: number) => Promise<T>,
): Promise<T> {
  const { id } = await findTenant(installation, slug);
  return withConnection(installation.controlUrl, async control => {
    await lockTenant(control, id, slug);
    return work(control, id);
  });
}

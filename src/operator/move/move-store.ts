import type pg from 'pg';
import { OperatorError } from '../../operator-error.ts';
import { closeFence, liftFence } from './fence.ts';
import type { MoveState, MoveStep, MoveView } from './move-protocol.ts';
import { RunReplacedError } from './tenant-guard.ts';

/** A database of a tenant: the one that it has, or the one that it will have. */
export interface MoveSide {
  readonly serverId: number;
  readonly database: string;
  readonly role: string;
}

/** A move, as the control database records it. */
export interface Move extends MoveView {
  readonly id: number;
  readonly tenantId: number;
  readonly guid: string;
  readonly slug: string;
  readonly epoch: number;
  readonly marker: string;
  readonly from: MoveSide;
  readonly to: MoveSide;
  /** Sealed. */
  readonly toPassword: Buffer;
  readonly keepSeconds: number;
  readonly maxPauseMs: number;
}

interface MoveRow {
  id: string;
  tenantId: string;
  guid: string;
  slug: string;
  state: MoveState;
  hasFence: boolean;
  epoch: string;
  marker: string;
  from: MoveSide;
  to: MoveSide;
  toPassword: Buffer;
  keepSeconds: number;
  maxPauseMs: number;
}

const columns = `
  m.id, tenant_id as "tenantId", t.guid, t.slug, m.state, m.epoch, m.marker,
  exists (select from tenant_fences where tenant_guid = t.guid) as "hasFence",
  json_build_object('serverId', from_server_id, 'database', from_database, 'role', from_role) as from,
  json_build_object('serverId', to_server_id, 'database', to_database, 'role', to_role) as to,
  to_password as "toPassword", keep_seconds as "keepSeconds", max_pause_ms as "maxPauseMs"`;

const nextEpoch = (after: string) => `greatest(${after} + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)`;

/** A new move of a tenant. */
export interface NewMove {
  tenantId: number;
  from: MoveSide;
  to: MoveSide;
  toPassword: Buffer;
  keepSeconds: number;
  maxPauseMs: number;
}

/**
 * Returns the epoch of a run that changes databases of tenants without a move: greater than all earlier ones.
 * @param control holds the locks of the tenants
 * @param after an epoch that has claimed one of the databases
 */
export async function newEpoch(control: pg.Client, tenantIds: readonly number[], after = 0): Promise<number> {
  const recorded = 'coalesce((select max(epoch) from tenant_moves where tenant_id = any ($1)), 0)';
  const { rows } = await control.query<{ epoch: string }>(
    `select ${nextEpoch(`greatest(${recorded}, $2::bigint)`)} as epoch`,
    [tenantIds, after],
  );
  return Number(rows[0]?.epoch);
}

/** Records a new move. @returns its id */
export async function insertMove(control: pg.Client, move: NewMove): Promise<number> {
  const { rows } = await control.query<{ id: string }>(
    `insert into tenant_moves (tenant_id, from_server_id, from_database, from_role, to_server_id, to_database, to_role,
                               to_password, keep_seconds, max_pause_ms, epoch)
     select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
            ${nextEpoch('coalesce((select max(epoch) from tenant_moves where tenant_id = $1), 0)')}
     returning id`,
    [
      move.tenantId,
      move.from.serverId,
      move.from.database,
      move.from.role,
      move.to.serverId,
      move.to.database,
      move.to.role,
      move.toPassword,
      move.keepSeconds,
      move.maxPauseMs,
    ],
  );
  return Number(rows[0]?.id);
}

/**
 * Makes this run the one that works on a move, in place of every earlier one. A run of an earlier build records
 * `verified` while the tenant still has the old database: here that is `fenced`.
 */
export async function takeOver(control: pg.Client, id: number): Promise<Move> {
  const { rows } = await control.query<MoveRow>(
    `with m as (
       update tenant_moves
          set epoch = ${nextEpoch('epoch')}, updated_at = now(),
              state = case when state = 'verified' and exists (select from tenants where database_name = from_database)
                           then 'fenced' else state end
        where id = $1 returning *
     ) select ${columns} from m join tenants t on t.id = tenant_id`,
    [id],
  );
  const [row] = rows;
  if (!row) throw new OperatorError(`there is no move ${id}`);
  return { ...row, id: Number(row.id), tenantId: Number(row.tenantId), epoch: Number(row.epoch) };
}

/** Returns the state of a move and of its fence. @throws {RunReplacedError} when another run has taken over */
export async function readView(control: pg.Client, { id, epoch }: Move): Promise<MoveView> {
  const { rows } = await control.query<MoveView>(
    `select state, exists (select from tenant_fences where tenant_guid = guid) as "hasFence"
       from tenant_moves m join tenants t on t.id = tenant_id where m.id = $1 and m.epoch = $2`,
    [id, epoch],
  );
  if (!rows[0]) throw new RunReplacedError();
  return rows[0];
}

/**
 * Records another state, with what belongs to it, in one transaction.
 * @param fingerprint of the schema of the target, for `verified`
 * @throws {RunReplacedError} when another run has taken over, or the state is another one
 */
export async function enterState(
  control: pg.Client,
  move: Move,
  { from, to, fence }: Extract<MoveStep, { kind: 'enter' }>,
  fingerprint: string | null,
): Promise<void> {
  await control.query('begin');
  try {
    const { rowCount } = await control.query(
      `update tenant_moves m
          set state = $4, updated_at = now(),
              fenced_at = case $4 when 'fenced' then clock_timestamp() else fenced_at end,
              pause_ms = case $4 when 'switched' then least(1000 * extract(epoch from clock_timestamp() - fenced_at), 2e9)
                                 else pause_ms end,
              switched_at = case $4 when 'switched' then clock_timestamp() else switched_at end,
              reversible_until = case $4 when 'switched' then clock_timestamp() + make_interval(secs => keep_seconds)
                                         when 'settling' then null else reversible_until end,
              ended_at = case when $4 in ('settled', 'aborted') then now() end
        where id = $1 and epoch = $2 and state = $3
          and not ($4 = 'settling' and exists (select from tenants where database_name = m.from_database))
          and not ($4 = 'aborting' and exists (select from tenants where database_name = m.to_database))`,
      [move.id, move.epoch, from, to],
    );
    if (!rowCount) throw new RunReplacedError();
    if (to === 'verified') await pointToTarget(control, move, fingerprint);
    if (fence) await control.query(fence === 'close' ? closeFence : liftFence, [move.guid]);
    await control.query('commit');
  } catch (error) {
    await control.query('rollback').catch(() => {});
    throw error;
  }
}

async function pointToTarget(control: pg.Client, { tenantId, from, to, toPassword }: Move, fingerprint: string | null) {
  const { rowCount } = await control.query(
    `update tenants set server_id = $2, database_name = $3, role_name = $4, role_password = $5,
                        schema_fingerprint = $6, updated_at = now()
      where id = $1 and database_name = $7`,
    [tenantId, to.serverId, to.database, to.role, toPassword, fingerprint, from.database],
  );
  if (!rowCount) throw new OperatorError('the tenant has another database than at the begin of the move');
}

import type pg from 'pg';
import type { Server, Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { requireTenantHead } from '../../../control/tenant-head.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { connectFailure } from '../../../lib/log/postgres-causes.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { isoTime } from '../../../lib/postgres/iso-time.ts';
import { readServerIdentity } from '../../../lib/postgres/server-address.ts';
import { findServer } from '../../registry/servers.ts';
import { findTenant } from '../../registry/tenants.ts';
import { named, readForeignObjects, readHoldings, rowsLeft } from '../copy/foreign-objects.ts';
import { readBytes } from '../copy/room.ts';
import { type RunObservers, type RunResult, runDatabases } from '../protocol/run-databases.ts';
import { withTenant } from '../protocol/with-tenant.ts';
import {
  type LockedTenant,
  readCurrent,
  readDatabases,
  recordFacts,
} from '../store/database-store.ts';
import { readStored } from './list-databases.ts';
import { requireFree } from './require-free.ts';

export interface MoveRequest {
  /** The name of the server. */
  to: string;
  /** True for a move back to the server that the tenant was moved from. */
  isBack?: boolean;
  /** The seconds for which the former database is kept. */
  keepSeconds: number;
  /** Maximum estimated wait of requests, in ms. */
  maxPauseMs: number;
  /** True to leave tables behind that somebody else has made in schemas of their own. */
  leaveSchemas?: boolean;
  /** True to end sessions of others in the database of the tenant. */
  endSessions?: boolean;
}

/** A move that has succeeded. */
export interface MoveSummary {
  slug: string;
  from: string;
  to: string;
  rows: number;
  bytes: number;
  /** The milliseconds that requests waited; 0 if a killed run has moved the tenant. */
  pauseMs: number;
  switchedAt: string;
  /** The moment until which `--back` is possible. */
  reversibleUntil: string;
  oldDatabase: string;
  newDatabase: string;
}

/**
 * Moves a tenant to another server, with everything that is written meanwhile. The former
 * database is kept for some time; those of earlier moves are dropped. A tenant that a killed
 * run has moved there is not moved again, but reported.
 * @throws {OperatorError} when the tenant cannot be moved there, or a server refuses or breaks
 *   off a step
 */
export async function moveTenant(
  installation: Installation,
  slug: string,
  {
    to,
    isBack = false,
    keepSeconds,
    maxPauseMs,
    leaveSchemas = false,
    endSessions = false,
  }: MoveRequest,
  observers: RunObservers = {},
): Promise<MoveSummary> {
  return withTenant(installation, slug, async (control, tenant) => {
    const context = { installation, control, tenant };
    await requireFree(context); // a killed move may have reached its goal and left its fence

    const found = await findTenant(installation, slug);
    const killed = await readUnreported(installation, found.id);
    if (killed && found.server.name === to) {
      await recordFacts(control, killed.target.id, { pauseMs: 0 });
      return readSummary(control, slug, killed);
    }

    const server = await requireMoveTarget(installation, found, to);
    await requireNothingLeft(installation, control, tenant, leaveSchemas);

    const placement = {
      server,
      origin: `${isBack ? backFrom : 'move from'} ${found.server.name}`,
      copy: {
        bytes: await readBytes(installation.servers.adminUrl(found.server, found.databaseName)),
      },
    };
    const plan = {
      placement,
      keptBy: 'move',
      keepSeconds,
      maxPauseMs,
      leaveSchemas,
      endSessions,
    } as const;

    const result = await runDatabases(context, 'move', plan, observers);
    return readSummary(control, slug, result);
  });
}

/** Objects that somebody else has made in the databases of a tenant, as a move treats them. */
export interface MovedObjects {
  /** Objects that stay in the old database, or that the move drops with an earlier one. */
  readonly leaves: readonly string[];
  /** Tables that are copied without their defaults, constraints and indexes. */
  readonly withoutIndexes: readonly string[];
}

/**
 * Returns the objects that a move of a tenant leaves behind, and changes nothing.
 * @throws {OperatorError} when tables with rows are among them, and the operator has not agreed
 *   (`leaveSchemas`): the old database is dropped sooner or later
 */
export async function requireNothingLeft(
  installation: Installation,
  control: pg.Client,
  { id, slug }: LockedTenant,
  leaveSchemas: boolean,
): Promise<MovedObjects> {
  const current = await readCurrent(control, id);
  if (!current) throw new OperatorError(`${slug} has no database`);

  const found = await readForeignObjects(installation, current);
  const rows = rowsLeft(found);
  if (rows.length > 0 && !leaveSchemas) {
    throw new OperatorError(
      `${slug} was not moved: ${current.database} has rows that no move takes along, in ${named(rows)}. Take them ` +
        'along yourself (pg_dump), or leave them in the old database, which is dropped later: --leave-schemas',
    );
  }

  const leaves = [...rows, ...found.others];

  // The exchange condemns the databases of earlier moves (`exchangeDatabases`).
  const former = await readDatabases(control, id, ['kept', 'condemned']);
  for (const each of former.filter(({ keptBy }) => keptBy === 'move')) {
    const held = await readHoldings(installation, each, current);

    if (held.rows.length > 0 && !leaveSchemas) {
      throw new OperatorError(
        `${slug} was not moved: the move would drop ${each.database}, which an earlier one has left, with rows that ` +
          `are nowhere else, in ${named(held.rows)}. Save them (pg_dump), or let them go: --leave-schemas`,
      );
    }
    leaves.push(...held.all.map(name => `${name} in ${each.database}`));
  }

  return { leaves, withoutIndexes: found.tables.map(name => `public.${name}`) };
}

const backFrom = 'move back from';

/**
 * A move whose run was killed when the tenant had its new database, and has reported nothing.
 */
interface UnreportedMove {
  readonly former: { readonly id: number };
  readonly target: { readonly id: number };
  readonly isBack: boolean;
}

/**
 * Returns the unreported move of a tenant. A run that ends records the wait of requests, so a
 * move without that was not reported.
 */
async function readUnreported(
  { statements }: Installation,
  tenantId: number,
): Promise<UnreportedMove | undefined> {
  const { rows } = await statements.query<{ former: number; target: number; origin: string }>(
    `select o.id::float8 as former, n.id::float8 as target, n.origin
       from tenant_databases n join tenant_databases o using (tenant_id)
      where tenant_id = $1 and n.state = 'current' and n.copy_ms is not null and n.pause_ms is null
        and o.state = 'kept' and o.kept_by = 'move'`,
    [tenantId],
  );
  const [move] = rows;
  return (
    move && {
      former: { id: move.former },
      target: { id: move.target },
      isBack: move.origin.startsWith(backFrom),
    }
  );
}

async function readSummary(
  control: pg.Client,
  slug: string,
  { former, target }: Pick<UnreportedMove, 'former' | 'target'> | RunResult,
): Promise<MoveSummary> {
  const { rows } = await control.query<MoveSummary>(
    `select $3 as slug, f.name as from, s.name as to, coalesce(n.rows, 0)::float8 as rows,
            coalesce(n.bytes, 0)::float8 as bytes, coalesce(n.pause_ms, 0) as "pauseMs",
            ${isoTime('n.current_since')} as "switchedAt", ${isoTime('o.keep_until')} as "reversibleUntil",
            o.database_name as "oldDatabase", n.database_name as "newDatabase"
       from tenant_databases o join servers f on f.id = o.server_id,
            tenant_databases n join servers s on s.id = n.server_id where o.id = $1 and n.id = $2`,
    [former?.id, target?.id, slug],
  );
  if (!rows[0]) throw new Error('a database of the move is gone');
  return rows[0];
}

/**
 * Returns the server that a tenant can be moved back to, or that a killed run has moved it back
 * to.
 * @throws {OperatorError} when the time for that has passed
 */
export async function reversibleTarget(installation: Installation, slug: string): Promise<string> {
  const { id, server } = await findTenant(installation, slug);
  if ((await readUnreported(installation, id))?.isBack) return server.name;
  const kept = (await readStored(installation, slug)).findLast(({ keptBy }) => keptBy === 'move');
  if (kept?.keepUntil && !kept.isOverdue) return kept.server;
  throw new OperatorError(
    kept
      ? `The move of ${slug} could be reversed until ${kept.keepUntil}. Move it as always: bin/backoffice move ${slug} ` +
          `--to ${kept.server}`
      : `${slug} has no move that can be reversed. See its databases: bin/backoffice databases ${slug}`,
  );
}

/**
 * Returns the server of that name, if the tenant can be moved there.
 * @throws {OperatorError} when it cannot
 */
export async function requireMoveTarget(
  installation: Installation,
  tenant: Tenant,
  name: string,
): Promise<Server> {
  const { slug } = tenant;
  const server = await findServer(installation, name);
  if (server.id === tenant.server.id) throw new OperatorError(`${slug} is on ${name} already`);

  await requireTenantHead(tenant);

  const identity = (each: Server) =>
    withConnection(installation.servers.adminUrl(each), readServerIdentity).catch(error => {
      const reason = connectFailure(error);
      if (!reason) throw error;
      const what = `Server ${each.name} cannot be used (${reason}): ${slug} is on ${tenant.server.name}, as before`;
      throw new OperatorError(`${what}. When it works, run the command again`, { cause: error });
    });

  const [from, to] = await Promise.all([identity(tenant.server), identity(server)]);
  if (from !== undefined && from === to) {
    throw new OperatorError(
      `${tenant.server.name} and ${name} are the same server under two names`,
    );
  }

  return server;
}

import type { Installation } from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { findTenant } from '../../registry/tenants.ts';
import { readOtherSessions, sessionText } from '../../schema/other-sessions.ts';
import { identityTables, listDataTables } from '../../schema/tenant-tables.ts';
import { findNumberedTables } from '../copy/copy-ahead.ts';
import { fenceMs } from '../copy/live-copy.ts';
import { type CopyRoom, planRoom } from '../copy/room.ts';
import { type MovedObjects, requireMoveTarget, requireNothingLeft } from './move-tenant.ts';
import { planFree } from './require-free.ts';

/** The speed that a plan assumes. A move itself estimates by the time of its first copy. */
const bytesPerMs = 10_000;

/** The plan of a move: the data that it would take along, and the pause. */
export interface MovePlan extends MovedObjects {
  slug: string;
  from: string;
  to: string;
  /** Size of the database. */
  bytes: number;
  /** The tables that are copied before the requests wait: append-only ones. */
  aheadBytes: number;
  /**
   * The milliseconds that requests would wait if all other tables changed during the first
   * copy.
   */
  maxPauseMs: number;
  /** Sessions in the database of the tenant at the moment. */
  sessions: number;
  /**
   * The sessions of others among them. While these exist, everything is copied again behind the
   * fence.
   */
  others: readonly string[];
  room: CopyRoom | null;
}

/**
 * Checks whether a tenant can be moved, and changes nothing.
 * @throws {OperatorError} when it cannot
 */
export async function planMove(
  installation: Installation,
  slug: string,
  to: string,
  leaveSchemas = false,
): Promise<MovePlan> {
  const tenant = await findTenant(installation, slug);
  await planFree(installation, tenant);
  const server = await requireMoveTarget(installation, tenant, to);
  const objects = await planLeftObjects(installation, slug, leaveSchemas);
  const room = await planRoom(installation, tenant, server);
  const url = installation.servers.adminUrl(tenant.server, tenant.databaseName);

  return withConnection(url, async client => {
    const tables = await listDataTables(client, identityTables);
    const numbered = await findNumberedTables(client, tables);
    const sessionsOfOthers = await readOtherSessions(client, tenant.databaseName, [
      tenant.roleName,
    ]);

    const { rows } = await client.query<{
      bytes: string;
      ahead: string;
      others: string;
      sessions: number;
    }>(
      `select pg_database_size(current_database()) as bytes,
              (select count(*)::int - 1 from pg_stat_activity where datname = current_database()) as sessions,
              coalesce(sum(pg_total_relation_size(oid)) filter (where relname = any ($2)), 0) as ahead,
              coalesce(sum(pg_table_size(oid)) filter (where relname <> all ($2)), 0) as others
         from pg_class where relnamespace = 'public'::regnamespace and relname = any ($1)`,
      [tables.map(({ name }) => name), numbered.map(({ name }) => name)],
    );

    const { bytes = 0, ahead = 0, others = 0, sessions = 0 } = rows[0] ?? {};
    return {
      slug,
      from: tenant.server.name,
      to,
      bytes: Number(bytes),
      aheadBytes: Number(ahead),
      maxPauseMs: Math.round(fenceMs + Number(others) / bytesPerMs),
      sessions,
      others: sessionsOfOthers.map(sessionText),
      room,
      ...objects,
    };
  });
}

/** Checks the objects of others as `requireNothingLeft` does, on a connection of its own. */
export async function planLeftObjects(
  installation: Installation,
  slug: string,
  leaveSchemas: boolean,
): Promise<MovedObjects> {
  const { id, guid } = await findTenant(installation, slug);
  return withConnection(installation.controlUrl, control =>
    requireNothingLeft(installation, control, { id, guid, slug }, leaveSchemas),
  );
}

import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { Server, Tenant } from '../../control/fleet-entities.ts';
import { owners } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { readServerIdentity } from '../../postgres/server-address.ts';
import { physicalName } from '../provisioning/physical-names.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { noSuchServer } from '../tenants/read-servers.ts';
import { insertMove } from './move-store.ts';

export interface MoveRequest {
  /** The name of the server. */
  to: string;
  /** How long the old database is kept after the switch, in seconds. */
  keepSeconds: number;
  /** Maximum estimated wait of requests, in ms. */
  maxPauseMs: number;
}

/** An unfinished move of a tenant. */
interface Unfinished {
  id: string;
  state: string;
  to: string;
}

/**
 * Records a new move of a tenant, or finds the unfinished one to the same server.
 * @param control holds the lock of the tenant
 * @returns the id of the move
 * @throws {OperatorError} when the tenant cannot be moved there
 */
export async function beginMove(
  installation: Installation,
  control: pg.Client,
  tenantId: number,
  { to, keepSeconds, maxPauseMs }: MoveRequest,
): Promise<number> {
  const tenant = await installation.control.em.fork().findOneOrFail(Tenant, { id: tenantId }, { populate: ['server'] });
  const unfinished = await findUnfinished(control, tenantId);
  if (unfinished) {
    if (unfinished.to !== to)
      throw new OperatorError(
        `${tenant.slug} has an unfinished move to ${unfinished.to} (${unfinished.state}). Finish it: npx backoffice ` +
          `move resume ${tenant.slug}. Or give it up: npx backoffice move abort ${tenant.slug}`,
      );
    await control.query('update tenant_moves set max_pause_ms = $2, keep_seconds = $3 where id = $1', [
      unfinished.id,
      maxPauseMs,
      keepSeconds,
    ]);
    return Number(unfinished.id);
  }
  const server = await requireTarget(installation, tenant, to);
  const { secrets } = installation;
  const { rows } = await control.query<{ id: string }>(`select nextval(pg_get_serial_sequence('tenants', 'id')) as id`);
  const name = physicalName(server, Number(rows[0]?.id));
  return insertMove(control, {
    tenantId,
    from: { serverId: tenant.server.id, database: tenant.databaseName, role: tenant.roleName },
    to: { serverId: server.id, database: name, role: name },
    toPassword: secrets.seal(randomBytes(24).toString('base64url'), owners.rolePassword(tenant.guid)),
    keepSeconds,
    maxPauseMs,
  });
}

/** Returns the move of a tenant that is neither switched nor ended; undefined without one. */
export async function findUnfinished(control: pg.Client, tenantId: number): Promise<Unfinished | undefined> {
  const { rows } = await control.query<Unfinished>(
    `select m.id, m.state, s.name as to from tenant_moves m join servers s on s.id = to_server_id
      where tenant_id = $1 and state not in ('switched', 'settling', 'settled', 'aborted')`,
    [tenantId],
  );
  return rows[0];
}

/**
 * Returns the server of that name, if the tenant can be moved there.
 * @throws {OperatorError} when it cannot
 */
export async function requireTarget(installation: Installation, tenant: Tenant, name: string): Promise<Server> {
  const { slug, status, schemaVersion } = tenant;
  const server = await installation.control.em.fork().findOne(Server, { name });
  if (!server) throw noSuchServer(name);
  if (status === 'provisioning') throw new OperatorError(`${slug} is not provisioned yet`);
  if (server.id === tenant.server.id) throw new OperatorError(`${slug} is on ${name} already`);
  if (schemaVersion !== (await tenantHead()))
    throw new OperatorError(
      `${slug} is not at the version of this build. Migrate it first: npx backoffice migrate ${slug}`,
    );
  const identity = (each: Server) => withConnection(installation.servers.adminUrl(each), readServerIdentity);
  const [from, to] = await Promise.all([identity(tenant.server), identity(server)]);
  if (from !== undefined && from === to)
    throw new OperatorError(`${tenant.server.name} and ${name} are the same server under two names`);
  return server;
}

import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Server, Tenant } from '../../control/control-entities.ts';
import type { ServerAccess } from '../../control/installation.ts';
import type { SchemaVersion } from '../../control/schema-version.ts';
import { catalogQuerySettings, withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { migrationSettings } from './template.ts';
import { countSessions } from './tenant-sessions.ts';

/**
 * Within this time every process has received a change of the control database, or else has
 * noticed that its change feed is down and serves nothing from memory.
 */
const changeReceivedMs = 1_000;
/** The time for which running requests are awaited: longer than any request may take. */
const quietDeadlineMs = 12_000;
const pollMs = 50;

/**
 * Takes a tenant out of service: its requests get 503 from now on. Resolves when the requests
 * that run in its database have ended, or after 13 s. Any number of server processes may have
 * connections to it; the wait lets them receive the change.
 *
 * There is no wait for a tenant without a session, as most tenants of a large fleet:
 * `changeSchema` ends the sessions that begin later. Until the returned moment, a process that
 * has not received the change may serve a cached response.
 * @param database on which the login is a member of the role of the tenant (`becomeMember`)
 * @returns the moment, by `performance.now()`, at which every process has received the change
 */
export async function takeOutOfService(
  control: Queryable,
  database: pg.Client,
  tenant: Pick<Tenant, 'id' | 'roleName'>,
): Promise<number> {
  await setSchemaVersion(control, tenant.id, { schemaVersion: null, compatibleFrom: null });
  const receivedAt = performance.now() + changeReceivedMs;
  if ((await countSessions(database, tenant.roleName)).all === 0) return receivedAt;

  await waitUntil(receivedAt);
  const deadline = performance.now() + quietDeadlineMs;
  while (
    performance.now() < deadline &&
    (await countSessions(database, tenant.roleName)).busy > 0
  ) {
    await sleep(pollMs);
  }

  return receivedAt;
}

/** Waits until a moment by `performance.now()`. */
export async function waitUntil(moment: number): Promise<void> {
  await sleep(Math.max(0, moment - performance.now()));
}

/**
 * Records a tenant's version, or that it has none, without a fingerprint: its schema has not
 * been compared with the template.
 */
export async function setSchemaVersion(
  control: Queryable,
  tenant: number,
  { schemaVersion, compatibleFrom }: SchemaVersion,
): Promise<void> {
  await control.query(
    `update tenants set schema_version = $2, compatible_from = $3, schema_fingerprint = null, updated_at = now()
      where id = $1`,
    [tenant, schemaVersion, compatibleFrom],
  );
}

/**
 * Runs `work` on a connection to a tenant's database with the rights of the operator and the
 * time limits of migrations, in pipeline mode.
 */
export function withTenantConnection<T>(
  { servers }: ServerAccess,
  tenant: { databaseName: string; server: Pick<Server, 'name' | 'adminUrl' | 'prefix'> },
  work: (database: pg.Client) => Promise<T>,
): Promise<T> {
  const url = servers.adminUrl(tenant.server, tenant.databaseName);
  const settings = { ...migrationSettings(tenant.server), ...catalogQuerySettings };
  return withConnection(url, work, { kind: 'migrations', settings, pipeline: true });
}

const lockAttempts = 3;

/**
 * Retries a schema change that could not lock a table in time, because a long query uses it. A
 * longer wait in PostgreSQL's lock queue instead would block every later query of the table.
 */
export async function retryOnLockTimeout<T>(run: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run();
    } catch (error) {
      if (attempt === lockAttempts || sqlState(error) !== '55P03') throw error;
      await sleep(200 * attempt);
    }
  }
}

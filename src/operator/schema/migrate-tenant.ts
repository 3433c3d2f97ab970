import { ForeignSchemaError } from '../../control/foreign-schema.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockSpaces, releaseLock, tryLock } from '../../lib/postgres/advisory-locks.ts';
import { errorText } from '../command/texts.ts';
import { bringToHead, type SchemaRun, type TenantRow } from './bring-to-head.ts';
import { failureOf } from './migration-failure.ts';
import { recordOutcome, recordRunning, type TenantResult } from './migration-runs.ts';
import { compatibleFrom } from './schema-steps.ts';

const tenantQuery = `
  select id::int, guid, server_id as "serverId", database_name as "databaseName", role_name as "roleName",
         schema_version as "schemaVersion", schema_fingerprint as "schemaFingerprint"
    from tenants where id = $1`;

/**
 * Brings one tenant's database to head and compares it with the template. If they differ,
 * everything is rolled back.
 *
 * No request is ever served on a schema that does not fit the build:
 * 1. Before the database changes, the control database loses the tenant's version. A process
 *    that has received that change responds to the tenant's requests with 503 and serves
 *    nothing from memory. Every process receives it within a second.
 * 2. The change locks the identity of the database. A new connection reads it before it serves
 *    a request, so it waits until the change has ended, and then finds another version than its
 *    own and serves nothing.
 * 3. Under that lock the sessions of the tenant end (`changeSchema`). So by 2, no request,
 *    however long ago it began, uses a connection on the new schema that was verified on the
 *    old one.
 * 4. After the database has changed, the control database gets the new version.
 * 5. A run ends only after every process has received the change of step 1 for each tenant. No
 *    process then serves a cached response of the old schema.
 * If the process of the run is killed in between, the tenant has no version and gets 503 until
 * the next run.
 *
 * If every pending migration is compatible, each build that serves the tenant can go on with
 * the new schema: the tenant stays in service, and only step 4 remains.
 *
 * @throws {ForeignSchemaError} on the embedded PostgreSQL, whose databases must all be made
 *   again
 * @returns `busy` if another process works on the tenant; undefined if the tenant is at head or
 *   was purged
 */
export async function migrateTenant(
  run: SchemaRun,
  id: number,
): Promise<TenantResult | 'busy' | undefined> {
  const { control, controlPool, head } = run;
  if (!(await tryLock(control, lockSpaces.tenant, id))) return 'busy';

  try {
    const [tenant] = (await control.query<TenantRow>(tenantQuery, [id])).rows;
    if (!tenant) return undefined; // the tenant has been purged

    const from = tenant.schemaVersion;
    const fingerprint = run.servers.get(tenant.serverId)?.fingerprint;
    if (from === head && tenant.schemaFingerprint === fingerprint) {
      await recordOutcome(controlPool, run.id, id, { state: 'current', from, to: head, ms: 0 });
      return undefined;
    }

    await recordRunning(controlPool, run.id, id);
    const result = await migrateDatabase(run, tenant);
    const schema = { version: head, compatibleFrom: compatibleFrom(run.steps), fingerprint };

    await recordOutcome(
      controlPool,
      run.id,
      id,
      result,
      result.state === 'failed' ? undefined : schema,
    );

    return result;
  } finally {
    await releaseLock(control, lockSpaces.tenant, id);
  }
}

async function migrateDatabase(run: SchemaRun, tenant: TenantRow): Promise<TenantResult> {
  const startedAt = performance.now();
  const elapsed = () => Math.round(performance.now() - startedAt);
  const from = tenant.schemaVersion;

  try {
    const server = run.servers.get(tenant.serverId);
    if (!server) {
      throw new OperatorError(
        'it was moved to a server that had no tenants: run the command again',
      );
    }

    const state =
      (await bringToHead(run, { ...tenant, ...server })) || from !== run.head
        ? 'migrated'
        : 'current';
    return { state, from, to: run.head, ms: elapsed() };
  } catch (error) {
    // One build has made all databases of the embedded PostgreSQL: the folder is to be removed,
    // not this tenant.
    if (error instanceof ForeignSchemaError && run.installation.embedded) throw error;

    const place = {
      server: run.servers.get(tenant.serverId)?.server.name ?? 'of the tenant',
      database: tenant.databaseName,
    };

    const failure = failureOf(error, place);
    return { state: 'failed', from, to: from, ms: elapsed(), error: errorText(error), failure };
  }
}

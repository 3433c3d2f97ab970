import type { LimitFunction } from 'p-limit';
import { OperatorError } from '../../log/operator-error.ts';
import { errorText } from '../command/error-text.ts';
import { bringToHead, type Run } from './bring-to-head.ts';
import type { TenantResult } from './migration-outcomes.ts';
import type { Candidate } from './migration-runs.ts';
import { compatibleFrom } from './schema-steps.ts';
import type { TenantRow } from './tenant-locks.ts';

/**
 * Brings one tenant's database to head and compares it with the template. If they differ, everything is rolled back.
 *
 * No request is ever served on a schema that does not fit the build:
 * 1. Before the database changes, the control database loses the tenant's version. A process that has received that
 *    change responds to the tenant's requests with 503 and serves nothing from memory. Every process receives it within
 *    a second.
 * 2. The change locks the identity of the database. A new connection reads it before it serves a request, so it waits
 *    until the change has ended, and then finds another version than its own and serves nothing.
 * 3. Under that lock the sessions of the tenant end (`changeSchema`). So by 2, no request, however long ago it began,
 *    uses a connection on the new schema that was verified on the old one.
 * 4. After the database has changed, the control database gets the new version.
 * 5. A run ends only after every process has received the change of step 1 for each tenant. No process then serves a
 *    cached response of the old schema.
 * If the process of the run is killed in between, the tenant has no version and gets 503 until the next run.
 *
 * If every pending migration is compatible, each build that serves the tenant can go on with the new schema: the tenant
 * stays in service, and only step 4 remains.
 *
 * @param connections runs work when a connection to the server may be opened. The control database is read before, and
 *   written after the connection is closed
 * @returns `busy` if another process works on the tenant; `halted` if the run was halted before the database was
 *   opened; undefined if the tenant is at head or was purged
 */
export async function migrateTenant(
  run: Run,
  candidate: Candidate,
  connections: LimitFunction,
  isHalted: () => boolean,
): Promise<TenantResult | 'busy' | 'halted' | undefined> {
  const { locks, head, outcomes } = run;
  const { id } = candidate;
  const tenant = await locks.acquire(id);
  if (tenant === 'busy') return 'busy';
  try {
    if (!tenant) return undefined; // it has been purged
    const from = tenant.schemaVersion;
    const fingerprint = run.fingerprints.get(tenant.serverId);
    if (from === head && tenant.schemaFingerprint === fingerprint) {
      await outcomes.record(id, { state: 'current', from, to: head, ms: 0 });
      return undefined;
    }
    const result = await connections(async () => (isHalted() ? undefined : migrateDatabase(run, tenant)));
    if (!result) return 'halted';
    const schema = { version: head, compatibleFrom: compatibleFrom(run.steps), fingerprint };
    await outcomes.record(id, result, result.state === 'failed' ? undefined : schema);
    return result;
  } finally {
    await locks.release(id);
  }
}

/** Counts a failure before the next tenant begins, so that a run halts in time. */
async function migrateDatabase(run: Run, tenant: TenantRow): Promise<TenantResult> {
  const startedAt = performance.now();
  const elapsed = () => Math.round(performance.now() - startedAt);
  const from = tenant.schemaVersion;
  try {
    const server = run.servers.get(tenant.serverId);
    if (!server || !run.fingerprints.has(tenant.serverId))
      throw new OperatorError('it was moved to a server that had no tenants: run the command again');
    const state = (await bringToHead(run, { ...tenant, server })) || from !== run.head ? 'migrated' : 'current';
    return { state, from, to: run.head, ms: elapsed() };
  } catch (error) {
    run.failures++;
    return { state: 'failed', from, to: from, ms: elapsed(), error: errorText(error) };
  }
}

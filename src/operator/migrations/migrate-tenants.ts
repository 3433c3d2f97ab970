import { setTimeout as sleep } from 'node:timers/promises';
import { Server, Tenant } from '../../control/fleet-entities.ts';
import type { RunState } from '../../control/migration-run.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection, withConnectionPool } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';
import { errorText } from '../error-text.ts';
import { runConcurrently } from '../run-concurrently.ts';
import { readSchemaSteps } from '../schema/schema-steps.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { migrateTenant, type Run } from './migrate-tenant.ts';
import { beginRun, type Candidate, endRun, type RunRequest, type TenantResult } from './migration-runs.ts';

/** What became of one tenant in a run. */
export interface TenantOutcome extends TenantResult {
  slug: string;
}

export interface RunReport {
  id: number;
  state: RunState;
  /** Of the tenants that there was something to do for. */
  outcomes: TenantOutcome[];
  /** Tenants that the run did not get to, because it was halted. */
  skipped: number;
}

interface Observers {
  /** How many tenants there is something to do for. */
  onStart?: (total: number) => void;
  onOutcome?: (outcome: TenantOutcome) => void;
  /** When it is aborted, no further tenant is begun. */
  signal?: AbortSignal | undefined;
}

const defaultConcurrency = 4;
const busyRetryMs = 50;
/** Beside the one that holds the locks. */
const bookConnections = 4;

/**
 * Brings tenant databases to head and keeps the books of it. A tenant that is there already costs no connection; one
 * that fails does not stop the others. Two runs at once do not collide: each tenant is locked in the control database
 * while it is worked on, and what the other run is at comes last.
 */
export async function migrateTenants(
  installation: Installation,
  request: RunRequest = {},
  { onStart, onOutcome, signal }: Observers = {},
): Promise<RunReport> {
  await requireTenants(installation, request.slugs);
  const head = await tenantHead();
  const steps = await readSchemaSteps();
  const fingerprints = await headFingerprints(installation);
  const concurrency = request.concurrency ?? defaultConcurrency;

  const work = async (locks: Queryable, books: Queryable): Promise<RunReport> => {
    const { id, candidates } = await beginRun(locks, head, fingerprints, { ...request, concurrency });
    const run: Run = { id, installation, locks, books, steps, head, fingerprints };
    const todo = candidates.filter(({ atHead }) => !atHead);
    const canaries = todo.slice(0, request.canary ?? 0);
    const outcomes: TenantOutcome[] = [];
    const failures = () => outcomes.filter(({ state }) => state === 'failed').length;
    const isHalted = () => signal?.aborted === true || failures() >= (request.maxFailures ?? Number.POSITIVE_INFINITY);
    const migrate = (tenants: Candidate[]) =>
      migrateConcurrently(tenants, concurrency, isHalted, async candidate => {
        const result = await migrateTenant(run, candidate);
        if (result === 'busy') return false;
        if (result) {
          const outcome = { slug: candidate.slug, ...result };
          outcomes.push(outcome);
          onOutcome?.(outcome);
        }
        return true;
      });
    onStart?.(todo.length);
    try {
      let left = await migrate(canaries);
      const rest = todo.slice(canaries.length);
      left += canaries.length > 0 && failures() > 0 ? rest.length : await migrate(rest);
      const state = left > 0 ? 'halted' : failures() > 0 ? 'failed' : 'succeeded';
      await endRun(locks, id, state, 'the run was halted before its turn');
      return { id, state, outcomes, skipped: left };
    } catch (error) {
      await endRun(locks, id, 'failed', errorText(error)).catch(() => {});
      throw error;
    }
  };
  return withConnection(installation.controlUrl, connection =>
    withConnectionPool(installation.controlUrl, bookConnections, books => work(shareConnection(connection), books)),
  );
}

/**
 * Migrates tenants, at most `concurrency` at a time on each server. A tenant that another process works on is retried
 * after the others.
 * @param migrate resolves to false for such a tenant
 * @returns the number of tenants that were not begun before the run was halted
 */
async function migrateConcurrently(
  tenants: Candidate[],
  concurrency: number,
  isHalted: () => boolean,
  migrate: (tenant: Candidate) => Promise<boolean>,
): Promise<number> {
  const servers = [...Map.groupBy(tenants, ({ serverId }) => serverId).values()];
  const left = await runConcurrently(servers, Number.POSITIVE_INFINITY, async queue => {
    for (let waiting = queue; ; await sleep(busyRetryMs)) {
      const done = await runConcurrently(waiting, concurrency, async tenant => !isHalted() && (await migrate(tenant)));
      waiting = waiting.filter((_, index) => !done[index]);
      if (waiting.length === 0 || isHalted()) return waiting.length;
    }
  });
  return left.reduce((sum, count) => sum + count, 0);
}

/** Of every server that has tenants. One that is down stops nobody but its own: they fail one by one. */
async function headFingerprints({ control, servers }: Installation): Promise<Map<number, string>> {
  const em = control.em.fork();
  const used = await em.execute<{ id: number }[]>('select distinct server_id as id from tenants');
  const found = await em.find(Server, { id: { $in: used.map(({ id }) => id) } });
  const read = async (server: Server): Promise<[number, string]> => [
    server.id,
    await headFingerprint(control, server, servers.adminUrl(server)).catch(error => {
      // A SQLSTATE other than of a lost connection (08…) comes from PostgreSQL itself: a migration is wrong.
      if (/^(?!08|EPIPE)[0-9A-Z]{5}$/.test(sqlState(error) ?? '')) throw error;
      return '';
    }),
  ];
  return new Map(await Promise.all(found.map(read)));
}

/** @throws {OperatorError} naming those that do not exist */
async function requireTenants({ control }: Installation, slugs: string[] | undefined): Promise<void> {
  if (!slugs) return;
  const found = await control.em
    .fork()
    .find(Tenant, { slug: { $in: slugs }, status: { $ne: 'provisioning' } }, { fields: ['slug'] });
  const unknown = slugs.filter(slug => !found.some(tenant => tenant.slug === slug));
  if (unknown.length > 0) throw new OperatorError(`there is no tenant ${unknown.join(', ')}`);
}

import type pg from 'pg';
import type { Retention } from '../../../config/config-values.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../log/operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import type { Queryable } from '../../../postgres/shared-connection.ts';
import { fleetTasks } from '../../command/fleet-tasks.ts';
import { operatorName } from '../../command/operator-name.ts';
import { type FleetObservers, runFleet, timed } from '../../command/run-fleet.ts';
import { withTenantUnchanged } from '../../databases/with-tenant.ts';
import { canonicalTextSettings } from '../../schema/tenant-tables.ts';
import { withBackupLock } from '../backup-lock.ts';
import { createKeyring, readKeys } from '../data-keys.ts';
import { readComplete } from '../ledger.ts';
import type { BackupTarget } from '../targets/backup-target.ts';
import { maxClockDifferenceMs, readHistoryFacts } from './history-facts.ts';
import { removeArchived } from './remove-archived.ts';
import { endRemoval, findDueTenants, type RetentionCandidate, recordNothingToRemove } from './retention-candidates.ts';
import type { RemovedRows, RetentionRun } from './retention-run.ts';

/** The result of a run for one tenant. */
export interface RetentionOutcome {
  slug: string;
  state: 'removed' | 'planned' | 'nothing' | 'failed';
  removed: RemovedRows[];
  ms: number;
  error: string | null;
}

export interface RetentionReport {
  tenants: number;
  failed: number;
  /** Rows that were removed, or would be. */
  rows: number;
  ms: number;
}

export interface RetentionRequest {
  /** Only these tenants; undefined: all. */
  readonly slugs?: readonly string[] | undefined;
  /** Tenants from which rows are removed at the same time. */
  readonly concurrency: number;
  /** What `BACKUP_KEEP` keeps: archives with removed rows are kept for as long as it goes back. */
  readonly keep: Retention;
  readonly dryRun: boolean;
  readonly confirmed: boolean;
}

/**
 * Removes the activities and audit entries that are older than their tenants keep them. What goes is in an archive of
 * the backup, every byte of which was checked, and stays there as long as `BACKUP_KEEP` goes back. A tenant that fails
 * does not affect the others. A run can be killed at any point: the next one goes on.
 * @throws {OperatorError} when another run is in progress, a clock is wrong, or a tenant does not exist
 */
export async function applyRetention(
  installation: Installation,
  target: BackupTarget,
  { slugs, concurrency, keep, dryRun, confirmed }: RetentionRequest,
  observers: FleetObservers<RetentionOutcome> = {},
): Promise<RetentionReport> {
  const startedAt = performance.now();
  return withBackupLock(installation.controlUrl, 'retention', async control => {
    const candidates = await findDueTenants(installation, control, slugs, await readTime(control));
    const run: RetentionRun = {
      ...{ control, target, dryRun, confirmed, signal: observers.signal },
      keyring: createKeyring(await readKeys(control), installation.secrets),
      archives: candidates.length === 0 ? [] : await readComplete(control, target.description),
      keepDays: daysOf(keep),
      requestedBy: operatorName(),
    };
    const outcomes = await runFleet(candidates, fleetTasks(concurrency), observers, each => applyTo(run, each));
    return {
      tenants: candidates.length,
      failed: outcomes.filter(({ state }) => state === 'failed').length,
      rows: outcomes.flatMap(({ removed }) => removed).reduce((sum, { rows }) => sum + rows, 0),
      ms: Math.round(performance.now() - startedAt),
    };
  });
}

/** Applies the retention of one tenant, under a lock with which no migration, move or purge changes its database. */
async function applyTo(run: RetentionRun, candidate: RetentionCandidate): Promise<RetentionOutcome> {
  const { control, dryRun, signal } = run;
  const { tenantId, url, due, outdated } = candidate;
  const removed: RemovedRows[] = [];
  const removeAll = (client: pg.Client) => removeDue(run, candidate, client, rows => removed.push(rows));
  const { ms, error } = await timed(async () => {
    if (signal?.aborted) throw new Error('the run was interrupted before this tenant');
    await withTenantUnchanged(control, tenantId, async () => {
      if (!dryRun)
        for (const id of outdated)
          await endRemoval(control, id, 'the retention or the database was changed before the end');
      if (due.length > 0) await withConnection(url, removeAll, { settings: canonicalTextSettings });
    });
  });
  const done = removed.length === 0 ? 'nothing' : run.dryRun ? 'planned' : 'removed';
  return { slug: candidate.slug, state: error === null ? done : 'failed', removed, ms, error };
}

/**
 * Removes the rows that are due from a tenant's database.
 * @param onRemoved receives each kind as soon as its rows are removed
 * @throws {OperatorError} that says why nothing (more) is removed
 */
async function removeDue(
  run: RetentionRun,
  candidate: RetentionCandidate,
  client: pg.Client,
  onRemoved: (removed: RemovedRows) => void,
): Promise<void> {
  const { guid, tenantId, database, due } = candidate;
  const { kinds, schemaVersion } = await readHistoryFacts(client, candidate);
  if (!run.dryRun)
    for (const { kind, cutoff } of due.filter(removal => !kinds.has(removal.kind)))
      await recordNothingToRemove(run.control, { tenantId, database, kind, cutoff, requestedBy: run.requestedBy });
  const newest = run.archives.find(({ tenant }) => tenant === guid)?.id;
  const needed = due.filter(({ kind }) => kinds.has(kind));
  for (const [archive, removals] of Map.groupBy(needed, ({ unfinished }) => unfinished?.archive ?? newest))
    await removeArchived(run, candidate, client, { archive, removals, schemaVersion, onRemoved });
}

/**
 * Returns the time, from which ages are counted: the earlier one of two clocks.
 * @throws {OperatorError} when they differ by more than 5 minutes
 */
async function readTime(control: Queryable): Promise<Date> {
  const { rows } = await control.query<{ now: Date }>('select clock_timestamp() as now');
  const [here, there] = [new Date(), rows[0]?.now ?? new Date(Number.NaN)];
  if (Math.abs(here.getTime() - there.getTime()) <= maxClockDifferenceMs) return here < there ? here : there;
  throw new OperatorError(
    `This machine says it is ${here.toISOString()}, the server of the control database ${there.toISOString()}: set the ` +
      'clock. Nothing was removed',
  );
}

/** How many days `BACKUP_KEEP` goes back. */
function daysOf({ hours, days, weeks, months }: Retention): number {
  return Math.ceil(Math.max(hours / 24, days, weeks * 7, months * 31));
}

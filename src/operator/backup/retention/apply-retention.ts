import type pg from 'pg';
import type { Installation } from '../../../control/installation.ts';
import { requireNoneLater } from '../../../control/tenant-head.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import { fleetTasks } from '../../command/fleet-tasks.ts';
import { operatorName } from '../../command/operator-name.ts';
import { type FleetObservers, runFleet } from '../../command/run-fleet.ts';
import { errorText } from '../../command/texts.ts';
import { withTenantUnchanged } from '../../databases/protocol/with-tenant.ts';
import { canonicalTextSettings } from '../../schema/tenant-tables.ts';
import { differenceOf } from '../archive-list.ts';
import { type ArchiveRow, readArchiveRowsOf, readControlTime } from '../archive-rows.ts';
import { withBackupLock } from '../backup-lock.ts';
import { type PresentTenant, readPresentTenant } from '../candidates.ts';
import type { Target } from '../target/target.ts';
import { requireWriter } from '../writer.ts';
import { type DueRemoval, type DueTenant, findDueTenants } from './due-tenants.ts';
import { historyKinds } from './history-kinds.ts';
import {
  countOldRows,
  type DatabaseFacts,
  maxClockDifferenceMs,
  type OldRows,
  readDatabaseFacts,
  removeOldRows,
} from './old-rows.ts';
import {
  beginRemoval,
  endRemoval,
  type RemovedRows,
  recordNothingToRemove,
  recordProgress,
} from './removals.ts';

/** The result of a run for one tenant. */
export interface RetentionOutcome {
  slug: string;
  /** `left out`: no proved archive has the rows that are to be removed. */
  state: 'removed' | 'planned' | 'nothing' | 'left out' | 'failed';
  removed: RemovedRows[];
  ms: number;
  /** The reason why the tenant was left out, or has failed. */
  error: string | null;
}

export interface RetentionReport {
  tenants: number;
  leftOut: number;
  failed: number;
  /** Rows that were removed, or would be. */
  rows: number;
  ms: number;
}

export interface RetentionRequest {
  /** The slugs of the chosen tenants; undefined: all tenants. */
  readonly slugs?: readonly string[] | undefined;
  /** Tenants from which rows are removed at the same time. */
  readonly concurrency: number;
  readonly dryRun: boolean;
  /** True to remove also more than half of the rows. */
  readonly confirmed: boolean;
  /** True to remove also rows that no proved archive has. */
  readonly withoutArchive: boolean;
}

/** The largest part of the rows of a kind that is removed without a confirmation. */
const maxShare = 0.5;

/**
 * The time by which an archive must be later than the newest of the removed rows: clocks may
 * differ, and a transaction that wrote a row before the time of the archive may have ended
 * after its snapshot.
 */
const archiveMarginMs = 60 * 60_000;

/** No proved archive has the rows of a tenant that are to be removed. */
class LeftOut extends OperatorError {
  override name = 'LeftOut';
}

/**
 * Removes the activities and audit entries that are older than their tenants keep them. Rows
 * are removed from a tenant only if they are in a complete archive of its present database that
 * the target lists and a drill has restored, with the present schema, made an hour or more after
 * the newest of these rows. A tenant that fails does not affect the others. A run can be killed
 * at any point: the next one goes on.
 * @param target undefined: no archive is asked for
 * @throws {LaterBuildError} when a later build has migrated a tenant of the run: only that build
 *   knows what its rows are
 * @throws {OperatorError} when another run is in progress, a clock is wrong, or a tenant does
 *   not exist
 */
export async function applyRetention(
  installation: Installation,
  target: Target | undefined,
  request: RetentionRequest,
  observers: FleetObservers<RetentionOutcome> = {},
): Promise<RetentionReport> {
  const startedAt = performance.now();

  return withBackupLock(installation.controlUrl, 'retention', async control => {
    await requireNoneLater(control, request.slugs);
    const now = await readSafeTime(control);
    const tenants = await findDueTenants(installation, control, request.slugs, now);
    if (target && tenants.length > 0) await requireWriter(control, target);
    const run = new RetentionRun({ installation, control, request, now, target, observers });
    const tasks = fleetTasks(installation, request.concurrency);
    const outcomes = await runFleet(tenants, tasks, observers, each => run.apply(each));
    const count = (wanted: RetentionOutcome['state']) =>
      outcomes.filter(({ state }) => state === wanted).length;

    return {
      tenants: tenants.length,
      leftOut: count('left out'),
      failed: count('failed'),
      rows: outcomes.flatMap(({ removed }) => removed).reduce((sum, { rows }) => sum + rows, 0),
      ms: Math.round(performance.now() - startedAt),
    };
  });
}

interface RunContext {
  readonly installation: Installation;
  readonly control: Queryable;
  readonly request: RetentionRequest;
  /** The time from which ages are counted. */
  readonly now: Date;
  /** Undefined: no archive is asked for. */
  readonly target: Target | undefined;
  readonly observers: FleetObservers<RetentionOutcome>;
}

/** One run over tenants. */
class RetentionRun {
  readonly #context: RunContext;
  readonly #requestedBy = operatorName();

  constructor(context: RunContext) {
    this.#context = context;
  }

  /**
   * Applies the retention of one tenant, under a lock with which no migration, move or purge
   * changes its database. Under the lock, everything is read once more: since the run began,
   * the tenant may have been given another database, a later schema, or a longer retention.
   */
  async apply({ tenantId, slug }: DueTenant): Promise<RetentionOutcome> {
    const { installation, control, request, now, observers } = this.#context;
    const startedAt = performance.now();
    const removed: RemovedRows[] = [];
    const outcome = (state: RetentionOutcome['state'], error: string | null): RetentionOutcome => ({
      slug,
      state,
      removed,
      ms: Math.round(performance.now() - startedAt),
      error,
    });

    try {
      if (observers.signal?.aborted) throw new Error('the run was interrupted before this tenant');
      await withTenantUnchanged(control, tenantId, async () => {
        const present = await readPresentTenant(control, tenantId);
        if (!present) return;
        await requireNoneLater(control, [slug]);
        const [due] = await findDueTenants(installation, control, [slug], now);
        if (!due) return;

        const work = (client: pg.Client) => this.#removeDue(due, present, client, removed);
        await withConnection(due.url, work, { settings: canonicalTextSettings });
      });

      return outcome(
        removed.length === 0 ? 'nothing' : request.dryRun ? 'planned' : 'removed',
        null,
      );
    } catch (error) {
      return outcome(error instanceof LeftOut ? 'left out' : 'failed', errorText(error));
    }
  }

  async #removeDue(
    tenant: DueTenant,
    present: PresentTenant,
    client: pg.Client,
    removed: RemovedRows[],
  ): Promise<void> {
    const { control, request } = this.#context;
    const facts = await readDatabaseFacts(client, tenant);

    for (const due of tenant.due) {
      const old = await countOldRows(client, due.kind, due.cutoff, facts.now);
      if (old.rows === 0) {
        if (!request.dryRun) {
          await recordNothingToRemove(control, tenant, due, this.#requestedBy);
        }
        continue;
      }

      const archive = request.withoutArchive
        ? null
        : (await this.#findProved(tenant, present, old, facts)).name;
      if (!request.confirmed) requireSmallShare(tenant, due, old);
      if (!request.dryRun) await this.#remove(tenant, due, old, archive, client);
      removed.push({
        kind: due.kind,
        rows: old.rows,
        oldest: old.oldest?.toISOString() ?? null,
        newest: old.newest?.toISOString() ?? null,
        removedBefore: due.cutoff.toISOString(),
        archive,
      });
    }
  }

  /**
   * Returns the newest archive of a tenant that a drill has proved, if it has the rows that are
   * to be removed, at the schema of the database.
   * @throws {LeftOut} when there is none
   */
  async #findProved(
    { guid, slug }: DueTenant,
    { databaseId, epoch }: PresentTenant,
    { newest }: OldRows,
    { schemaVersion }: DatabaseFacts,
  ): Promise<ArchiveRow> {
    const { control, target } = this.#context;
    const rows = target ? await readArchiveRowsOf(control, target, [guid]) : [];
    const proved = rows.find(
      ({ state, provedAt, fault }) => state === 'complete' && provedAt !== null && fault === null,
    );
    const remedy = `Archive and prove it: bin/backoffice backup run ${slug}, then bin/backoffice backup drill`;

    if (!proved || !target) {
      throw new LeftOut(`no archive of it was restored and compared. ${remedy}`);
    }
    const its = `its newest proved archive of ${proved.time.toISOString()}`;
    if (newest && proved.time.getTime() < newest.getTime() + archiveMarginMs) {
      throw new LeftOut(`${its} is not an hour younger than the rows that go. ${remedy}`);
    }
    if (proved.databaseId !== databaseId || proved.epoch !== epoch) {
      throw new LeftOut(
        `${its} is of another database than it has now, or of before the last command that worked on it. ${remedy}`,
      );
    }
    if (proved.schemaVersion !== schemaVersion) {
      throw new LeftOut(
        `${its} has another schema than its database, which is at ${schemaVersion}. ${remedy}`,
      );
    }

    const [object] = await Array.fromAsync(target.list(proved.name));
    const difference = differenceOf(proved, object);
    if (difference !== undefined) {
      throw new LeftOut(`${its} is not there any more: ${difference}. ${remedy}`);
    }

    return proved;
  }

  /** Removes rows, and records the removal. */
  async #remove(
    tenant: DueTenant,
    due: DueRemoval,
    old: OldRows,
    archive: string | null,
    client: pg.Client,
  ): Promise<void> {
    const { control, observers } = this.#context;
    const id = await beginRemoval(control, tenant, due, {
      ...old,
      archive,
      requestedBy: this.#requestedBy,
    });

    try {
      await removeOldRows(client, due.kind, due.cutoff, {
        signal: observers.signal,
        onProgress: rows => recordProgress(control, id, rows),
      });
      await endRemoval(control, id, null);
    } catch (error) {
      await endRemoval(control, id, errorText(error));
      throw error;
    }
  }
}

/**
 * @throws {OperatorError} when more than half of the rows would go: the clock or the retention
 *   may be wrong
 */
function requireSmallShare(
  { slug }: DueTenant,
  { kind, cutoff }: DueRemoval,
  { rows, total }: OldRows,
): void {
  if (rows <= total * maxShare) return;

  const before = cutoff.toISOString().slice(0, 10);
  throw new OperatorError(
    `${rows} of its ${total} ${historyKinds[kind].noun} are from before ${before}, more than half: if the clock and the ` +
      `retention are right, run bin/backoffice retention apply ${slug} --yes`,
  );
}

/**
 * Returns the time, from which ages are counted: the earlier one of two clocks.
 * @throws {OperatorError} when they differ by more than 5 minutes
 */
async function readSafeTime(control: Queryable): Promise<Date> {
  const there = await readControlTime(control);
  const here = new Date();
  if (Math.abs(here.getTime() - there.getTime()) <= maxClockDifferenceMs) {
    return here < there ? here : there;
  }

  throw new OperatorError(
    `This machine says it is ${here.toISOString()}, the server of the control database ${there.toISOString()}: set the ` +
      'clock. Nothing was removed',
  );
}

import type { Readable } from 'node:stream';
import { requireNoLaterControl } from '../../control/control-version.ts';
import type { Installation } from '../../control/installation.ts';
import { requireNoneLater } from '../../control/tenant-head.ts';
import type { Retention } from '../../lib/config/config-values.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import { type FleetObservers, runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import type { GivenNumbers } from '../databases/copy/carry-numbers.ts';
import { withTenantUnchanged } from '../databases/protocol/with-tenant.ts';
import { countSealed, SealedBytes } from './archive/archive-bytes.ts';
import type { LeftOut } from './archive/archive-documents.ts';
import {
  type ArchiveList,
  readArchiveList,
  type StrayFolder,
  settleListing,
} from './archive-list.ts';
import {
  type ArchivedState,
  type ArchiveRow,
  completeArchive,
  forgetArchive,
  forgetGone,
  readControlTime,
  recordCovered,
  recordWriting,
  type Unremoved,
} from './archive-rows.ts';
import { tryWithBackupLock, waitWithBackupLock } from './backup-lock.ts';
import {
  type BackupCandidate,
  currentArchive,
  findCandidates,
  readPresentTenant,
} from './candidates.ts';
import { findRemovable, removeOld } from './prune.ts';
import {
  type ArchiveName,
  createArchiveName,
  fingerprintRecipients,
} from './target/archive-name.ts';
import type { Target } from './target/target.ts';
import { claimTarget, requireWriter } from './writer.ts';

/** A database that is to be archived now. */
export interface ArchiveOrder {
  readonly name: ArchiveName;
  /** The recipients for whom the archive is sealed. */
  readonly recipients: readonly string[];
  /** The tenant; null: the control database. */
  readonly tenant: { readonly guid: string; readonly slug: string; readonly name: string } | null;
  /** The login role of the tenant; null: the control database. */
  readonly role: string | null;
  /** The name of the server in the control database. */
  readonly server: string;
  readonly database: string;
  /** The URL of the database, with the rights of the operator. */
  readonly url: string;
}

/**
 * Takes a snapshot of a database, makes an archive of it, and passes the archive to `store`.
 * @param store writes the body to its end: the archive exists when it has returned
 */
export type WriteArchive = <T>(
  order: ArchiveOrder,
  store: (body: Readable) => Promise<T>,
) => Promise<WrittenContents & { readonly written: T }>;

/** The contents of an archive, as a run reports them. */
interface WrittenContents {
  readonly rows: number;
  /**
   * Parts of the database that somebody else has made and the archive lacks, each with the
   * reason.
   */
  readonly leftOut: readonly LeftOut[];
  /** The last number that each sequence had given. */
  readonly numbers: GivenNumbers;
  /** The last migration of its schema. */
  readonly schemaVersion: string;
  /** The bytes of its tar. */
  readonly unpackedBytes: number;
}

/** The time for which a run of named tenants waits for another run. */
const maxWaitMs = 600_000;

/** The databases that a backup run archives, and how it does so. */
export interface BackupRequest {
  /** The slugs of the chosen tenants; undefined: all tenants. */
  readonly slugs?: readonly string[] | undefined;
  /** Databases that are archived at the same time. */
  readonly concurrency: number;
  readonly keep: Retention;
  readonly recipients: readonly string[];
}

/** The result of a run for one database. */
export interface BackupOutcome {
  /** The tenant; null for the control database. */
  slug: string | null;
  state: 'archived' | 'unchanged' | 'failed';
  /** The name of the archive; null: there is none. */
  archive: string | null;
  rows: number;
  bytes: number;
  /** The parts of the database that the archive lacks. */
  leftOut: readonly LeftOut[];
  ms: number;
  error: string | null;
}

export interface BackupReport {
  archived: number;
  unchanged: number;
  failed: number;
  /** Bytes of the archives that were written. */
  bytes: number;
  /** Tenants whose newest archive the target does not have, and that were archived again. */
  lost: readonly string[];
  /**
   * Archives that `BACKUP_KEEP` does not keep, and those of purged tenants, that were removed.
   */
  removed: number;
  /** The archives that the target refused to remove: a failure of its own. */
  notRemoved: readonly Unremoved[];
  ms: number;
}

/**
 * Archives each tenant that has changed since its last archive, and then the control database;
 * removes the archives that `BACKUP_KEEP` does not keep. A tenant that fails does not affect
 * the others. A run can be killed at any point:
 *
 *   1. Counters are read before the snapshot with which they are stored, so that equal ones
 *      later prove the archive current (`isProvedUnchanged`).
 *   2. The row of an archive is stored before its object, and becomes complete afterwards.
 *      Without a complete row, the next run makes another archive, and removes this one
 *      (`archive-rows.ts`).
 *   3. The control database is archived after all tenants, with the rows of their archives.
 *   4. Archives are removed last, after the newer ones are complete; if a full target has no
 *      room for the claim, some are removed before it.
 *
 * A run of all tenants does nothing beside another one: a timer begins the next one soon. A run
 * of named tenants waits for it.
 * @returns undefined when another run is in progress, and no tenants are named
 * @throws {LaterBuildError} when a later build has migrated the control database, which each run
 *   archives, or a tenant of the run
 * @throws {OperatorError} when another run takes too long, the target cannot be used or another
 *   control database writes there, or a tenant does not exist
 */
export async function runBackup(
  installation: Installation,
  target: Target,
  request: BackupRequest,
  write: WriteArchive,
  observers: FleetObservers<BackupOutcome> = {},
): Promise<BackupReport | undefined> {
  const startedAt = performance.now();

  const work = async (control: Queryable): Promise<BackupReport> => {
    await requireOwnSchemas(control, request);
    const claim = await claimTarget(control, target, id =>
      findRemovable(control, target, id, request.keep),
    );
    const id = await beginRun(control);

    await target.removeUnfinished(`${claim.installation}/`);
    const list = await readArchiveList(control, target, claim.installation);
    const missing = await settleListing(control, target, list);
    const run = new BackupRun({
      installation,
      control,
      target,
      request,
      write,
      observers,
      list,
      installationId: claim.installation,
    });
    const candidates = await run.archiveTenants();
    await run.archiveControl();

    const old = await removeOld(control, target, list, request.keep, claim);
    const removed = claim.madeRoom.length + old.removed;
    const { notRemoved } = old;
    await recordCovered(control, target, run.covered);
    await forgetGone(control);
    await endRun(control, id, {
      failed: run.counts.failed,
      notRemoved: notRemoved.length,
      strays: list.strayFolders(old.erased),
    });
    await claim.release();

    const lost = new Set(missing.map(({ tenant }) => tenant));
    return {
      ...run.counts,
      lost: candidates.filter(({ guid }) => lost.has(guid)).map(({ slug }) => slug),
      removed,
      notRemoved,
      ms: Math.round(performance.now() - startedAt),
    };
  };

  const { controlUrl } = installation;
  if (request.slugs === undefined) {
    return (await tryWithBackupLock(controlUrl, 'archives', work))?.result;
  }
  const { signal } = observers;
  return waitWithBackupLock(controlUrl, 'archives', work, { maxWaitMs, signal });
}

/** @throws {LaterBuildError} when this build cannot archive all that a run archives */
async function requireOwnSchemas(
  control: Queryable,
  { slugs }: Pick<BackupRequest, 'slugs'>,
): Promise<void> {
  await requireNoneLater(control, slugs);
  await requireNoLaterControl(control);
}

interface RunContext {
  readonly installation: Installation;
  readonly control: Queryable;
  readonly target: Target;
  readonly request: BackupRequest;
  readonly write: WriteArchive;
  readonly observers: FleetObservers<BackupOutcome>;
  readonly list: ArchiveList;
  readonly installationId: string;
}

interface RunCounts {
  archived: number;
  unchanged: number;
  failed: number;
  bytes: number;
}

/** A run, with the archives that it has made so far. */
class BackupRun {
  readonly counts: RunCounts = { archived: 0, unchanged: 0, failed: 0, bytes: 0 };
  /** Names of the archives that have everything that their database has. */
  readonly covered: string[] = [];
  readonly #context: RunContext;
  readonly #recipients: string;

  constructor(context: RunContext) {
    this.#context = context;
    this.#recipients = fingerprintRecipients(context.request.recipients);
  }

  /** @returns the tenants of the run */
  async archiveTenants(): Promise<BackupCandidate[]> {
    const { installation, control, request, list, observers } = this.#context;
    const candidates = await findCandidates(installation, control, request.slugs);
    observers.onStart?.(candidates.length + 1); // the control database is one, too

    const changed: BackupCandidate[] = [];
    for (const candidate of candidates) {
      const archive = currentArchive(candidate, list, this.#recipients);
      if (!archive) {
        changed.push(candidate);
        continue;
      }
      this.covered.push(archive.name);
      this.#report({ slug: candidate.slug, state: 'unchanged', archive: archive.name });
    }

    await runConcurrently(changed, fleetTasks(installation, request.concurrency), candidate =>
      this.#archiveTenant(candidate),
    );

    return candidates;
  }

  async archiveControl(): Promise<void> {
    const { installation, control } = this.#context;
    const database = decodeURIComponent(new URL(installation.controlUrl).pathname.slice(1));

    await this.#attempt(null, async () => {
      const { controlUrl: url } = installation;
      const subject = { tenant: null, role: null, server: 'control', database, url };
      const source = { databaseId: null, epoch: null, counters: null };

      return this.#write(subject, source, await readControlTime(control));
    });
  }

  async #archiveTenant(candidate: BackupCandidate): Promise<void> {
    const { control, observers } = this.#context;
    const { tenantId, guid, slug, name, role, server, fault, counters } = candidate;

    await this.#attempt(slug, async () => {
      if (observers.signal?.aborted) throw new Error('the run was interrupted before this tenant');
      if (fault !== undefined || candidate.url === undefined) {
        throw new Error(fault ?? `server ${server} is unknown`);
      }
      const { url } = candidate;

      let written: WrittenArchive | undefined;
      try {
        await withTenantUnchanged(control, tenantId, async () => {
          const present = await readPresentTenant(control, tenantId);
          if (!present) return;
          if (present.database !== candidate.database) {
            throw new Error('it has got another database meanwhile: the next run archives it');
          }

          const { databaseId, database, epoch, now } = present;
          const subject = { tenant: { guid, slug, name }, role, server, database, url };
          const source = { databaseId, epoch, counters: counters?.fingerprint ?? null };
          written = await this.#write(subject, source, now);
        });
      } catch (error) {
        // If the tenant is being purged, it is no failure that this run could not archive it.
        if (await readPresentTenant(control, tenantId)) throw error;
      }

      return written;
    });
  }

  /** @param work returns undefined when there is nothing to archive any more */
  async #attempt(
    slug: string | null,
    work: () => Promise<WrittenArchive | undefined>,
  ): Promise<void> {
    const startedAt = performance.now();
    const ms = () => Math.round(performance.now() - startedAt);

    try {
      const written = await work();
      if (!written) return;

      const { archive, rows, leftOut } = written;
      const { name } = archive;
      const bytes = archive.bytes?.size ?? 0;
      this.#report({ slug, state: 'archived', archive: name, rows, bytes, leftOut, ms: ms() });
    } catch (error) {
      this.#report({ slug, state: 'failed', archive: null, ms: ms(), error: errorText(error) });
    }
  }

  /**
   * Archives a database: its row, then its object, then its row again.
   * @param now the time of the control database
   */
  async #write(
    subject: Omit<ArchiveOrder, 'name' | 'recipients'>,
    source: ArchivedState,
    now: Date,
  ): Promise<WrittenArchive> {
    const { control, target, request, list, installationId } = this.#context;
    const { recipients } = request;
    const tenant = subject.tenant?.guid ?? null;
    const name = createArchiveName({
      installation: installationId,
      tenant,
      time: timeAfter(list.of(tenant)[0], now, list.storeTime),
      recipients: this.#recipients,
    });

    await recordWriting(control, target, name, source);
    const { written, ...contents } = await this.#store({ ...subject, name, recipients });
    const { schemaVersion, unpackedBytes } = contents;
    const bytes = { ...written, unpackedBytes };
    const archive: ArchiveRow = {
      ...name,
      ...source,
      state: 'complete',
      schemaVersion,
      bytes,
      checksum: null,
      drilledAt: null,
      provedAt: null,
      fault: null,
    };
    await completeArchive(control, target, archive, bytes, contents.numbers);
    list.put(archive);
    list.see({ name: name.name, size: bytes.size, modifiedAt: name.time });

    return { archive, ...contents };
  }

  /** Writes an object, and forgets it when that fails. */
  async #store(order: ArchiveOrder) {
    const { control, target, write } = this.#context;
    const { name } = order;

    try {
      return await write(order, async body => {
        const sealed = new SealedBytes();
        await target.write(name.name, countSealed(body, sealed));
        return sealed.end();
      });
    } catch (error) {
      // The object may be there, when only the response of the store was lost.
      await target
        .remove(name.name)
        .then(() => forgetArchive(control, target, name))
        .catch(() => {});
      throw error;
    }
  }

  #report(
    outcome: Partial<BackupOutcome> & Pick<BackupOutcome, 'slug' | 'state' | 'archive'>,
  ): void {
    const whole: BackupOutcome = { rows: 0, bytes: 0, leftOut: [], ms: 0, error: null, ...outcome };
    this.counts[whole.state]++;
    this.counts.bytes += whole.bytes;
    this.#context.observers.onOutcome?.(whole);
  }
}

interface WrittenArchive extends WrittenContents {
  readonly archive: ArchiveRow;
}

/**
 * The milliseconds by which the newest archive may be ahead of the control database, whose
 * server, and so its clock, can change.
 */
const maxAheadMs = 5 * 60_000;

/**
 * Returns the time of a new archive, which is later than that of the newest one.
 * @throws {OperatorError} when the newest one is of the future
 */
function timeAfter(newest: ArchiveRow | undefined, now: Date, storeTime: Date | undefined): Date {
  if (!newest || newest.time < now) return now;
  if (newest.time.getTime() <= now.getTime() + maxAheadMs) {
    return new Date(newest.time.getTime() + 1);
  }

  const store = storeTime ? `, the target ${storeTime.toISOString()}` : '';
  throw new OperatorError(
    `its newest archive is from the future: ${newest.name}. The server of the control database says it is ` +
      `${now.toISOString()}${store}: set its clock. If it is right, move that object away`,
  );
}

/**
 * Begins the record of a run. Runs whose process was killed become `abandoned`: the caller has
 * the lock, so none of them goes on.
 * @returns an id
 */
async function beginRun(control: Queryable): Promise<string | undefined> {
  await control.query(
    `update backup_runs set state = 'abandoned', finished_at = now() where state = 'running'`,
  );
  const { rows } = await control.query<{ id: string }>(
    'insert into backup_runs default values returning id',
  );

  return rows[0]?.id;
}

/** The facts that are recorded of a run at its end. */
interface RunEnd {
  /** Databases that could not be archived. */
  readonly failed: number;
  /** Old archives that the target refused to remove. */
  readonly notRemoved: number;
  readonly strays: readonly StrayFolder[];
}

/**
 * Ends the record of a run, which has succeeded if no database failed. An archive that could
 * not be removed is a failure of its own.
 */
async function endRun(
  control: Queryable,
  id: string | undefined,
  { failed, notRemoved, strays }: RunEnd,
): Promise<void> {
  await control.query(
    `update backup_runs set state = $2, finished_at = now(), not_removed = $3, strays = $4::jsonb
      where id = $1`,
    [id, failed === 0 ? 'succeeded' : 'failed', notRemoved, JSON.stringify(strays)],
  );
}

/** The plan of a run for one tenant. */
export interface PlannedBackup {
  slug: string;
  /** True if the database has changed since its last archive, or may have. */
  isArchived: boolean;
  /** The reason why the tenant could not be archived; null: none is known. */
  fault: string | null;
}

/**
 * Returns the tenants that a run would archive, and those that are unchanged; writes nothing.
 * @throws {OperatorError} when another control database writes to the target, or a tenant does
 *   not exist
 */
export async function planBackup(
  installation: Installation,
  target: Target,
  { slugs, recipients }: Pick<BackupRequest, 'slugs' | 'recipients'>,
): Promise<PlannedBackup[]> {
  return withConnection(installation.controlUrl, async control => {
    await requireOwnSchemas(control, { slugs });
    const list = await readArchiveList(control, target, await requireWriter(control, target));
    for (const { row } of list.missing()) {
      list.remove(row);
    }
    const candidates = await findCandidates(installation, control, slugs);
    const present = fingerprintRecipients(recipients);

    return candidates.map(candidate => ({
      slug: candidate.slug,
      isArchived: !currentArchive(candidate, list, present),
      fault: candidate.fault ?? null,
    }));
  });
}

import type { Readable } from 'node:stream';
import type { Installation } from '../../control/installation.ts';
import type { Retention } from '../../lib/config/config-values.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import { operatorName } from '../command/operator-name.ts';
import { type FleetObservers, runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import type { GivenNumbers } from '../databases/carry-numbers.ts';
import { withTenantUnchanged } from '../databases/with-tenant.ts';
import type { LeftOut } from './archive/archive-documents.ts';
import { copyListing, forgetProofs, recordArchive } from './archive-rows.ts';
import { withBackupLock } from './backup-lock.ts';
import {
  type BackupCandidate,
  currentArchive,
  findCandidates,
  lostArchives,
  readPresentTenant,
} from './candidates.ts';
import { type Listing, readControlTime, readListing, type StoredArchive } from './listing.ts';
import { chooseUnneeded, type Removal, removeArchives, type Unremoved } from './prune.ts';
import { findLeftOfPurged, removeLeftOfPurged } from './purged-archives.ts';
import {
  type ArchiveName,
  createArchiveName,
  fingerprintRecipients,
} from './target/archive-name.ts';
import type { Target } from './target/target.ts';
import { type Claim, claimTarget, requireWriter } from './writer.ts';

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
}

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
  /** Tenants whose last archive the target does not have, and that were archived again. */
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
 *   2. An archive is complete when the target lists it, and counts for its tenant when the row
 *      of the database names it, which is stored afterwards. Without that row, the next run
 *      makes another archive.
 *   3. The control database is archived after all tenants, with the names of their archives.
 *   4. Archives are removed last, after the newer ones are complete; if a full target has no
 *      room for the claim, some are removed before it.
 *
 * @throws {OperatorError} when another run is in progress, the target cannot be used or another
 *   control database writes there, or a tenant does not exist
 */
export async function runBackup(
  installation: Installation,
  target: Target,
  request: BackupRequest,
  write: WriteArchive,
  observers: FleetObservers<BackupOutcome> = {},
): Promise<BackupReport> {
  const startedAt = performance.now();

  return withBackupLock(installation.controlUrl, 'archives', async control => {
    const claim = await claimTarget(control, target, id =>
      findRemovable(control, target, id, request.keep),
    );
    const id = await beginRun(control);

    await target.removeUnfinished(`${claim.installation}/`);
    const listing = await readListing(control, target, claim.installation);
    const run = new BackupRun({
      installation,
      control,
      target,
      request,
      write,
      observers,
      listing,
      installationId: claim.installation,
    });
    const lost = await run.archiveTenants();
    await run.archiveControl();

    const old = await removeOld(control, target, listing, request.keep, claim);
    const removed = claim.madeRoom.length + old.removed;
    const { notRemoved } = old;
    await forgetProofs(control, listing);
    await copyListing(control, listing, run.covered);
    await endRun(control, id, run.counts, removed, notRemoved.length);
    await claim.release();

    return {
      ...run.counts,
      lost,
      removed,
      notRemoved,
      ms: Math.round(performance.now() - startedAt),
    };
  });
}

interface RunContext {
  readonly installation: Installation;
  readonly control: Queryable;
  readonly target: Target;
  readonly request: BackupRequest;
  readonly write: WriteArchive;
  readonly observers: FleetObservers<BackupOutcome>;
  readonly listing: Listing;
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
  /**
   * The guids of the tenants whose newest archive has everything that their database has; null:
   * the control database.
   */
  readonly covered = new Set<string | null>();
  readonly #context: RunContext;
  readonly #recipients: string;

  constructor(context: RunContext) {
    this.#context = context;
    this.#recipients = fingerprintRecipients(context.request.recipients);
  }

  /** @returns the slugs of the tenants whose last archive the target has lost */
  async archiveTenants(): Promise<string[]> {
    const { installation, control, request, listing, observers } = this.#context;
    const candidates = await findCandidates(installation, control, request.slugs);
    observers.onStart?.(candidates.length + 1); // the control database is one, too

    const changed: BackupCandidate[] = [];
    for (const candidate of candidates) {
      const archive = currentArchive(candidate, listing, this.#recipients);
      if (!archive) {
        changed.push(candidate);
        continue;
      }
      this.covered.add(candidate.guid);
      this.#report({ slug: candidate.slug, state: 'unchanged', archive: archive.name });
    }
    const lost = lostArchives(candidates, listing).map(({ slug }) => slug);

    await runConcurrently(changed, fleetTasks(request.concurrency), candidate =>
      this.#archiveTenant(candidate),
    );

    return lost;
  }

  async archiveControl(): Promise<void> {
    const { installation } = this.#context;
    const database = decodeURIComponent(new URL(installation.controlUrl).pathname.slice(1));

    await this.#attempt(null, async () => {
      const { controlUrl: url } = installation;
      const written = await this.#write({
        tenant: null,
        role: null,
        server: 'control',
        database,
        url,
      });
      this.covered.add(null);
      return written;
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

          const { databaseId, database } = present;
          written = await this.#write({
            tenant: { guid, slug, name },
            role,
            server,
            database,
            url,
          });
          const { archive, numbers } = written;
          const proof = counters?.fingerprint ?? null;
          await recordArchive(control, databaseId, archive, proof, numbers);
          this.covered.add(guid);
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
      const { name, size: bytes } = archive;
      this.#report({ slug, state: 'archived', archive: name, rows, bytes, leftOut, ms: ms() });
    } catch (error) {
      this.#report({ slug, state: 'failed', archive: null, ms: ms(), error: errorText(error) });
    }
  }

  async #write(subject: Omit<ArchiveOrder, 'name' | 'recipients'>): Promise<WrittenArchive> {
    const { control, target, request, write, listing, installationId } = this.#context;
    const { recipients } = request;
    const name = createArchiveName({
      installation: installationId,
      tenant: subject.tenant?.guid ?? null,
      time: await readControlTime(control),
      recipients: this.#recipients,
    });

    const store = (body: Readable) => target.write(name.name, body);
    const { written, ...contents } = await write({ ...subject, name, recipients }, store);
    const archive: StoredArchive = { ...name, size: written.size, modifiedAt: name.time };
    listing.add(archive);

    return { archive, ...contents };
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
  readonly archive: StoredArchive;
}

/**
 * Lists the target, and returns the names of the archives that `removeOld` would remove, the
 * oldest first.
 */
export async function findRemovable(
  control: Queryable,
  target: Target,
  installation: string,
  keep: Retention,
): Promise<string[]> {
  const listing = await readListing(control, target, installation);
  const unneeded = await chooseUnneeded(control, listing, keep);
  const purged = await findLeftOfPurged(control, listing);

  return [...unneeded, ...purged.flatMap(({ guid }) => listing.of(guid))]
    .sort((one, other) => one.time.getTime() - other.time.getTime())
    .map(({ name }) => name);
}

/**
 * Removes the archives that `BACKUP_KEEP` does not keep, and those that are left of purged
 * tenants.
 */
export async function removeOld(
  control: Queryable,
  target: Target,
  listing: Listing,
  keep: Retention,
  claim: Claim,
): Promise<{ removed: number; notRemoved: Unremoved[] }> {
  const unneeded = await chooseUnneeded(control, listing, keep);
  const pruned: Removal = await removeArchives(target, listing, unneeded, claim);
  const purged = await removeLeftOfPurged(control, target, listing, claim);

  return {
    removed: pruned.removed.length + purged.removed,
    notRemoved: [...pruned.notRemoved, ...purged.left],
  };
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
    'insert into backup_runs (requested_by) values ($1) returning id',
    [operatorName()],
  );

  return rows[0]?.id;
}

/**
 * Ends the record of a run, which has succeeded if no database failed. An archive that could
 * not be removed is a failure of its own.
 */
async function endRun(
  control: Queryable,
  id: string | undefined,
  { archived, unchanged, failed, bytes }: RunCounts,
  removed: number,
  notRemoved: number,
): Promise<void> {
  await control.query(
    `update backup_runs set state = case when $4 = 0 then 'succeeded' else 'failed' end, finished_at = now(),
            archived = $2, unchanged = $3, failed = $4, bytes = $5, removed = $6, not_removed = $7 where id = $1`,
    [id, archived, unchanged, failed, bytes, removed, notRemoved],
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
    const listing = await readListing(control, target, await requireWriter(control, target));
    const candidates = await findCandidates(installation, control, slugs);
    const present = fingerprintRecipients(recipients);

    return candidates.map(candidate => ({
      slug: candidate.slug,
      isArchived: !currentArchive(candidate, listing, present),
      fault: candidate.fault ?? null,
    }));
  });
}

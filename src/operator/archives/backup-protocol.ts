import { type ChangeCounters, isProvedUnchanged } from '../../postgres/change-counters.ts';
import type { LedgerEntry } from './ledger.ts';

/** A tenant that may have to be archived. */
export interface BackupSubject {
  /** Its guid. */
  readonly tenant: string;
  /** Its counters at the poll; undefined: nothing is proved. */
  readonly counters: ChangeCounters | undefined;
}

/** The newest complete archive of a tenant. */
export type NewestArchive = Pick<LedgerEntry, 'id' | 'proof' | 'fault'>;

/** The effects of a backup run on the control database and the target. Each can be the last one of a killed run. */
export interface BackupEffects<Subject extends BackupSubject, Planned, Written, Newest extends NewestArchive> {
  /** Removes what killed runs have left. */
  removeLeftovers(): Promise<void>;
  /** Returns the tenants, with counters that are read now. */
  poll(): Promise<readonly Subject[]>;
  /** Creates missing data keys, and writes all keys to the target. */
  storeKeys(): Promise<void>;
  /** Returns the newest archives by the guid of their tenant. */
  readNewest(): Promise<ReadonlyMap<string | null, Newest>>;
  markUnchanged(unchanged: readonly { subject: Subject; archive: Newest }[]): Promise<void>;
  /** Records the archives that are going to be written. */
  plan(changed: readonly Subject[]): Promise<readonly Planned[]>;
  /** Runs `work` while no migration, move or purge changes the tenant. @throws when one does so now */
  whileStable(planned: Planned, work: () => Promise<void>): Promise<void>;
  /** Takes a snapshot of a database, and writes it to the target. */
  write(planned: Planned): Promise<Written>;
  /** Records that the file of an archive is complete. */
  complete(planned: Planned, written: Written): Promise<void>;
  /** Removes the file of an archive that failed, and then its record. A file that stays keeps its record. */
  abandon(planned: Planned, error: unknown): Promise<void>;
  /** Runs the work for all planned archives, some of them at the same time. */
  forEach(planned: readonly Planned[], work: (planned: Planned) => Promise<void>): Promise<void>;
  /** Archives the control database, with the ledger of this run. */
  archiveControl(): Promise<void>;
  /** Removes the archives that the retention does not keep. @returns how many */
  prune(): Promise<number>;
}

/** Returns whether the newest archive of a tenant is proved to have all that its database has. */
export function isArchived(newest: NewestArchive | undefined, { counters }: BackupSubject): boolean {
  return newest !== undefined && newest.fault === null && isProvedUnchanged(newest.proof, counters);
}

/**
 * Runs the steps of a backup run in their order, which matters because a run can be killed at any point:
 *
 *   A1 (proof) Counters are read before the snapshot with which they are stored, so that equal ones later prove the
 *      archive current (`isProvedUnchanged`).
 *   A2 (record first) An archive is recorded before its file is begun, and as complete after it has its name in the
 *      target. So the next run finds every file that was not completed.
 *   A3 (keys first) A data key is in the target before the first archive that it seals.
 *   A4 (ledger last) The control database is archived after all tenants, with a ledger that has their archives.
 *   A5 (removal last) Old archives are removed after the newer ones are complete.
 *
 * @returns the number of archives that were removed
 */
export async function runBackupSteps<Subject extends BackupSubject, Planned, Written, Newest extends NewestArchive>(
  effects: BackupEffects<Subject, Planned, Written, Newest>,
): Promise<number> {
  await effects.removeLeftovers();
  const subjects = await effects.poll();
  await effects.storeKeys();
  const newest = await effects.readNewest();
  const unchanged: { subject: Subject; archive: Newest }[] = [];
  const changed: Subject[] = [];
  for (const subject of subjects) {
    const archive = newest.get(subject.tenant);
    if (archive && isArchived(archive, subject)) unchanged.push({ subject, archive });
    else changed.push(subject);
  }
  await effects.markUnchanged(unchanged);
  await effects.forEach(await effects.plan(changed), async planned => {
    try {
      await effects.whileStable(planned, async () => effects.complete(planned, await effects.write(planned)));
    } catch (error) {
      await effects.abandon(planned, error);
    }
  });
  await effects.archiveControl();
  return effects.prune();
}

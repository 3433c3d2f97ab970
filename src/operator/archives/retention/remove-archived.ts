import type pg from 'pg';
import { OperatorError } from '../../../log/operator-error.ts';
import { errorText } from '../../command/texts.ts';
import { type HistoryKind, historyKinds } from '../../retention/history-kinds.ts';
import { ArchiveFault } from '../format/archive-fault.ts';
import { type LedgerEntry, recordCheck } from '../ledger.ts';
import { openArchive } from '../open-archive.ts';
import { type ArchivedHistory, readArchivedHistory } from './archived-history.ts';
import { reclaimSpace, removeRows, requireNoOldRows } from './remove-rows.ts';
import {
  beginRemoval,
  type DueRemoval,
  endRemoval,
  type RetentionCandidate,
  recordProgress,
} from './retention-candidates.ts';
import type { RemovedRows, RetentionRun } from './retention-run.ts';

interface ArchivedRemovals {
  readonly removals: readonly DueRemoval[];
  /** The id of the archive; undefined: the tenant has none. */
  readonly archive: string | undefined;
  /** The last migration of the database. */
  readonly schemaVersion: string;
  readonly onRemoved: (removed: RemovedRows) => void;
}

/** The largest part of the rows of a kind that is removed without a confirmation. */
const maxShare = 0.5;

/**
 * Removes the rows that one archive has. Every byte of it is checked before the first row goes.
 * @throws {OperatorError} when the archive cannot be used, or the tenant has other rows; a removal that was begun is
 *   then stopped, and the next run begins with the newest archive
 */
export async function removeArchived(
  run: RetentionRun,
  candidate: RetentionCandidate,
  client: pg.Client,
  { removals, archive: id, schemaVersion, onRemoved }: ArchivedRemovals,
): Promise<void> {
  const archive = run.archives.find(each => each.id === id);
  const verified = readVerifiedHistory(run, candidate.slug, archive, { removals, schemaVersion });
  const histories = await verified.catch(async error => {
    for (const { unfinished } of removals) await stopRemoval(run, unfinished?.id, error);
    throw error;
  });
  for (const due of removals) {
    const history = histories.get(due.kind);
    if (!history || !archive) continue;
    if (!due.unfinished && !run.confirmed) requireSmallShare(due, history, candidate.slug);
    if (!run.dryRun) await removeRecorded(run, candidate, client, due, history, archive.id);
    onRemoved({
      kind: due.kind,
      rows: history.rows,
      oldest: isoText(history.oldest),
      newest: isoText(history.newest),
      removedBefore: due.cutoff.toISOString(),
      archive: archive.id,
      file: archive.file,
    });
  }
}

/**
 * Checks every byte of an archive, and returns what it has of the rows that are due. The result of the check is
 * recorded.
 * @throws {OperatorError} when there is no archive, it is older than the cutoff or has another schema version than the
 *   database, or it cannot be read
 */
async function readVerifiedHistory(
  { control, target, keyring }: RetentionRun,
  slug: string,
  archive: LedgerEntry | undefined,
  { removals, schemaVersion }: Pick<ArchivedRemovals, 'removals' | 'schemaVersion'>,
): Promise<Map<HistoryKind, ArchivedHistory>> {
  const remedy = `nothing is removed that no archive has. Run bin/backoffice backup run ${slug}`;
  if (!archive) throw new OperatorError(`it has no complete archive in ${target.description}: ${remedy}`);
  const { id, file, snapshotAt } = archive;
  if (removals.some(({ cutoff }) => snapshotAt < cutoff) || archive.schemaVersion !== schemaVersion)
    throw new OperatorError(`its archive of ${snapshotAt.toISOString()} is too old: ${remedy}`);
  const cutoffs = Object.fromEntries(removals.map(({ kind, cutoff }) => [kind, cutoff]));
  try {
    const histories = await openArchive(target, keyring, archive, reader => readArchivedHistory(reader, cutoffs));
    await recordCheck(control, id, 'verified', null);
    return histories;
  } catch (cause) {
    if (!(cause instanceof ArchiveFault)) throw cause;
    await recordCheck(control, id, 'verified', cause.message);
    throw new OperatorError(`${file}: ${cause.message}: ${remedy}`, { cause });
  }
}

/** Returns a time that PostgreSQL has written in UTC as ISO 8601, with its microseconds. */
function isoText(time: string | null): string | null {
  return time && `${time.replace(' ', 'T').replace(/\+00$/, '')}Z`;
}

/** @throws {OperatorError} when more than half of the rows would go: the clock or the retention may be wrong */
function requireSmallShare({ kind, cutoff }: DueRemoval, { rows, total }: ArchivedHistory, slug: string): void {
  if (rows <= total * maxShare) return;
  const before = cutoff.toISOString().slice(0, 10);
  throw new OperatorError(
    `${rows} of its ${total} ${historyKinds[kind].noun} are from before ${before}, more than half: if the clock and the ` +
      `retention are right, run bin/backoffice retention apply ${slug} --yes`,
  );
}

/** Removes rows under a record, which keeps the archive. */
async function removeRecorded(
  run: RetentionRun,
  { tenantId, slug, database }: RetentionCandidate,
  client: pg.Client,
  { kind, cutoff, unfinished }: DueRemoval,
  history: ArchivedHistory,
  archive: string,
): Promise<void> {
  const { control, keepDays, requestedBy, signal } = run;
  const { oldest, newest } = history;
  const entry = { tenantId, database, kind, cutoff, archive, oldest, newest, requestedBy };
  const id = unfinished?.id ?? (await beginRemoval(control, entry, keepDays));
  if (id === undefined) throw new OperatorError('its archive was removed meanwhile: run this again');
  const onProgress = (rows: number): Promise<void> => recordProgress(control, id, rows);
  try {
    if (!(await removeRows(client, kind, cutoff, history, { slug, onProgress, signal })))
      throw new Error('it was interrupted: run this again to go on');
    await reclaimSpace(client, kind);
    await requireNoOldRows(client, kind, cutoff, slug);
    await endRemoval(control, id, null);
  } catch (error) {
    await stopRemoval(run, id, error);
    throw error;
  }
}

/** Stops a removal that would fail again. One that was interrupted, or has lost its connection, is continued. */
async function stopRemoval({ control, dryRun }: RetentionRun, id: string | undefined, error: unknown): Promise<void> {
  if (id !== undefined && !dryRun && error instanceof OperatorError) await endRemoval(control, id, errorText(error));
}

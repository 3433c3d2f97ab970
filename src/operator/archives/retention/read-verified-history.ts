import { OperatorError } from '../../../log/operator-error.ts';
import { ArchiveFault } from '../format/archive-fault.ts';
import { type LedgerEntry, recordCheck } from '../ledger.ts';
import { openArchive } from '../open-archive.ts';
import { type ArchivedHistory, readArchivedHistory } from './archived-history.ts';
import type { HistoryKind } from './history-kinds.ts';
import type { DueRemoval } from './retention-candidates.ts';
import type { RetentionRun } from './retention-run.ts';

/**
 * Checks every byte of an archive, and returns what it has of the rows that are due. The result of the check is
 * recorded.
 * @throws {OperatorError} when there is no archive, it is older than the cutoff or has another schema version than the
 *   database, or it cannot be read
 */
export async function readVerifiedHistory(
  { control, target, keyring }: Pick<RetentionRun, 'control' | 'target' | 'keyring'>,
  slug: string,
  archive: LedgerEntry | undefined,
  { removals, schemaVersion }: { removals: readonly DueRemoval[]; schemaVersion: string },
): Promise<Map<HistoryKind, ArchivedHistory>> {
  const remedy = `nothing is removed that no archive has. Run npx backoffice backup run ${slug}`;
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

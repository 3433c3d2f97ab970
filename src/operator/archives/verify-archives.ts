import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';
import { type FleetObservers, runFleet } from '../command/run-fleet.ts';
import { createKeyring, type Keyring, opensKey, readKeys } from './data-keys.ts';
import { ArchiveFault, type ArchiveFaultKind } from './format/archive-fault.ts';
import { checkRows } from './format/read-archive.ts';
import { type LedgerEntry, readComplete, recordCheck } from './ledger.ts';
import { openArchive } from './open-archive.ts';
import { readTargetKeys } from './read-target-keys.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** The result of a check of one archive. */
export interface ArchiveCheck {
  id: string;
  /** The tenant; null for the control database. */
  slug: string | null;
  file: string;
  bytes: number;
  fault: ArchiveFaultKind | null;
  /** What is wrong, as the end of a sentence that begins with the file. */
  message: string | null;
}

const concurrentReads = 4;

/**
 * Checks every byte of archives: reads, authenticates, decompresses and counts their rows, with the keys that the target
 * has, as after the loss of the control database. Records the result of each.
 * @param tenant only those of the tenant with this guid; undefined: all, those of the control database included
 * @throws {OperatorError} when the target cannot be reached
 */
export async function verifyArchives(
  { controlUrl, secrets }: Installation,
  target: BackupTarget,
  tenant: string | undefined,
  observers: FleetObservers<ArchiveCheck>,
): Promise<ArchiveCheck[]> {
  return withConnection(controlUrl, async client => {
    const control = shareConnection(client);
    const archives = await readComplete(control, target.description, tenant);
    const keyring = createKeyring(await readTargetKeys(target), secrets);
    const stored = (await readKeys(control)).filter(key => opensKey(secrets, key));
    const known = new Set(stored.map(({ fingerprint }) => fingerprint));
    const check = (archive: LedgerEntry) => checkArchive(control, target, keyring, known, archive);
    return runFleet(archives, concurrentReads, observers, check);
  });
}

/** It is no fault of the archive: the control database has its key. */
const lostKey =
  'the target has no key of it that MASTER_KEY opens. Remove the files of its key from the folder keys, if there are any, and write it again: npx backoffice backup run --all';

/** @param known fingerprints of the keys that the control database has */
async function checkArchive(
  control: Queryable,
  target: BackupTarget,
  keyring: Keyring,
  known: ReadonlySet<string>,
  archive: LedgerEntry,
): Promise<ArchiveCheck> {
  const { id, slug, file, bytes } = archive;
  const { kind, message } = await openArchive(target, keyring, archive, checkRows).then(
    () => ({ kind: null, message: null }),
    error => {
      if (error instanceof ArchiveFault) return error;
      throw error;
    },
  );
  const isKeyLost = kind === 'wrong_key' && known.has(archive.keyFingerprint);
  if (!isKeyLost) await recordCheck(control, id, 'verified', message);
  return { id, slug, file, bytes, fault: kind, message: isKeyLost ? lostKey : message };
}

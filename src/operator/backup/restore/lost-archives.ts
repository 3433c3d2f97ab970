import type { Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../installation.ts';
import { openBackupTarget } from '../target/open-target.ts';
import { listArchivesOf } from './find-archive.ts';
import { readTenantKeys } from './open-keys.ts';
import type { FoundArchive } from './restore-archive.ts';

/**
 * Returns the newest archive of each of these tenants, by their guids; those without an archive
 * are not among them.
 * @throws {OperatorError} when the target cannot be used, or this host opens no archive
 */
export async function findNewestArchives(
  installation: Installation,
  tenants: readonly Pick<Tenant, 'guid'>[],
): Promise<Map<string, FoundArchive>> {
  const target = await openBackupTarget();
  await target.check();
  const keys = await readTenantKeys(installation);
  const found = new Map<string, FoundArchive>();

  for (const { guid } of tenants) {
    const [archive] = await listArchivesOf(target, keys.installation, guid);
    if (archive) found.set(guid, { target, archive, keys });
  }

  return found;
}

import type { Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { openBackupTarget } from '../target/open-target.ts';
import { listArchivesOf } from './find-archive.ts';
import { readInstallationId, readTenantKeys, type TenantKeys } from './open-keys.ts';
import type { FoundArchive } from './restore-archive.ts';

/**
 * Returns the newest archive of each of these tenants, by their guids; those without an archive
 * are not among them.
 * @param withoutMac true: also archives without a proof of their writer
 * @throws {OperatorError} when the target cannot be used
 */
export async function findNewestArchives(
  installation: Installation,
  tenants: readonly Pick<Tenant, 'guid'>[],
  withoutMac: boolean,
): Promise<Map<string, FoundArchive>> {
  const target = await openBackupTarget();
  await target.check();
  const id = await readInstallationId(installation);
  const found = new Map<string, FoundArchive>();

  let keys: Promise<TenantKeys> | undefined;
  const readKeys = () => {
    keys ??= readTenantKeys(installation, withoutMac);
    return keys;
  };

  for (const { guid } of tenants) {
    const [archive] = await listArchivesOf(target, id, guid);
    if (archive) found.set(guid, { target, archive, readKeys });
  }

  return found;
}

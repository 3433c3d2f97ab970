import type { Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { readArchiveRowsOf } from '../archive-rows.ts';
import { openBackupTarget } from '../target/open-target.ts';
import { chooseNewest, listArchivesOf } from './find-archive.ts';
import { readInstallationId, readTenantKeys, type TenantKeys } from './open-keys.ts';
import type { FoundArchive } from './restore-archive.ts';

/** The bounds and proofs with which archives are opened. */
export interface OpeningOptions {
  /** True: also archives without a proof of their writer. */
  readonly withoutMac: boolean;
  /** The largest tar that is read where nothing is recorded of an archive. */
  readonly maxBytes: number | undefined;
}

/**
 * Returns the newest archive of each of these tenants, by their guids; those of which the target
 * has no object are not among them, also if the control database lists one.
 * @throws {OperatorError} when the target cannot be used
 */
export async function findNewestArchives(
  installation: Installation,
  tenants: readonly Pick<Tenant, 'guid'>[],
  { withoutMac, maxBytes }: OpeningOptions,
): Promise<Map<string, FoundArchive>> {
  const target = await openBackupTarget(installation);
  await target.check();
  const id = await readInstallationId(installation);
  const rows = await withConnection(installation.controlUrl, control =>
    readArchiveRowsOf(
      control,
      target,
      tenants.map(({ guid }) => guid),
    ),
  );
  const byTenant = Map.groupBy(rows, ({ tenant }) => tenant);
  const found = new Map<string, FoundArchive>();

  let keys: Promise<TenantKeys> | undefined;
  const readKeys = () => {
    keys ??= readTenantKeys(installation, withoutMac);
    return keys;
  };

  for (const { guid } of tenants) {
    const own = byTenant.get(guid) ?? [];
    const stored = await listArchivesOf(target, id, guid, own);
    const choice = stored.length > 0 ? chooseNewest(own, stored) : undefined;
    if (choice) found.set(guid, { ...choice, target, readKeys, maxBytes });
  }

  return found;
}

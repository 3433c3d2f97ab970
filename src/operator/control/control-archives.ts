import { readConfig } from '../../config/config.ts';
import { controlHead } from '../../control/control-version.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../postgres/migration-steps.ts';
import { ArchiveFault } from '../backup/archive/archive-fault.ts';
import { controlMacKeys } from '../backup/archive/archive-keys.ts';
import { readIdentities } from '../backup/archive/identities.ts';
import type { OpenKeys } from '../backup/archive/open-archive.ts';
import { listControlArchives } from '../backup/lost-control.ts';
import { loadArchive, type OpenedArchive, openArchive } from '../backup/restore/archived-data.ts';
import type { ArchiveName } from '../backup/target/archive-name.ts';
import { openBackupTarget } from '../backup/target/open-target.ts';
import type { Target } from '../backup/target/target.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';
import type { ControlSource } from './control-source.ts';

/** What opens the archives of the control database. */
export interface ControlAccess {
  readonly target: Target;
  readonly keys: OpenKeys;
}

/**
 * Opens the target of a lost control database. Nothing of that database is needed: its name,
 * the master key and an identity open its archives.
 * @param withoutMac true: also archives of which nobody knows who has written them
 * @throws {OperatorError} when there is no target, or this host opens no archive
 */
export async function openControlAccess(secrets: SecretBox, withoutMac: boolean): Promise<ControlAccess> {
  const target = await openBackupTarget();
  await target.check();
  const identities = await readIdentities(readConfig().backup.identityFile);

  return { target, keys: { identities, macKeys: withoutMac ? undefined : controlMacKeys(secrets) } };
}

/** An archive of the control database that cannot be used, and why. */
interface RefusedArchive {
  readonly name: string;
  readonly reason: string;
}

/**
 * The newest archive of the control database that can be used, and the newer ones that cannot.
 */
export interface NewestControl {
  readonly newest: (OpenedArchive & ArchiveName) | undefined;
  readonly refused: readonly RefusedArchive[];
}

/** Finds the newest archive that opens, that is whole, and that this master key has signed. */
export async function findNewestControl({ target, keys }: ControlAccess): Promise<NewestControl> {
  const refused: RefusedArchive[] = [];

  for (const archive of await listControlArchives(target)) {
    try {
      const opened = await openArchive(target, archive, { ...keys, installation: archive.installation });
      return { newest: { ...archive, ...opened }, refused };
    } catch (error) {
      if (!(error instanceof ArchiveFault)) throw error;
      refused.push({ name: archive.name, reason: error.message });
    }
  }

  return { newest: undefined, refused };
}

/**
 * Opens an archive of the control database by a part of its name.
 * @throws {OperatorError} when there is none, or it cannot be used
 */
export async function openNamedControl(
  { target, keys }: ControlAccess,
  wanted: string,
): Promise<OpenedArchive & ArchiveName> {
  const archives = await listControlArchives(target);
  const [archive, ...others] = archives.filter(({ name }) => name.includes(wanted));
  if (!archive) throw new OperatorError(`${target.description} has no archive ${wanted} of a control database`);
  if (others.length > 0)
    throw new OperatorError(`Several archives have ${wanted} in their names: give more of one`, { usage: true });

  try {
    return { ...archive, ...(await openArchive(target, archive, { ...keys, installation: archive.installation })) };
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    throw new OperatorError(
      `The archive ${archive.name} cannot be restored: ${error.message}. Name another one: --archive`,
      { cause: error },
    );
  }
}

/** Returns the control database as an archive has it. */
export function archivedControl(archive: OpenedArchive & ArchiveName): ControlSource {
  return {
    description: archive.name,
    at: archive.time,
    load: async url => {
      await createControlSchema(url, archive.manifest.schemaVersion);
      await withConnection(url, client => loadArchive(client, archive), { settings: canonicalTextSettings });
    },
  };
}

/**
 * Brings an empty control database to an earlier version.
 * @throws {OperatorError} when this build does not know it
 */
export async function createControlSchema(controlUrl: string, version: string): Promise<void> {
  const migrations = await loadMigrations('control');
  const last = migrations.findIndex(({ name }) => name === version);
  if (last < 0)
    throw new OperatorError(
      `The data is of version ${version}, which this build (${await controlHead()}) does not know: use the newer build`,
    );

  await runMigrations(controlUrl, migrations.slice(0, last + 1));
}

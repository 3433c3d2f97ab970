import type { ConfigAccess, KeyAccess } from '../../control/installation.ts';
import { LaterBuildError } from '../../control/later-build.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../lib/postgres/migration-steps.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { ArchiveFault } from '../backup/archive/archive-fault.ts';
import { controlMacKeys } from '../backup/archive/archive-keys.ts';
import { readIdentities } from '../backup/archive/identities.ts';
import type { OpenKeys } from '../backup/archive/open-archive.ts';
import { restoreList } from '../backup/archive-rows.ts';
import { type ControlArchive, listControlArchives } from '../backup/lost-control.ts';
import { loadArchive, type OpenedArchive, openArchive } from '../backup/restore/archived-data.ts';
import type { OpeningOptions } from '../backup/restore/lost-archives.ts';
import { type ArchiveName, parseArchiveName } from '../backup/target/archive-name.ts';
import { openBackupTarget } from '../backup/target/open-target.ts';
import type { StoredObject, Target } from '../backup/target/target.ts';
import { countText } from '../command/texts.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';
import type { ControlSource } from './control-source.ts';

/** The target and the keys that open the archives of the control database. */
export interface ControlAccess {
  readonly target: Target;
  readonly keys: OpenKeys;
  /** The largest tar that is read: the list of archives is lost with the control database. */
  readonly maxBytes: number | undefined;
}

/**
 * Opens the target of a lost control database. Nothing of that database is needed: its name,
 * the master key and an identity open its archives.
 * @throws {OperatorError} when there is no target, or this host opens no archive
 */
export async function openControlAccess(
  { secrets, config }: KeyAccess & ConfigAccess,
  { withoutMac, maxBytes }: OpeningOptions,
): Promise<ControlAccess> {
  const target = await openBackupTarget({ config });
  await target.check();
  const identities = await readIdentities(config.backup.identityFile);

  return {
    target,
    maxBytes,
    keys: { identities, macKeys: withoutMac ? undefined : controlMacKeys(secrets) },
  };
}

/** An archive of the control database that cannot be used, with the reason. */
interface RefusedArchive {
  readonly name: string;
  readonly reason: string;
}

/**
 * The newest archive of the control database that can be used, and the newer ones that cannot.
 */
export interface NewestControl {
  readonly newest: (OpenedArchive & ControlArchive) | undefined;
  readonly refused: readonly RefusedArchive[];
}

/** Returns the archives of the control database of an installation, the newest first. */
export async function listControlOf(
  { target }: ControlAccess,
  installation: string,
): Promise<ControlArchive[]> {
  const archives = await listControlArchives(target);

  return archives.filter(each => each.installation === installation);
}

/**
 * Finds the newest archive of an installation that opens, that is whole, and that this master
 * key has signed.
 */
export async function findNewestControl(
  access: ControlAccess,
  installation: string,
): Promise<NewestControl> {
  const { target, keys, maxBytes } = access;
  const refused: RefusedArchive[] = [];

  for (const archive of await listControlOf(access, installation)) {
    try {
      const opened = await openArchive(target, archive, { ...keys, installation }, maxBytes);
      return { newest: { ...archive, ...opened }, refused };
    } catch (error) {
      if (!(error instanceof ArchiveFault)) throw error;
      refused.push({ name: archive.name, reason: error.message });
    }
  }

  return { newest: undefined, refused };
}

/**
 * Finds an archive of the control database by a part of its name.
 * @throws {OperatorError} when there is none, or several
 */
export async function findNamedControl(
  { target }: ControlAccess,
  wanted: string,
): Promise<ControlArchive> {
  const archives = await listControlArchives(target);
  const [archive, ...others] = archives.filter(({ name }) => name.includes(wanted));
  if (!archive) {
    throw new OperatorError(`${target.description} has no archive ${wanted} of a control database`);
  }
  if (others.length > 0) {
    throw new OperatorError(`Several archives have ${wanted} in their names: give more of one`, {
      usage: true,
    });
  }

  return archive;
}

/**
 * Returns the installation whose control database is restored.
 * @param wanted the begin of its id; undefined: there is only one
 * @throws {OperatorError} when the target has archives of no such installation, or of several:
 *   of two that share a target and a master key, only a person knows which one was lost
 */
export async function chooseInstallation(
  { target }: ControlAccess,
  wanted: string | undefined,
): Promise<string> {
  const archives = await listControlArchives(target);
  const byInstallation = Map.groupBy(archives, ({ installation }) => installation);
  const [found, ...others] = [...byInstallation.keys()].filter(id => id.startsWith(wanted ?? ''));
  if (found !== undefined && others.length === 0) return found;

  if (archives.length === 0) {
    throw new OperatorError(
      `${target.description} has no archive of a control database: it is not mounted, or not the BACKUP_TARGET of the ` +
        'installation',
    );
  }

  const choices = [...byInstallation].map(
    ([id, [newest, ...older]]) =>
      `--installation ${id} (${countText(older.length + 1, 'archive')}, the newest of ${newest?.time.toISOString()})`,
  );
  const which =
    found === undefined ? `none of an installation ${wanted}` : 'those of several installations';
  throw new OperatorError(
    `Of control databases, ${target.description} has ${which}. Name the one that is restored: ${choices.join(' or ')}`,
    { usage: true },
  );
}

/**
 * Opens an archive of the control database.
 * @throws {OperatorError} when it cannot be used
 */
export async function openNamedControl(
  { target, keys, maxBytes }: ControlAccess,
  archive: ControlArchive,
): Promise<OpenedArchive & ControlArchive> {
  const { installation } = archive;

  try {
    return {
      ...archive,
      ...(await openArchive(target, archive, { ...keys, installation }, maxBytes)),
    };
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    throw new OperatorError(
      `The archive ${archive.name} cannot be restored: ${error.message}. Name another one: --archive`,
      { cause: error },
    );
  }
}

/** Returns the control database as an archive has it. */
export function archivedControl(archive: OpenedArchive & ControlArchive): ControlSource {
  return {
    description: archive.name,
    at: archive.time,
    load: async url => {
      await createControlSchema(url, archive.manifest.schemaVersion);
      await withConnection(url, client => loadArchive(client, archive), {
        settings: canonicalTextSettings,
      });
    },
  };
}

/**
 * Returns the work that brings the list of archives of a restored control database up to date
 * with the target.
 * @param at the time of the restored state
 * @param archive that was restored; undefined: another source was
 */
export function listRestorer(
  { target, keys }: ControlAccess,
  installation: string,
  at: Date,
  archive: (OpenedArchive & ControlArchive) | undefined,
): (control: Queryable) => Promise<void> {
  const proved = keys.macKeys === undefined ? undefined : archive;

  return async control => {
    const objects: (ArchiveName & StoredObject)[] = [];
    for await (const object of target.list(`${installation}/`)) {
      const parsed = parseArchiveName(object.name);
      if (parsed) objects.push({ ...object, ...parsed });
    }

    await restoreList(control, target, { archive: proved, at, objects });
  };
}

/**
 * Brings an empty control database to an earlier version.
 * @throws {LaterBuildError} when this build does not know it
 */
export async function createControlSchema(controlUrl: string, version: string): Promise<void> {
  const migrations = await loadMigrations('control');
  const last = migrations.findIndex(({ name }) => name === version);
  if (last < 0) {
    throw new LaterBuildError('The data', version);
  }

  await runMigrations(controlUrl, migrations.slice(0, last + 1));
}

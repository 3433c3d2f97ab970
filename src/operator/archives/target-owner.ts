import { z } from 'zod';
import { OperatorError } from '../../log/operator-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { controlArchiveId, parseArchiveName } from './archive-name.ts';
import { readJson, writeJson } from './target-files.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/*
 * A target belongs to one installation, and to one control database of it:
 *
 *   O1 (marker) `target.json` has the id of the installation. `backup init` makes it, in a target that has no archive
 *      of another installation, and so does a restore of the control database. A folder that is not mounted has none.
 *   O2 (one control database) Every archive of a control database in the target is in the ledger of the one that
 *      writes. Each run ends with such an archive. So a copy of the control database is refused as soon as the other
 *      one has run.
 */

const markerFile = 'target.json';
const markerContract = z.object({
  format: z.literal(1),
  installation: z.uuid(),
  createdAt: z.iso.datetime(),
});

/** What a target says of its owner: the id of the installation. */
type TargetMarker = z.output<typeof markerContract>;

/** @returns undefined when nobody has initialized the target @throws {OperatorError} when its marker was changed */
async function readMarker(target: BackupTarget): Promise<TargetMarker | undefined> {
  const document = await readJson(target, markerFile);
  if (document === undefined) return undefined;
  const parsed = markerContract.safeParse(document);
  if (!parsed.success) throw new OperatorError(`The file ${markerFile} of ${target.description} was changed`);
  return parsed.data;
}

/** The files of a target, with their sizes in bytes. */
export type TargetFiles = ReadonlyMap<string, number>;

/**
 * Checks, before anything is written or removed, that the target belongs to this installation and to this control
 * database.
 * @throws {OperatorError} when it belongs to another one, or to nobody
 */
export async function requireOwner(control: Queryable, target: BackupTarget): Promise<TargetFiles> {
  await target.check();
  const marker = await readMarker(target);
  if (!marker)
    throw new OperatorError(
      `${target.description} is no backup target yet, or is not mounted: it has no file ${markerFile}. ` +
        'If it is the right place, and new: bin/backoffice backup init',
    );
  await requireOwnMarker(control, target, marker);
  return requireOnlyWriter(control, target);
}

async function requireOwnMarker(control: Queryable, target: BackupTarget, { installation }: TargetMarker) {
  if (installation !== (await readInstallationId(control))) throw await foreignTarget(control, target, installation);
}

/** Returns whether a target has the marker of another installation than that of a control database. */
export async function isForeign(control: Queryable, target: BackupTarget): Promise<boolean> {
  const marker = await readMarker(target);
  return marker !== undefined && marker.installation !== (await readInstallationId(control));
}

/** @param installation undefined: not known, as the target has no marker */
async function foreignTarget(control: Queryable, target: BackupTarget, installation?: string): Promise<OperatorError> {
  const owner = installation ? `installation ${installation}` : 'another installation';
  const hasTenants = (await control.query('select from tenants limit 1')).rowCount === 1;
  const lost = hasTenants
    ? ''
    : ' If the control database of that one is lost, restore it: bin/backoffice control restore.';
  return new OperatorError(
    `${target.description} has the archives of ${owner}, and this is another one.${lost} ` +
      'Each installation needs a BACKUP_TARGET of its own',
  );
}

/**
 * Checks that no other control database writes to the target (O2), and lists its files.
 * @throws {OperatorError} when it has archives of another control database of this installation
 */
async function requireOnlyWriter(control: Queryable, target: BackupTarget): Promise<TargetFiles> {
  let unknown: string | undefined;
  // Twice, because a run of this control database may have removed the file since the list was read.
  for (let attempt = 0; attempt < 2; attempt++) {
    const files = await listFiles(target);
    [unknown] = await unknownControlArchives(control, files.keys());
    if (unknown === undefined) return files;
  }
  throw new OperatorError(
    `Another control database of this installation writes to ${target.description}: this one does not know ` +
      `${unknown}. One of them is a copy, and needs a BACKUP_TARGET of its own. If this is the right one, ` +
      'stop the other, and take the target over: bin/backoffice backup init',
  );
}

/**
 * Makes the target one of this installation, unless it is. Its own archives of control databases that it does not know
 * are left for the caller to record.
 * @param isLost true: the archives that the ledger has in this target are lost, and it begins anew
 * @param isDryRun true to return the result, and to write nothing
 * @returns true when it was not one before
 * @throws {OperatorError} when it has archives of another installation, or none of those in the ledger
 */
export async function initTarget(
  control: Queryable,
  target: BackupTarget,
  isLost: boolean,
  isDryRun: boolean,
): Promise<boolean> {
  await target.check();
  const marker = await readMarker(target);
  if (marker) {
    await requireOwnMarker(control, target, marker);
    return false;
  }
  const files = [...(await listFiles(target)).keys()];
  if (!isLost) await requireNotMissing(control, target, files);
  const guids = new Set(files.flatMap(name => parseArchiveName(name)?.tenant ?? []));
  const known = await knownTenants(control, [...guids]);
  const isOwn = guids.size === 0 ? (await unknownControlArchives(control, files)).length === 0 : known === guids.size;
  if (!isOwn) throw await foreignTarget(control, target);
  if (!isDryRun) await writeMarker(control, target);
  return true;
}

/** Writes the marker of a target that has none and is known to be one of this installation. */
export async function writeMarker(control: Queryable, target: BackupTarget): Promise<void> {
  if (await readMarker(target)) return;
  const installation = await readInstallationId(control);
  await writeJson(target, markerFile, { format: 1, installation, createdAt: new Date().toISOString() });
}

async function requireNotMissing(control: Queryable, target: BackupTarget, files: readonly string[]): Promise<void> {
  const { rows } = await control.query<{ known: number; found: number }>(
    `select count(*)::int as known, count(*) filter (where file = any ($2::text[]))::int as found
       from archives where target = $1 and state = 'complete'`,
    [target.description, files],
  );
  const { known, found } = rows[0] ?? { known: 0, found: 0 };
  if (known > 0 && found === 0)
    throw new OperatorError(
      `${target.description} has none of the ${known} archives that were written there: mount it. ` +
        'If they are lost, begin anew: bin/backoffice backup init --lost',
    );
}

/** Returns the archives of control databases in a target that this one does not know, by their ids. */
export async function unknownControlArchives(control: Queryable, names: Iterable<string>): Promise<string[]> {
  const files = new Map<string, string>();
  for (const name of names) {
    const id = controlArchiveId(name);
    if (id !== undefined) files.set(id, name);
  }
  const { rows } = await control.query<{ id: string }>(
    'select id from unnest($1::uuid[]) as found (id) where not exists (select from archives a where a.id = found.id)',
    [[...files.keys()]],
  );
  return rows.flatMap(({ id }) => files.get(id) ?? []);
}

/** Returns all files of a target. */
export async function listFiles(target: BackupTarget): Promise<TargetFiles> {
  return new Map(await Array.fromAsync(target.list(''), ({ name, bytes }): [string, number] => [name, bytes]));
}

async function readInstallationId(control: Queryable): Promise<string> {
  const { rows } = await control.query<{ id: string }>('select id from installation');
  return rows[0]?.id ?? '';
}

/** @returns how many of the tenants this control database has, had, or has archives of */
async function knownTenants(control: Queryable, guids: readonly string[]): Promise<number> {
  const { rows } = await control.query<{ known: number }>(
    `select count(*)::int as known from unnest($1::uuid[]) as found (guid)
      where exists (select from tenants t where t.guid = found.guid)
         or exists (select from purged_tenants p where p.guid = found.guid)
         or exists (select from archives a where a.tenant_guid = found.guid)`,
    [guids],
  );
  return rows[0]?.known ?? 0;
}

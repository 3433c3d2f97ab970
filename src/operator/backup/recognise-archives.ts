import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { type FleetObservers, measure, runFleet } from '../command/run-fleet.ts';
import { ArchiveFault } from './archive/archive-fault.ts';
import { controlMacKeys } from './archive/archive-keys.ts';
import { type ArchiveList, readArchiveList, settleListing } from './archive-list.ts';
import { recogniseArchive, recordProof } from './archive-rows.ts';
import { withBackupLock } from './backup-lock.ts';
import { openArchive } from './restore/archived-data.ts';
import type { StoredArchive } from './restore/find-archive.ts';
import { readTenantKeys } from './restore/open-keys.ts';
import { parseArchiveName } from './target/archive-name.ts';
import type { Target } from './target/target.ts';
import { requireWriter } from './writer.ts';

/** The result for one object that did not count as an archive. */
export interface RecognisedObject {
  /** The slug; null: the control database, or a tenant that nobody here knows. */
  slug: string | null;
  archive: string;
  state: 'recognised' | 'failed';
  bytes: number;
  ms: number;
  error: string | null;
}

interface RecognisedScope {
  /** The guid of a tenant; undefined: all objects of the installation. */
  readonly tenant: string | undefined;
  /** The largest tar that is read; undefined: the bound by the size of the object. */
  readonly maxBytes: number | undefined;
}

/**
 * Opens the objects that have the name of an archive and no complete row, checks the code of
 * each, and makes its row.
 * @throws {OperatorError} when this host opens no archive, a run is in progress, or another
 *   control database writes to the target
 */
export async function recogniseArchives(
  installation: Installation,
  target: Target,
  { tenant, maxBytes }: RecognisedScope,
  observers: FleetObservers<RecognisedObject>,
): Promise<RecognisedObject[]> {
  const keys = await readTenantKeys(installation);
  const controlKeys = { ...keys, macKeys: controlMacKeys(installation.secrets) };

  return withBackupLock(installation.controlUrl, 'archives', async control => {
    const list = await readArchiveList(control, target, await requireWriter(control, target));
    await settleListing(control, target, list);
    const slugs = await readSlugs(control);

    return runFleet(objectsToOpen(list, tenant), 1, observers, async object => {
      const { name, size, row } = object;
      const { ms, error } = await measure(async () => {
        if (observers.signal?.aborted) throw new OperatorError('the command was ended before it');
        const used = object.tenant === null ? controlKeys : keys;
        try {
          const opened = await openArchive(target, object, used, maxBytes);
          await recogniseArchive(control, target, object, opened);
        } catch (error) {
          if (row && error instanceof ArchiveFault && error.isOfArchive) {
            await recordProof(control, target, name, error.message, 'checked');
          }
          throw error;
        }
      });

      return {
        slug: slugs.get(object.tenant) ?? null,
        archive: name,
        state: error === null ? 'recognised' : 'failed',
        bytes: size,
        ms,
        error,
      };
    });
  });
}

/** Returns the names of the objects that `recogniseArchives` would open. */
export async function planRecognition(
  { controlUrl }: Pick<Installation, 'controlUrl'>,
  target: Target,
  tenant: string | undefined,
): Promise<string[]> {
  return withConnection(controlUrl, async control => {
    const list = await readArchiveList(control, target, await requireWriter(control, target));

    return objectsToOpen(list, tenant).map(({ name }) => name);
  });
}

/** Returns the objects that may be archives and do not count. */
function objectsToOpen(list: ArchiveList, tenant: string | undefined): StoredArchive[] {
  const strays = list.strays.flatMap((object): StoredArchive[] => {
    const archive = parseArchiveName(object.name);
    return archive ? [{ ...object, ...archive, row: undefined }] : [];
  });
  const doubted = list.rows.flatMap((row): StoredArchive[] => {
    const object = list.objectOf(row);
    const { state, name, time, recipients } = row;
    if (!object || (state !== 'unproved' && state !== 'writing')) return [];

    return [{ ...object, name, tenant: row.tenant, time, recipients, row }];
  });

  return [...strays, ...doubted].filter(each => tenant === undefined || each.tenant === tenant);
}

async function readSlugs(control: Queryable): Promise<Map<string | null, string>> {
  const { rows } = await control.query<{ guid: string; slug: string }>(
    'select guid, slug from tenants',
  );

  return new Map(rows.map(({ guid, slug }) => [guid, slug]));
}

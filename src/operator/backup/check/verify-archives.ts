import type { Installation } from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { type Queryable, shareConnection } from '../../../lib/postgres/shared-connection.ts';
import { type FleetObservers, runFleet } from '../../command/run-fleet.ts';
import { type ArchiveList, differenceOf, readArchiveList } from '../archive-list.ts';
import { type ArchiveRow, readArchiveRowsOf, recordProof } from '../archive-rows.ts';
import { DamagedObjectError, MissingObjectError, type Target } from '../target/target.ts';
import { requireWriter } from '../writer.ts';
import { findChangedBytes } from './changed-bytes.ts';

/** The result of a check of one archive. */
export interface ArchiveCheck {
  archive: string;
  /** The guid of the tenant; null: the control database. */
  tenant: string | null;
  slug: string | null;
  bytes: number;
  /** The kind of the fault; null: none was found, or the archive was removed meanwhile. */
  fault: 'lost' | 'missing' | 'changed' | 'unreadable' | null;
  /** The fault, as the end of a sentence that begins with the archive. */
  message: string | null;
}

const concurrentReads = 4;

/**
 * Compares archives with their rows, without opening them: the target must list each in its
 * size, and return the bytes that were written, by their SHA-256. This proves neither that they
 * can be restored, nor that the rows are right. Records its findings.
 */
export async function compareArchives(
  installation: Installation,
  target: Target,
  tenant: string | undefined,
  observers: FleetObservers<ArchiveCheck>,
): Promise<ArchiveCheck[]> {
  return withList(installation, target, tenant, async (control, archives, slugs, list) =>
    runFleet(archives, concurrentReads, observers, async archive => {
      const { kind, message } = await compare(target, archive, list);
      const isAbsent = kind === 'lost' || kind === 'missing';
      if (isAbsent && (await isRemoved(control, target, archive))) {
        return removedCheck(archive, slugs);
      }
      if (!isAbsent && kind !== 'unreadable') {
        await recordProof(control, target, archive.name, message, 'checked');
      }

      return checkOf(archive, slugs, kind, message);
    }),
  );
}

type Comparison = {
  readonly kind: ArchiveCheck['fault'];
  readonly message: string | null;
};

async function compare(
  target: Target,
  archive: ArchiveRow,
  list: ArchiveList,
): Promise<Comparison> {
  const object = list.objectOf(archive);
  const difference = differenceOf(archive, object);
  if (difference !== undefined) {
    return { kind: object ? 'changed' : 'lost', message: difference };
  }

  try {
    const message = await findChangedBytes(target, archive);

    return message === undefined ? { kind: null, message: null } : { kind: 'changed', message };
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof DamagedObjectError) return { kind: 'changed', message };

    return { kind: error instanceof MissingObjectError ? 'missing' : 'unreadable', message };
  }
}

/** True if a run at the same time has begun to remove an archive. */
async function isRemoved(
  control: Queryable,
  target: Target,
  { name, tenant }: ArchiveRow,
): Promise<boolean> {
  const rows = await readArchiveRowsOf(control, target, [tenant]);

  return rows.every(row => row.name !== name || row.state !== 'complete');
}

function removedCheck(archive: ArchiveRow, slugs: ReadonlyMap<string, string>): ArchiveCheck {
  return { ...checkOf(archive, slugs, null, 'it was removed meanwhile'), bytes: 0 };
}

/** Runs `work` on the complete archives, and on the slugs of tenants by their guids. */
async function withList<T>(
  { controlUrl }: Installation,
  target: Target,
  tenant: string | undefined,
  work: (
    control: Queryable,
    archives: ArchiveRow[],
    slugs: ReadonlyMap<string, string>,
    list: ArchiveList,
  ) => Promise<T>,
): Promise<T> {
  return withConnection(controlUrl, async client => {
    const control = shareConnection(client);
    const list = await readArchiveList(control, target, await requireWriter(control, target));
    const { rows } = await control.query<{ guid: string; slug: string }>(
      'select guid, slug from tenants',
    );
    const slugs = new Map(rows.map(({ guid, slug }) => [guid, slug]));

    return work(control, tenant === undefined ? list.complete() : list.of(tenant), slugs, list);
  });
}

function checkOf(
  { name, tenant, bytes }: ArchiveRow,
  slugs: ReadonlyMap<string, string>,
  fault: ArchiveCheck['fault'],
  message: string | null,
): ArchiveCheck {
  return {
    archive: name,
    tenant,
    slug: tenant === null ? null : (slugs.get(tenant) ?? null),
    bytes: bytes?.size ?? 0,
    fault,
    message,
  };
}

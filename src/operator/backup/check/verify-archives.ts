import type { Installation } from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import { type FleetObservers, runFleet } from '../../command/run-fleet.ts';
import { readListing, type StoredArchive } from '../listing.ts';
import { listArchivesOf } from '../restore/find-archive.ts';
import { MissingObjectError, type Target } from '../target/target.ts';
import { requireWriter } from '../writer.ts';

/** The result of a check of one archive. */
export interface ArchiveCheck {
  archive: string;
  /** The guid of the tenant; null: the control database. */
  tenant: string | null;
  slug: string | null;
  bytes: number;
  /** The kind of the fault; null: none was found, or the archive was removed meanwhile. */
  fault: 'lost' | 'missing' | 'size' | 'unreadable' | null;
  /** The fault, as the end of a sentence that begins with the archive. */
  message: string | null;
}

const concurrentReads = 4;

/**
 * Compares archives with the facts of the control database and of the store, without opening
 * them. The last archive of each tenant must be listed, in the size in which it was written.
 * The store must return as many bytes as it lists, with the checksum that it keeps, where it
 * keeps one. This proves neither the contents of the archives nor their writer.
 */
export async function compareArchives(
  installation: Installation,
  target: Target,
  tenant: string | undefined,
  observers: FleetObservers<ArchiveCheck>,
): Promise<ArchiveCheck[]> {
  return withListing(installation, target, tenant, async (control, archives, slugs) => {
    const lost = await findLost(control, archives, tenant);
    const listed = await runFleet(archives, concurrentReads, observers, async archive => {
      const check = await compare(target, archive, slugs);
      const isGone = check.fault === 'missing' && (await isRemoved(control, target, archive));
      return isGone ? removedCheck(archive, slugs) : check;
    });

    for (const check of lost) {
      observers.onOutcome?.(check);
    }
    return [...lost, ...listed];
  });
}

async function compare(target: Target, archive: StoredArchive, slugs: ReadonlyMap<string, string>) {
  try {
    let bytes = 0;
    for await (const chunk of await target.read(archive.name)) {
      bytes += chunk.length;
    }
    if (bytes === archive.size) return checkOf(archive, slugs, null, null);

    return checkOf(
      archive,
      slugs,
      'size',
      `it has ${bytes} bytes, and the target lists ${archive.size}`,
    );
  } catch (error) {
    const kind = error instanceof MissingObjectError ? 'missing' : 'unreadable';
    return checkOf(archive, slugs, kind, (error as Error).message);
  }
}

/**
 * True if an archive was removed since it was listed, by a run at the same time: the target
 * does not list it any more, and it is not the last archive of a tenant.
 */
async function isRemoved(
  control: Queryable,
  target: Target,
  { name, installation, tenant }: StoredArchive,
): Promise<boolean> {
  const { rowCount } = await control.query(
    `select from tenant_databases where archive = $1 and state = 'current'`,
    [name],
  );
  if (rowCount !== 0) return false;

  const listed = await listArchivesOf(target, installation, tenant);
  return listed.every(archive => archive.name !== name);
}

function removedCheck(archive: StoredArchive, slugs: ReadonlyMap<string, string>): ArchiveCheck {
  return { ...checkOf(archive, slugs, null, 'it was removed meanwhile'), bytes: 0 };
}

/**
 * Returns the last archives of tenants that the target does not list, or lists in another size.
 */
async function findLost(
  control: Queryable,
  archives: readonly StoredArchive[],
  tenant: string | undefined,
): Promise<ArchiveCheck[]> {
  const { rows } = await control.query<{
    guid: string;
    slug: string;
    archive: string;
    bytes: number;
  }>(
    `select t.guid, t.slug, archive, archive_bytes::float8 as bytes
       from tenants t join tenant_databases d on d.tenant_id = t.id and d.state = 'current'
      where archive is not null and ($1::uuid is null or t.guid = $1) order by slug`,
    [tenant],
  );
  const sizes = new Map(archives.map(({ name, size }) => [name, size]));

  return rows.flatMap(({ guid, slug, archive, bytes }) => {
    const size = sizes.get(archive);
    if (size === bytes) return [];

    const message =
      size === undefined
        ? 'the target does not list it'
        : `it has ${size} bytes instead of ${bytes}`;
    return [
      { archive, tenant: guid, slug, bytes, fault: size === undefined ? 'lost' : 'size', message },
    ];
  });
}

async function withListing<T>(
  { controlUrl }: Installation,
  target: Target,
  tenant: string | undefined,
  work: (
    control: Queryable,
    archives: StoredArchive[],
    slugs: ReadonlyMap<string, string>,
  ) => Promise<T>,
): Promise<T> {
  return withConnection(controlUrl, async control => {
    const listing = await readListing(control, target, await requireWriter(control, target));
    const { rows } = await control.query<{ guid: string; slug: string }>(
      'select guid, slug from tenants',
    );
    const slugs = new Map(rows.map(({ guid, slug }) => [guid, slug]));

    return work(control, tenant === undefined ? listing.all() : listing.of(tenant), slugs);
  });
}

function checkOf(
  { name, tenant, size }: StoredArchive,
  slugs: ReadonlyMap<string, string>,
  fault: ArchiveCheck['fault'],
  message: string | null,
): ArchiveCheck {
  return {
    archive: name,
    tenant,
    slug: tenant === null ? null : (slugs.get(tenant) ?? null),
    bytes: size,
    fault,
    message,
  };
}

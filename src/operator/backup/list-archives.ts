import type { ControlAddress } from '../../control/installation.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { ArchiveFault } from './archive/archive-fault.ts';
import { readHeader } from './archive/open-archive.ts';
import { type ArchiveList, compareNewestFirst, readArchiveList } from './archive-list.ts';
import type { ArchiveState } from './archive-rows.ts';
import type { StoredArchive } from './restore/find-archive.ts';
import { fingerprintRecipients, parseArchiveName } from './target/archive-name.ts';
import { MissingObjectError, type Target } from './target/target.ts';

/** An archive as the command line shows it. Times are in ISO 8601. */
export interface ArchiveSummary {
  name: string;
  /** The slug; null: the control database. */
  slug: string | null;
  /** The guid of the tenant; null: the control database. */
  tenant: string | null;
  /**
   * `known`: the archive is of a tenant of this control database, or of the control database
   * itself.
   */
  owner: 'known' | 'purged' | 'unknown';
  /**
   * The state of its row. Only complete archives count. `missing`: the target does not list a
   * complete one as it was written; `unrecorded`: it has no row.
   */
  state: ArchiveState | 'missing' | 'unrecorded';
  time: string;
  size: number;
  /** The fingerprint of the recipients for whom the archive is sealed. */
  recipients: string;
  /** True if the recipients are those of this host (`BACKUP_RECIPIENTS`). */
  isForPresentRecipients: boolean;
  /**
   * True if the identity of this host opens the archive; null: the host has none, or the
   * archive could not be read.
   */
  isOpened: boolean | null;
  provedAt: string | null;
  /** The fault that a drill or a verification found; null: none is known. */
  fault: string | null;
}

interface Owner {
  readonly guid: string;
  readonly slug: string;
  readonly isPurged: boolean;
}

/**
 * Returns the archives of this installation that have a row, and the objects of the target that
 * have the name of an archive, the newest first.
 * @param guid only those of this tenant; undefined: all, those of the control database included
 * @param identities of age that this host has
 */
export async function listArchives(
  { controlUrl }: ControlAddress,
  target: Target,
  guid: string | undefined,
  recipients: readonly string[],
  identities: readonly string[] = [],
): Promise<ArchiveSummary[]> {
  return withConnection(controlUrl, async control => {
    await target.check();
    const list = await readArchiveList(control, target, await readInstallationId(control));
    const owners = await readOwners(control);
    const present = fingerprintRecipients(recipients);
    const missing = new Set(list.missing().map(({ row }) => row.name));
    const listed = listedArchives(list).filter(
      ({ tenant }) => guid === undefined || tenant === guid,
    );
    const opened = await tryIdentities(target, listed, identities);

    return listed.map(archive => {
      const { name, tenant, time, size, row } = archive;
      const owner = tenant === null ? undefined : owners.get(tenant);

      return {
        name,
        slug: owner?.slug ?? null,
        tenant,
        owner:
          tenant === null || owner?.isPurged === false ? 'known' : owner ? 'purged' : 'unknown',
        state: missing.has(name) ? 'missing' : (row?.state ?? 'unrecorded'),
        time: time.toISOString(),
        size,
        recipients: archive.recipients,
        isForPresentRecipients: archive.recipients === present,
        isOpened: opened.get(archive.recipients) ?? null,
        provedAt: row?.provedAt?.toISOString() ?? null,
        fault: row?.fault ?? null,
      };
    });
  });
}

function listedArchives(list: ArchiveList): StoredArchive[] {
  const rows = list.rows.flatMap((row): StoredArchive[] => {
    const object = list.objectOf(row);
    if (!object && row.state !== 'complete') return [];

    const { name, tenant, time, recipients } = row;
    const size = object?.size ?? row.bytes?.size ?? 0;
    return [{ name, tenant, time, recipients, row, size, modifiedAt: object?.modifiedAt ?? time }];
  });
  const strays = list.strays.flatMap((object): StoredArchive[] => {
    const archive = parseArchiveName(object.name);
    return archive ? [{ ...object, ...archive, row: undefined }] : [];
  });

  return [...rows, ...strays].sort(compareNewestFirst);
}

/**
 * Returns whether the identities open archives, by the fingerprint of the recipients of an
 * archive. Reads the beginning of one archive of each fingerprint. A fingerprint whose archive
 * cannot be read is left out.
 */
async function tryIdentities(
  target: Target,
  archives: readonly StoredArchive[],
  identities: readonly string[],
): Promise<Map<string, boolean>> {
  const opened = new Map<string, boolean>();
  if (identities.length === 0) return opened;

  for (const [recipients, [archive]] of Map.groupBy(
    archives.filter(({ row }) => row),
    each => each.recipients,
  )) {
    if (!archive) continue;
    try {
      const body = await target.read(archive.name);
      await readHeader(body, identities).finally(() => body.destroy());
      opened.set(recipients, true);
    } catch (error) {
      // A run has removed the archive meanwhile.
      if (error instanceof MissingObjectError) continue;
      if (!(error instanceof ArchiveFault)) throw error;
      if (error.kind === 'sealed') opened.set(recipients, false);
    }
  }

  return opened;
}

async function readInstallationId(control: Queryable): Promise<string> {
  const { rows } = await control.query<{ id: string }>('select id from installation');

  return rows[0]?.id ?? '';
}

async function readOwners(control: Queryable): Promise<Map<string, Owner>> {
  const { rows } = await control.query<{ guid: string; slug: string; isPurged: boolean }>(
    `select guid, slug, true as "isPurged" from purged_tenants
      union all select guid, slug, false from tenants`,
  );

  return new Map(rows.map(row => [row.guid, row]));
}

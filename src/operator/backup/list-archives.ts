import type { ControlAddress } from '../../control/installation.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { ArchiveFault } from './archive/archive-fault.ts';
import { readHeader } from './archive/open-archive.ts';
import { readProofs } from './archive-rows.ts';
import { readListing, type StoredArchive } from './listing.ts';
import { fingerprintRecipients } from './target/archive-name.ts';
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
 * Returns the archives of this installation that the target lists, the newest first.
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
    const listing = await readListing(control, target, await readInstallationId(control));
    const owners = await readOwners(control);
    const proofs = await readProofs(control);
    const present = fingerprintRecipients(recipients);
    const listed = guid === undefined ? listing.all() : listing.of(guid);
    const opened = await tryIdentities(target, listed, identities);

    return listed.map(archive => {
      const { name, tenant, time, size } = archive;
      const owner = tenant === null ? undefined : owners.get(tenant);
      const proof = proofs.get(name);

      return {
        name,
        slug: owner?.slug ?? null,
        tenant,
        owner:
          tenant === null || owner?.isPurged === false ? 'known' : owner ? 'purged' : 'unknown',
        time: time.toISOString(),
        size,
        recipients: archive.recipients,
        isForPresentRecipients: archive.recipients === present,
        isOpened: opened.get(archive.recipients) ?? null,
        provedAt: proof?.provedAt?.toISOString() ?? null,
        fault: proof?.fault ?? null,
      };
    });
  });
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

  for (const [recipients, [archive]] of Map.groupBy(archives, each => each.recipients)) {
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

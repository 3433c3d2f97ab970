import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { readProofs } from './archive-rows.ts';
import { readListing } from './listing.ts';
import { fingerprintRecipients } from './target/archive-name.ts';
import type { Target } from './target/target.ts';

/** An archive as the command line shows it. Times are in ISO 8601. */
export interface ArchiveSummary {
  name: string;
  /** Null: the control database. */
  slug: string | null;
  /** The guid of the tenant; null: the control database. */
  tenant: string | null;
  /** `known`: of a tenant of this control database, or of itself. */
  owner: 'known' | 'purged' | 'unknown';
  time: string;
  size: number;
  /** The fingerprint of the recipients that it is sealed for. */
  recipients: string;
  /** True if these are the recipients of this host (`BACKUP_RECIPIENTS`). */
  isForPresentRecipients: boolean;
  provedAt: string | null;
  /** What a drill or a verification found; null: nothing is known to be wrong. */
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
 */
export async function listArchives(
  { controlUrl }: Pick<Installation, 'controlUrl'>,
  target: Target,
  guid: string | undefined,
  recipients: readonly string[],
): Promise<ArchiveSummary[]> {
  return withConnection(controlUrl, async control => {
    await target.check();
    const listing = await readListing(control, target, await readInstallationId(control));
    const owners = await readOwners(control);
    const proofs = await readProofs(control);
    const present = fingerprintRecipients(recipients);

    return (guid === undefined ? listing.all() : listing.of(guid)).map(archive => {
      const { name, tenant, time, size } = archive;
      const owner = tenant === null ? undefined : owners.get(tenant);
      const proof = proofs.get(name);

      return {
        name,
        slug: owner?.slug ?? null,
        tenant,
        owner: tenant === null || owner?.isPurged === false ? 'known' : owner ? 'purged' : 'unknown',
        time: time.toISOString(),
        size,
        recipients: archive.recipients,
        isForPresentRecipients: archive.recipients === present,
        provedAt: proof?.provedAt?.toISOString() ?? null,
        fault: proof?.fault ?? null,
      };
    });
  });
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

import { Server, type TenantStatus } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import {
  type ChangeCounters,
  isProvedUnchanged,
  readDatabaseCounters,
} from '../../lib/postgres/change-counters.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { errorText } from '../command/texts.ts';
import { requireFound } from '../registry/read-tenants.ts';
import type { ArchiveList } from './archive-list.ts';
import type { ArchiveRow } from './archive-rows.ts';

/** A tenant with its current database, which may have to be archived. */
export interface BackupCandidate {
  readonly tenantId: string;
  readonly guid: string;
  readonly slug: string;
  readonly name: string;
  /** The login role of the tenant. */
  readonly role: string;
  readonly server: string;
  readonly database: string;
  /**
   * The URL of the database, with the rights of the operator; undefined while the server cannot
   * be used.
   */
  readonly url: string | undefined;
  /** The reason why the database cannot be archived: its server cannot be used. */
  readonly fault: string | undefined;
  /** The counters, read before the next snapshot; undefined: nothing is proved. */
  readonly counters: ChangeCounters | undefined;
  /** The id of the database in `tenant_databases`, and the epoch of its last run. */
  readonly databaseId: string;
  readonly epoch: string;
}

interface CandidateRow
  extends Pick<
    BackupCandidate,
    'tenantId' | 'guid' | 'slug' | 'name' | 'role' | 'database' | 'databaseId' | 'epoch'
  > {
  readonly status: TenantStatus;
  readonly serverId: number;
}

/**
 * Returns the tenants with the counters of their databases, which are read once for each
 * server. Suspended and deleted tenants are archived too; one whose purge has begun is not.
 * @param slugs only these tenants; undefined: all
 * @throws {OperatorError} when a tenant does not exist
 */
export async function findCandidates(
  installation: Installation,
  control: Queryable,
  slugs: readonly string[] | undefined,
): Promise<BackupCandidate[]> {
  const { rows } = await control.query<{ [Field in keyof CandidateRow]: CandidateRow[Field] }>(
    `select t.id as "tenantId", guid, slug, name, status, t.server_id as "serverId",
            t.role_name as role, t.database_name as database, d.id as "databaseId", d.epoch
       from tenants t join tenant_databases d on d.tenant_id = t.id and d.state = 'current'
      where status <> 'provisioning' and purging_at is null
        and ($1::text[] is null or slug = any ($1))
      order by slug`,
    [slugs],
  );
  requireFound(slugs ?? [], rows);

  const servers = await readServers(installation, [
    ...new Set(rows.map(({ serverId }) => serverId)),
  ]);

  return rows.flatMap(({ serverId, status: _, ...row }) => {
    const server = servers.get(serverId);
    if (!server) return [];

    return [
      {
        ...row,
        server: server.name,
        url: server.url && databaseUrl(server.url, row.database),
        fault: server.fault,
        counters: server.counters.get(row.database),
      },
    ];
  });
}

interface PolledServer {
  readonly name: string;
  readonly url: string | undefined;
  readonly counters: ReadonlyMap<string, ChangeCounters>;
  readonly fault: string | undefined;
}

async function readServers(
  { control, servers }: Installation,
  ids: number[],
): Promise<Map<number, PolledServer>> {
  const { em } = await control();
  const found = await em.fork().find(Server, { id: { $in: ids } });

  const poll = async (server: Server): Promise<[number, PolledServer]> => {
    const { id, name } = server;
    try {
      const url = servers.adminUrl(server);
      return [
        id,
        { name, url, counters: await withConnection(url, readDatabaseCounters), fault: undefined },
      ];
    } catch (error) {
      const fault = `server ${name} cannot be used: ${errorText(error)}`;
      return [id, { name, url: undefined, counters: new Map(), fault }];
    }
  };

  return new Map(await Promise.all(found.map(poll)));
}

/**
 * Returns the newest archive of a tenant, if it has everything that the tenant's database has:
 * it is of this database, no run has worked on the database since, no reading has found a
 * fault, it is sealed for the present recipients, and the counters prove that nothing was
 * changed since. (After a switch back to an earlier database, the newest archive is of the
 * other one.)
 * @param recipients the fingerprint of the present recipients
 */
export function currentArchive(
  { guid, databaseId, epoch, counters }: BackupCandidate,
  list: ArchiveList,
  recipients: string,
): ArchiveRow | undefined {
  const [newest] = list.of(guid);
  if (
    newest?.databaseId !== databaseId ||
    newest.epoch !== epoch ||
    newest.fault !== null ||
    newest.recipients !== recipients
  ) {
    return undefined;
  }

  return isProvedUnchanged(newest.counters, counters) ? newest : undefined;
}

/** The present database of a tenant. */
export interface PresentTenant {
  readonly databaseId: string;
  readonly database: string;
  /** The epoch of the last run for it. */
  readonly epoch: string;
  /** The time of the control database. */
  readonly now: Date;
}

/** Returns a tenant as it is now; undefined once it is purged, or its purge has begun. */
export async function readPresentTenant(
  control: Queryable,
  tenantId: string,
): Promise<PresentTenant | undefined> {
  const { rows } = await control.query<{ [Field in keyof PresentTenant]: PresentTenant[Field] }>(
    `select d.id as "databaseId", d.database_name as database, d.epoch, clock_timestamp() as now
       from tenants t join tenant_databases d on d.tenant_id = t.id and d.state = 'current'
      where t.id = $1 and purging_at is null`,
    [tenantId],
  );

  return rows[0];
}

import { Server, type TenantStatus } from '../../control/control-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { type ChangeCounters, readDatabaseCounters } from '../../postgres/change-counters.ts';
import { withConnection } from '../../postgres/connection.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { errorText } from '../command/texts.ts';
import { identityTables } from '../schema/tenant-tables.ts';
import { requireFound } from '../tenants/read-tenants.ts';
import type { ArchiveSource } from './archive-database.ts';
import type { BackupSubject } from './backup-protocol.ts';

/** A tenant database that may have to be archived. */
export interface BackupCandidate extends BackupSubject {
  readonly tenantId: string;
  readonly slug: string;
  readonly source: ArchiveSource;
  /** Why it cannot be archived: its server cannot be used, or its database is not complete. */
  readonly fault: string | undefined;
}

interface TenantRow {
  id: string;
  guid: string;
  slug: string;
  name: string;
  status: TenantStatus;
  serverId: number;
  database: string;
  schemaFingerprint: string | null;
}

/**
 * Returns the tenants with the counters of their databases, which are read once for each server. Suspended and deleted
 * tenants are archived too.
 * @param slugs only these tenants; undefined: all
 * @throws {OperatorError} when a tenant does not exist
 */
export async function findCandidates(
  installation: Installation,
  control: Queryable,
  slugs: readonly string[] | undefined,
): Promise<BackupCandidate[]> {
  const { rows: tenants } = await control.query<{ [Field in keyof TenantRow]: TenantRow[Field] }>(
    `select id, guid, slug, name, status, server_id as "serverId", database_name as database,
            schema_fingerprint as "schemaFingerprint"
       from tenants where status <> 'provisioning' and ($1::text[] is null or slug = any ($1)) order by slug`,
    [slugs],
  );
  requireFound(slugs ?? [], tenants);
  const servers = await readServers(installation, [...new Set(tenants.map(({ serverId }) => serverId))]);
  return tenants.flatMap(({ id, guid, slug, name, serverId, database, schemaFingerprint }) => {
    const server = servers.get(serverId);
    if (!server) return [];
    const source: ArchiveSource = {
      url: databaseUrl(server.url, database),
      tenant: { guid, slug, name },
      server: server.name,
      database,
      except: identityTables,
      schemaFingerprint,
    };
    const counters = server.counters.get(database);
    return [{ tenantId: id, tenant: guid, slug, source, counters, fault: server.fault }];
  });
}

interface PolledServer {
  readonly name: string;
  readonly url: string;
  readonly counters: ReadonlyMap<string, ChangeCounters>;
  readonly fault: string | undefined;
}

async function readServers({ control, servers }: Installation, ids: number[]): Promise<Map<number, PolledServer>> {
  const found = await (await control()).em.fork().find(Server, { id: { $in: ids } });
  const poll = async (server: Server): Promise<[number, PolledServer]> => {
    const { id, name } = server;
    const url = servers.adminUrl(server);
    return withConnection(url, readDatabaseCounters).then(
      counters => [id, { name, url, counters, fault: undefined }],
      error => [id, { name, url, counters: new Map(), fault: `server ${name} cannot be used: ${errorText(error)}` }],
    );
  };
  return new Map(await Promise.all(found.map(poll)));
}

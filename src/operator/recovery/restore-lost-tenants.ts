import { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findNewestArchives } from '../backup/restore/lost-archives.ts';
import { restoreArchive } from '../backup/restore/restore-archive.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import type { Context, Plan } from '../command/operation.ts';
import { hasFailed, reportOutcomes, runFleet, timed } from '../command/run-fleet.ts';
import { tableText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import type { EarlierData } from '../databases/fill-database.ts';
import { restoreDatabase } from '../databases/restored-databases.ts';
import { findServer } from '../tenants/servers.ts';

/** The result for one tenant whose database is missing. */
export interface LostTenant {
  slug: string;
  state: 'restored' | 'failed';
  file: string | null;
  /** The time of the data, in ISO 8601. */
  snapshotAt: string | null;
  ms: number;
  error: string | null;
}

interface Options {
  concurrency: number;
  /** Only tenants of the server with this name. */
  server?: string | undefined;
}

interface Reporting extends Pick<Context, 'output' | 'progress' | 'signal' | 'trace'> {
  readonly installation: Installation;
}

/**
 * Restores every tenant, or every tenant of a server, whose database its server does not have, from the newest archive:
 * the login role, the database and the data; and prints what becomes of each. A tenant whose database exists stays as
 * it is. A tenant that fails does not stop the others; the next run takes those that are left.
 */
export async function restoreLostTenants(
  { installation, ...context }: Reporting,
  { concurrency, server }: Options,
): Promise<LostTenant[]> {
  const lost = await findLost(installation, server, text => context.output.warn(text));
  const restore = async ({ tenant, archive, ...found }: Lost): Promise<LostTenant> => {
    const { ms, error } = await timed(async () => {
      if (!archive) throw new OperatorError('it has no archive');
      return archive.restore(data => restoreDatabase(installation, tenant.slug, data, 'replace'));
    });
    return { ...found, state: error === null ? 'restored' : 'failed', ms, error };
  };
  return reportOutcomes(context, { hasFailed, text: outcomeText }, observers =>
    runFleet(lost, fleetTasks(concurrency), observers, restore),
  );
}

function outcomeText({ slug, state, snapshotAt, ms, error }: LostTenant): string {
  return state === 'restored'
    ? `${slug}: restored, its data is of ${snapshotAt} (${ms} ms)`
    : `${slug}: failed: ${error}`;
}

/** Runs `restore --lost` of every tenant, or of those of a server. @returns false when one has failed */
export async function restoreLostFleet({ server, concurrency }: Options, context: Reporting): Promise<boolean> {
  const startedAt = performance.now();
  const tenants = await restoreLostTenants(context, { concurrency, server });
  const failed = tenants.filter(hasFailed).length;
  const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
  const restored = tenants.length - failed;
  const scope = server === undefined ? '--all' : `--server ${server}`;
  context.output.part({ tenants: tenants.length, restored, failed, seconds }, () =>
    tenants.length === 0
      ? 'No database is lost.'
      : `${countText(restored, 'tenant')} restored, ${failed} failed, in ${seconds} s.` +
        (failed > 0 ? ` Run it again for those that failed: bin/backoffice restore --lost ${scope}` : ''),
  );
  return failed === 0;
}

/** Returns what `restoreLostFleet` would do, and changes nothing. */
export async function planLostFleet(installation: Installation, server: string | undefined): Promise<Plan> {
  const lost = await findLost(installation, server, () => {});
  const planned = lost.map(({ slug, snapshotAt, file }) => ({ slug, snapshotAt, file }));
  return {
    document: planned,
    text: () => tableText(planned, 'No database is lost.'),
    isLines: true,
    hasFailed: planned.some(({ file }) => file === null),
  };
}

/** An archive of a tenant. */
interface LostArchive {
  readonly file: string;
  /** The time of the data, in ISO 8601. */
  readonly snapshotAt: string;
  restore<T>(work: (data: EarlierData) => Promise<T>): Promise<T>;
}

/** A tenant whose database its server does not have, and its newest archive. */
interface Lost extends Pick<LostTenant, 'slug' | 'file' | 'snapshotAt'> {
  tenant: Tenant;
  archive: LostArchive | undefined;
}

/** Returns the tenants without a begun purge whose databases are missing, with their newest archives. */
async function findLost(
  installation: Installation,
  server: string | undefined,
  warn: (text: string) => void,
): Promise<Lost[]> {
  const { control, servers } = installation;
  const em = (await control()).em.fork();
  if (server !== undefined) await findServer(installation, server);
  const purging = await em.execute<{ id: number }[]>('select id::float8 from tenants where purging_at is not null');
  const tenants = await em.find(
    Tenant,
    {
      status: { $ne: 'provisioning' },
      id: { $nin: purging.map(({ id }) => id) },
      ...(server !== undefined && { server: { name: server } }),
    },
    { populate: ['server'], orderBy: { slug: 'asc' } },
  );
  const existing = new Map<number, Set<string> | undefined>();
  for (const server of new Set(tenants.map(tenant => tenant.server)))
    existing.set(
      server.id,
      await withConnection(servers.adminUrl(server), async client => {
        const { rows } = await client.query<{ name: string }>(
          'select datname as name from pg_database where datconnlimit <> -2',
        );
        return new Set(rows.map(({ name }) => name));
      }).catch(() => undefined),
    );
  const missing = tenants.filter(tenant => !existing.get(tenant.server.id)?.has(tenant.databaseName));
  const archives = await findArchives(installation, missing, warn);

  return missing.map(tenant => {
    const archive = archives.get(tenant.guid);
    const { file = null, snapshotAt = null } = archive ?? {};
    return { slug: tenant.slug, file, snapshotAt, tenant, archive };
  });
}

async function findArchives(
  installation: Installation,
  tenants: readonly Tenant[],
  warn: (text: string) => void,
): Promise<Map<string, LostArchive>> {
  if (tenants.length === 0) return new Map();

  const found = await findNewestArchives(installation, tenants);
  const options = { destination: '--lost', isOneOfMany: true, warn };

  return new Map(
    tenants.flatMap(tenant => {
      const each = found.get(tenant.guid);
      if (!each) return [];

      const { name: file, time } = each.archive;
      const restore: LostArchive['restore'] = work => restoreArchive(tenant, each, options, work);
      return [[tenant.guid, { file, snapshotAt: time.toISOString(), restore }] as const];
    }),
  );
}

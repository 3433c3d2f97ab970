import { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { StoredArchive } from '../backup/restore/find-archive.ts';
import { findNewestArchives, type OpeningOptions } from '../backup/restore/lost-archives.ts';
import { readTenantKeys } from '../backup/restore/open-keys.ts';
import { type FoundArchive, restoreArchive } from '../backup/restore/restore-archive.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import type { Context, Plan } from '../command/operation.ts';
import { hasFailed, measure, reportOutcomes, runFleet } from '../command/run-fleet.ts';
import { tableText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import { readLimitedUsers, withLaterEntity } from '../databases/copy/users-without-entity.ts';
import { restoreDatabase } from '../databases/verbs/restored-databases.ts';
import { findServer } from '../registry/servers.ts';

/** The result for one tenant whose database is missing. */
export interface LostTenant {
  slug: string;
  state: 'restored' | 'failed';
  /** The name of the archive; null: there is none. */
  archive: string | null;
  /** The time of the data, in ISO 8601. */
  snapshotAt: string | null;
  ms: number;
  error: string | null;
}

interface Options {
  concurrency: number;
  /** The server whose tenants are restored; undefined: all servers. */
  server?: string | undefined;
  /** True to accept archives without a proof of their writer, too. */
  isKeyLost?: boolean;
  /** The largest tar that is read where nothing is recorded of an archive. */
  maxBytes?: number | undefined;
}

interface Reporting extends Pick<Context, 'output' | 'progress' | 'signal' | 'trace'> {
  readonly installation: Installation;
}

/**
 * Restores every tenant, or every tenant of a server, whose database its server does not have,
 * from the newest archive: the login role, the database and the data; and prints what becomes
 * of each. A tenant whose database exists stays as it is. A tenant that fails does not stop the
 * others; the next run takes those that are left.
 */
export async function restoreLostTenants(
  { installation, ...context }: Reporting,
  { concurrency, server, isKeyLost = false, maxBytes }: Options,
): Promise<LostTenant[]> {
  const lost = await findLost(installation, server, { withoutMac: isKeyLost, maxBytes });
  // Without an identity, all of them would fail with the same sentence.
  if (lost.some(({ found }) => found)) await readTenantKeys(installation, isKeyLost);

  const options = {
    destination: '--lost',
    isOneOfMany: true,
    takesEarlier: true,
    warn: (text: string) => context.output.warn(text),
  };
  const restore = async ({ tenant, found }: Lost): Promise<LostTenant> => {
    let archive = found?.expected;
    const { ms, error } = await measure(async () => {
      if (!found) throw noArchiveOf(tenant);
      const onOpened = (opened: typeof archive): void => {
        archive = opened;
      };
      return restoreArchive(installation, tenant, found, { ...options, onOpened }, data =>
        restoreDatabase(installation, tenant.slug, data, 'replace', { warn: options.warn }),
      );
    });

    return {
      ...summaryOf(tenant, archive),
      state: error === null ? 'restored' : 'failed',
      ms,
      error,
    };
  };
  return reportOutcomes(context, { hasFailed, text: outcomeText }, observers =>
    runFleet(lost, fleetTasks(installation, concurrency), observers, restore),
  );
}

/**
 * Returns the error of a tenant without an archive. Nobody can tell a tenant that was purged
 * after the control database was archived from one whose archives were lost: so it is a failure
 * until an operator has purged it.
 */
function noArchiveOf({ slug }: Pick<Tenant, 'slug'>): OperatorError {
  return new OperatorError(
    'it has no archive. If it was purged after the control database was archived, purge it again: ' +
      `bin/backoffice delete ${slug} --yes, then bin/backoffice purge ${slug} --yes. Otherwise find out who has removed its archives`,
  );
}

function outcomeText({ slug, state, snapshotAt, ms, error }: LostTenant): string {
  return state === 'restored'
    ? `${slug}: restored, its data is of ${snapshotAt} (${ms} ms)`
    : `${slug}: failed: ${error}`;
}

/**
 * Runs `restore --lost` of every tenant, or of those of a server.
 * @returns false when one has failed
 */
export async function restoreLostFleet(
  { server, concurrency, maxBytes }: Options,
  context: Reporting,
): Promise<boolean> {
  const startedAt = performance.now();
  const tenants = await restoreLostTenants(context, { concurrency, server, maxBytes });
  const failed = tenants.filter(hasFailed).length;
  const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
  const restored = tenants.length - failed;
  const scope = server === undefined ? '--all' : `--server ${server}`;
  context.output.part({ tenants: tenants.length, restored, failed, seconds }, () =>
    tenants.length === 0
      ? 'No database is lost.'
      : `${countText(restored, 'tenant')} restored, ${failed} failed, in ${seconds} s.` +
        (failed > 0
          ? ` Run it again for those that failed: bin/backoffice restore --lost ${scope}`
          : ''),
  );

  return failed === 0;
}

/** Returns the plan of `restoreLostFleet`, and changes nothing. */
export async function planLostFleet(
  installation: Installation,
  server: string | undefined,
): Promise<Plan> {
  const lost = await findLost(installation, server, { withoutMac: false, maxBytes: undefined });
  const users = await withConnection(installation.controlUrl, client => readLimitedUsers(client));
  const planned = lost.map(each => ({
    ...summaryOf(each.tenant, each.found?.expected),
    later: each.found?.later.map(({ name }) => name) ?? [],
    withoutEntity: each.found
      ? withLaterEntity(users.get(each.tenant.id), each.found.expected.time)
      : [],
  }));

  return {
    document: planned,
    text: () =>
      tableText(
        planned.map(({ withoutEntity, later, ...each }) => ({
          ...each,
          'opened before': later.join(', ') || null,
          'without entity': withoutEntity.join(', ') || null,
        })),
        'No database is lost.',
      ),
    isLines: true,
    hasFailed: planned.some(({ archive }) => archive === null),
  };
}

/** A tenant whose database its server does not have, and its newest archive. */
interface Lost {
  readonly tenant: Tenant;
  readonly found: FoundArchive | undefined;
}

function summaryOf(
  { slug }: Pick<Tenant, 'slug'>,
  archive: StoredArchive | undefined,
): Pick<LostTenant, 'slug' | 'archive' | 'snapshotAt'> {
  return {
    slug,
    archive: archive?.name ?? null,
    snapshotAt: archive?.time.toISOString() ?? null,
  };
}

/**
 * Returns the tenants without a begun purge whose databases are missing, with their newest
 * archives.
 */
async function findLost(
  installation: Installation,
  server: string | undefined,
  opening: OpeningOptions,
): Promise<Lost[]> {
  const { control, servers } = installation;
  const em = (await control()).em.fork();
  if (server !== undefined) await findServer(installation, server);
  const purging = await em.execute<{ id: number }[]>(
    'select id::float8 from tenants where purging_at is not null',
  );
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
  for (const server of new Set(tenants.map(tenant => tenant.server))) {
    existing.set(
      server.id,
      await withConnection(servers.adminUrl(server), async client => {
        const { rows } = await client.query<{ name: string }>(
          'select datname as name from pg_database where datconnlimit <> -2',
        );
        return new Set(rows.map(({ name }) => name));
      }).catch(() => undefined),
    );
  }
  const missing = tenants.filter(
    tenant => !existing.get(tenant.server.id)?.has(tenant.databaseName),
  );
  const archives =
    missing.length > 0 ? await findNewestArchives(installation, missing, opening) : new Map();

  return missing.map(tenant => ({ tenant, found: archives.get(tenant.guid) }));
}

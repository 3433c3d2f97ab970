import { Server, Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { createKeyring, type Keyring, readKeys } from '../archives/data-keys.ts';
import { ArchiveFault } from '../archives/format/archive-fault.ts';
import { type LedgerEntry, readNewest } from '../archives/ledger.ts';
import { archiveData } from '../archives/open-archive.ts';
import type { BackupTarget } from '../archives/targets/backup-target.ts';
import { type FleetObservers, runFleet, timed } from '../command/run-fleet.ts';
import { restoreDatabase } from '../databases/restored-databases.ts';
import { noSuchServer } from '../tenants/read-servers.ts';
import { restoreCommand } from './restore-archive.ts';

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

/**
 * Restores every tenant, or every tenant of a server, whose database its server does not have, from the newest archive:
 * the login role, the database and the data. A tenant whose database exists stays as it is. A tenant that fails does not stop the others; the next
 * run takes those that are left.
 */
export async function restoreLostTenants(
  installation: Installation,
  target: BackupTarget,
  { concurrency, server }: Options,
  observers: FleetObservers<LostTenant>,
): Promise<LostTenant[]> {
  const { archives, keyring } = await readArchives(installation, target);
  return runFleet(await findLost(installation, server), concurrency, observers, async tenant => {
    const archive = archives.get(tenant.guid);
    const { ms, error } = await timed(() => restore(installation, target, keyring, tenant, archive));
    return {
      slug: tenant.slug,
      state: error === null ? 'restored' : 'failed',
      file: archive?.file ?? null,
      snapshotAt: archive?.snapshotAt.toISOString() ?? null,
      ms,
      error,
    };
  });
}

/**
 * Returns the tenants that `restoreLostTenants` would restore, with the archive of each; null: it has none.
 * @param server only tenants of the server with this name
 */
export async function planLost(
  installation: Installation,
  target: BackupTarget,
  server: string | undefined,
): Promise<Pick<LostTenant, 'slug' | 'snapshotAt' | 'file'>[]> {
  const { archives } = await readArchives(installation, target);
  return (await findLost(installation, server)).map(({ slug, guid }) => {
    const archive = archives.get(guid);
    return { slug, snapshotAt: archive?.snapshotAt.toISOString() ?? null, file: archive?.file ?? null };
  });
}

/** Returns the newest archives of all tenants, and what opens them. */
async function readArchives({ controlUrl, secrets }: Installation, target: BackupTarget) {
  return withConnection(controlUrl, async control => {
    const keyring = createKeyring(await readKeys(control), secrets);
    return { archives: await readNewest(control, target.description), keyring };
  });
}

/** The tenants without a begun purge whose databases are missing. */
async function findLost({ control, servers }: Installation, server: string | undefined): Promise<Tenant[]> {
  const em = control.em.fork();
  if (server !== undefined && (await em.count(Server, { name: server })) === 0) throw noSuchServer(server);
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
        const { rows } = await client.query<{ name: string }>('select datname as name from pg_database');
        return new Set(rows.map(({ name }) => name));
      }).catch(() => undefined),
    );
  return tenants.filter(tenant => !existing.get(tenant.server.id)?.has(tenant.databaseName));
}

async function restore(
  installation: Installation,
  target: BackupTarget,
  keyring: Keyring,
  { slug }: Tenant,
  archive: LedgerEntry | undefined,
): Promise<void> {
  if (!archive) throw new OperatorError('it has no archive');
  await restoreDatabase(installation, slug, archiveData(target, keyring, archive), 'replace').catch(error => {
    if (!(error instanceof ArchiveFault)) throw error;
    const next = `Restore another archive: ${restoreCommand(slug, '--lost')}`;
    throw new OperatorError(`${error.message}. ${next}`, { cause: error });
  });
}

import pLimit from 'p-limit';
import { createPasswords } from '../src/accounts/auth/passwords.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { type BenchInstallation, changeSetting } from './bench-installation.ts';
import { progress } from './bench-progress.ts';

export interface FleetTenant {
  readonly slug: string;
  /** Superuser URL of the tenant database. */
  readonly url: string;
}

const concurrency = 4;

/**
 * Makes tenants without users, in the order of their slugs. Not measured, so it does not wait
 * for the disk.
 */
export async function makeFleet(
  { installation, serverUrl }: BenchInstallation,
  count: number,
): Promise<FleetTenant[]> {
  progress(`making ${count} tenants`);
  const passwords = createPasswords();
  const slugs = Array.from(
    { length: count },
    (_, number) => `tenant-${String(number + 1).padStart(4, '0')}`,
  );

  await changeSetting(serverUrl, 'set fsync = off');
  const fleet = await pLimit(concurrency).map(slugs, async (slug): Promise<FleetTenant> => {
    const manifest = checkManifest(
      { slug, name: slug, admin: { email: 'nobody@bench.test' } },
      slug,
    );

    const { tenant } = await provision(installation, passwords, manifest, {
      first: { logins: [], populate: async () => {} },
    });
    return { slug, url: databaseUrl(serverUrl, tenant.databaseName) };
  });
  await changeSetting(serverUrl, 'set fsync = on');
  await withConnection(serverUrl, client => client.query('checkpoint'));

  return fleet;
}

import pLimit from 'p-limit';
import type { Passwords } from '../src/accounts/auth/passwords.ts';
import { owners } from '../src/control/secret-box.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { type Credentials, insertManyRows, insertUncachedRows } from './baseline.ts';
import type { BenchInstallation } from './bench-installation.ts';
import { progress } from './bench-progress.ts';

export interface BenchTenant {
  readonly guid: string;
  readonly admin: Credentials;
  /** A second user, for measured logins; only the first few tenants have one. */
  readonly loginUser: Credentials | undefined;
  /** URL of the tenant database, with the login role that the service uses. */
  readonly url: string;
}

const concurrency = 2; // more concurrent copies of a database are not faster

/** A PostgreSQL server of the installation. */
export interface BenchServer {
  readonly name: string;
  /** Superuser URL of one of its databases. */
  readonly url: string;
}

/**
 * Provisions tenants as the command line does; the first one also gets the rows of the
 * workloads.
 * @param withLoginUser the number of tenants that get a user for measured logins
 * @param servers each has as many of them, one server after the other
 */
export async function makeTenants(
  { installation }: BenchInstallation,
  passwords: Passwords,
  count: number,
  withLoginUser: number,
  servers: readonly BenchServer[],
): Promise<BenchTenant[]> {
  const tenants: BenchTenant[] = [];

  const make = async (index: number): Promise<void> => {
    const slug = `bench-${String(index).padStart(4, '0')}`;
    const users = index < withLoginUser ? [{ email: `member@${slug}.test`, scope: 'All' }] : [];
    const server = servers[Math.floor((index * servers.length) / count)];
    if (!server) throw new Error(`there is no server for ${slug}`);
    const manifest = checkManifest(
      { slug, name: slug, server: server.name, admin: { email: `admin@${slug}.test` }, users },
      slug,
    );

    const { tenant, logins } = await provision(installation, passwords, manifest);
    const [admin, loginUser] = logins;
    if (!admin) throw new Error(`${slug} exists already`);

    const password = installation.secrets
      .open(tenant.rolePassword, owners.rolePassword(tenant.guid))
      .toString();
    const login = { user: tenant.roleName, password };
    tenants[index] = {
      guid: tenant.guid,
      admin,
      loginUser,
      url: databaseUrl(server.url, tenant.databaseName, login),
    };

    if (index === 0) {
      await withConnection(databaseUrl(server.url, tenant.databaseName), client =>
        // As an operator whose triggers are off: these rows have no actor. The bench creates
        // more records than a tenant may have.
        client.query(
          `begin; set local session_replication_role = replica; ${insertUncachedRows}; commit;
           ${insertManyRows}; analyze; update table_sizes set max_rows = 1e9, max_bytes = 1e12`,
        ),
      );
    }

    if ((index + 1) % 100 === 0) progress(`${index + 1} tenants`);
  };

  progress(`provisioning ${count} tenants`);
  await make(0); // also makes the template
  await pLimit(concurrency).map(
    Array.from({ length: count - 1 }, (_, index) => index + 1),
    make,
  );

  return tenants;
}

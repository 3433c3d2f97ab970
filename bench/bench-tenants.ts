import type { Passwords } from '../src/auth/passwords.ts';
import { owners } from '../src/control/secret-box.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { checkManifest } from '../src/operator/provisioning/manifest.ts';
import { provision } from '../src/operator/provisioning/provision.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { manyRows, type Person } from './baseline.ts';
import type { BenchInstallation } from './bench-installation.ts';
import { progress } from './bench-progress.ts';

export interface BenchTenant {
  readonly guid: string;
  readonly admin: Person;
  /** Somebody else, who logs in when logins are measured; in the first few tenants. */
  readonly member: Person | undefined;
  /** Its database, with the login role that the service uses. */
  readonly url: string;
}

const atOnce = 2; // more copies of a database at a time do not pay

/** Tenants as an operator makes them; the first has the rows for the list of 250. */
export async function makeTenants(
  { installation, serverUrl }: BenchInstallation,
  passwords: Passwords,
  count: number,
  withMember: number,
): Promise<BenchTenant[]> {
  const made: BenchTenant[] = [];
  const make = async (index: number): Promise<void> => {
    const slug = `bench-${String(index).padStart(4, '0')}`;
    const users = index < withMember ? [{ email: `member@${slug}.test`, scope: 'All' }] : [];
    const manifest = checkManifest({ slug, name: slug, admin: { email: `admin@${slug}.test` }, users }, slug);
    const { tenant, logins } = await provision(installation, passwords, manifest);
    const [admin, member] = logins;
    if (!admin) throw new Error(`${slug} was there already`);
    const password = installation.secrets.open(tenant.rolePassword, owners.rolePassword(tenant.guid)).toString();
    const login = { user: tenant.roleName, password };
    made[index] = { guid: tenant.guid, admin, member, url: databaseUrl(serverUrl, tenant.databaseName, login) };
    if (index === 0)
      await withConnection(databaseUrl(serverUrl, tenant.databaseName), client =>
        client.query(`${manyRows}; analyze units_of_measure`),
      );
    if ((index + 1) % 100 === 0) progress(`${index + 1} tenants`);
  };
  progress(`provisioning ${count} tenants`);
  await make(0); // makes the template as well
  await eachOf(
    Array.from({ length: count - 1 }, (_, index) => index + 1),
    atOnce,
    make,
  );
  return made;
}

/** `work` for every item, `atOnce` at a time. */
export async function eachOf<Item>(items: Item[], atOnce: number, work: (item: Item) => Promise<void>): Promise<void> {
  const left = items.values();
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (const item of left) await work(item);
    }),
  );
}

import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Installation, openInstallation } from '../../src/control/installation.ts';
import { requireMasterKey } from '../../src/control/present-key.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { addUser, generatePassword } from '../../src/operator/credentials/users.ts';
import { checkManifest, type Manifest } from '../../src/operator/lifecycle/manifest.ts';
import { type Provisioned, provision } from '../../src/operator/lifecycle/provision.ts';
import { findTenant } from '../../src/operator/registry/tenants.ts';
import { createQuickPasswords } from './quick-passwords.ts';
import { makeServerFolder, removeServerFolder } from './server-folder.ts';
import { copyDedicatedTemplate, dedicatedControl } from './server-templates.ts';
import { quickSettings } from './test-server.ts';

/**
 * A PostgreSQL server with one installation and nothing else, so that a test can count its
 * databases and roles.
 */
export interface DedicatedServer {
  readonly installation: Installation;
  /** Environment variables that make the command line use this installation. */
  readonly environment: Record<string, string>;
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  provision(slug: string): Promise<Provisioned>;
  /** Adds a user `<name>@<slug>.test` with the role `Member` and the scope `All`. */
  addMember(slug: string, name: string): Promise<void>;
  /** Runs SQL as superuser in the given database, by default `postgres`. */
  sql<Row extends object>(text: string, database?: string): Promise<Row[]>;
  /** Runs SQL as superuser in the control database. */
  control<Row extends object>(text: string): Promise<Row[]>;
  /** Returns the name of the database that a tenant has now. */
  databaseOf(slug: string): Promise<string>;
  /** Returns what the server has logged. */
  log(): Promise<string>;
  close(): Promise<void>;
}

/** @param extraSettings further settings of the server, `name=value` */
export async function createDedicatedServer(
  extraSettings: string[] = [],
): Promise<DedicatedServer> {
  const folder = await makeServerFolder('dedicated');
  await copyDedicatedTemplate(folder);
  const settings = [...quickSettings, 'autovacuum=off', 'max_connections=120', ...extraSettings];
  const postgres = await startEmbeddedPostgres(folder, { settings });

  const controlUrl = databaseUrl(postgres.url, dedicatedControl);
  await withConnection(controlUrl, client =>
    client.query('update installation set id = gen_random_uuid(), created_at = now()'),
  );

  const environment = { DATABASE_URL: controlUrl, MASTER_KEY: randomBytes(32).toString('base64') };
  const installation = await openInstallation(readConfig(environment));
  await requireMasterKey(installation.statements, installation.secrets);

  const passwords = createQuickPasswords();
  const query = <Row extends object>(url: string, text: string): Promise<Row[]> =>
    withConnection(url, async client => (await client.query(text)).rows as Row[]);

  return {
    installation,
    environment,
    url: postgres.url,
    // A test may purge a tenant, and make another one with its slug.
    provision: slug => provision(installation, passwords, manifestOf(slug), { reusesSlug: true }),
    addMember: async (slug, name) => {
      await addUser(installation, passwords, {
        tenant: await findTenant(installation, slug),
        email: `${name}@${slug}.test`,
        password: generatePassword(),
        firstName: name,
        lastName: name,
        role: 'Member',
        scope: 'All',
        entityId: null,
      });
    },
    sql: (text, database = 'postgres') => query(databaseUrl(postgres.url, database), text),
    control: text => query(controlUrl, text),
    databaseOf: async slug => {
      const text = `select database_name as name from tenants where slug = '${slug}'`;
      return (await query<{ name: string }>(controlUrl, text))[0]?.name ?? '';
    },
    log: () => readFile(join(folder, 'postgres.log'), 'utf8'),
    close: async () => {
      await installation.close();
      await postgres.leave();
      await removeServerFolder(folder);
    },
  };
}

export function manifestOf(slug: string): Manifest {
  return checkManifest({ slug, name: `${slug} Ltd`, admin: { email: `admin@${slug}.test` } }, slug);
}

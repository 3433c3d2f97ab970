import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createPasswords } from '../../src/auth/passwords.ts';
import { readConfig } from '../../src/config.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { type Installation, openInstallation } from '../../src/installation.ts';
import { migrateControl } from '../../src/operator/migrations/migrate-control.ts';
import { checkManifest, type Manifest } from '../../src/operator/provisioning/manifest.ts';
import { type Provisioned, provision } from '../../src/operator/provisioning/provision.ts';
import { withConnection } from '../../src/postgres/connection.ts';

/** A PostgreSQL with one installation and nothing else: what is on it can be counted. */
export interface OwnServer {
  readonly installation: Installation;
  /** Environment under which the command line works on it. */
  readonly environment: Record<string, string>;
  /** Superuser, on the database `postgres`. */
  readonly url: string;
  provision(slug: string): Promise<Provisioned>;
  /** As superuser, in the database that is named, or in `postgres`. */
  sql<Row extends object>(text: string, database?: string): Promise<Row[]>;
  /** In the control database. */
  control<Row extends object>(text: string): Promise<Row[]>;
  close(): Promise<void>;
}

export async function createOwnServer(): Promise<OwnServer> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-own-'));
  const settings = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off', 'max_connections=120'];
  const postgres = await startEmbeddedPostgres(folder, { settings });
  const controlUrl = databaseUrl(postgres.url, 'office');
  await withConnection(postgres.url, client => client.query('create database office'));
  await migrateControl(controlUrl);
  const environment = { DATABASE_URL: controlUrl, MASTER_KEY: randomBytes(32).toString('base64') };
  const installation = await openInstallation(readConfig(environment));
  const passwords = createPasswords();
  const ask = <Row extends object>(url: string, text: string): Promise<Row[]> =>
    withConnection(url, async client => (await client.query(text)).rows as Row[]);
  return {
    installation,
    environment,
    url: postgres.url,
    provision: slug => provision(installation, passwords, manifestOf(slug)),
    sql: (text, database = 'postgres') => ask(databaseUrl(postgres.url, database), text),
    control: text => ask(controlUrl, text),
    close: async () => {
      await installation.close();
      await postgres.leave();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export function manifestOf(slug: string): Manifest {
  return checkManifest({ slug, name: `${slug} Ltd`, admin: { email: `admin@${slug}.test` } }, slug);
}

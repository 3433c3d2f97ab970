import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseUrl } from '../../src/control/servers.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { withConnection } from '../../src/fleet/admin-connection.ts';
import { migrateControl } from '../../src/fleet/migrate-control.ts';
import { ensureTemplate } from '../../src/fleet/template.ts';
import { controlTemplate, server } from './server.ts';

let folder: string;
let postgres: EmbeddedPostgres | undefined;

/** One PostgreSQL for the whole suite, with a control database at head that every world is cloned from. */
export async function mochaGlobalSetup(): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'backoffice-test-'));
  postgres = await startEmbeddedPostgres(folder, {
    settings: ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off', 'max_connections=300'],
  });
  process.env.TEST_POSTGRES_URL = postgres.url;
  const url = databaseUrl(postgres.url, controlTemplate);
  await withConnection(postgres.url, client => client.query(`create database ${controlTemplate}`));
  await migrateControl(url);
  await withConnection(url, client => client.query('update servers set prefix = $1', [server.prefix]));
  await ensureTemplate(server, postgres.url);
}

export async function mochaGlobalTeardown(): Promise<void> {
  await postgres?.leave();
  await rm(folder, { recursive: true, force: true });
}

import { execFile } from 'node:child_process';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Server } from '../../src/control/control-entities.ts';
import { openControlDatabase } from '../../src/control/database.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { pathExists } from '../../src/lib/embedded/cluster.ts';
import { startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { migrateControl } from '../../src/operator/schema/migrate-control.ts';
import { headFingerprint } from '../../src/operator/schema/template.ts';
import { quickenLogins } from './quick-logins.ts';
import { postgresUrl, quickSettings, suiteFolder } from './test-server.ts';

/** Name of the control database on a dedicated server. */
export const dedicatedControl = 'office';
/**
 * An advisory lock of the suite's server: one worker makes a template, and the others wait for
 * it.
 */
const templateLock = 727_200_001;

/** Copies the data of a server as `initdb` leaves it, whose superuser logs in quickly. */
export const copyPlainTemplate = (folder: string): Promise<void> =>
  copyTemplate('plain', folder, async () => {});

/**
 * Copies that of a server with a control database at head without tenants, and the template of
 * its tenants.
 */
export const copyDedicatedTemplate = (folder: string): Promise<void> =>
  copyTemplate('dedicated', folder, async url => {
    await withConnection(url, client => client.query(`create database ${dedicatedControl}`));
    const controlUrl = databaseUrl(url, dedicatedControl);
    await migrateControl(controlUrl);
    const control = openControlDatabase(controlUrl);
    await headFingerprint(
      async () => control,
      await control.em.fork().findOneOrFail(Server, { name: 'default' }),
      url,
    );
    await control.close(true);
  });

/**
 * Copies the data of a stopped server into a folder. The first call of a run makes that server,
 * which takes five to ten times the CPU time of a copy. All copies have the same system
 * identifier and superuser.
 */
async function copyTemplate(
  name: string,
  folder: string,
  prepare: (url: string) => Promise<void>,
): Promise<void> {
  const template = join(suiteFolder(), name);
  await withConnection(postgresUrl(), async client => {
    await client.query(`select pg_advisory_lock(${templateLock})`);
    if (!(await pathExists(template))) await makeTemplate(template, prepare);
  });
  // Keeps the owner and the rights, which PostgreSQL checks.
  await promisify(execFile)('cp', ['-a', join(template, 'postgres'), folder]);
}

async function makeTemplate(
  folder: string,
  prepare: (url: string) => Promise<void>,
): Promise<void> {
  const temporary = `${folder}.new`;
  const postgres = await startEmbeddedPostgres(temporary, {
    settings: [...quickSettings, 'autovacuum=off'],
  });
  await quickenLogins(postgres.url);
  await prepare(postgres.url);
  await postgres.leave();
  await rename(temporary, folder);
}

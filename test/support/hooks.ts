import { spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Server } from '../../src/control/control-entities.ts';
import { openControlDatabase } from '../../src/control/database.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { timeLimits, withConnection } from '../../src/lib/postgres/connection.ts';
import { migrateControl } from '../../src/operator/schema/migrate-control.ts';
import { headFingerprint } from '../../src/operator/schema/template.ts';
import { quickenLogins } from './quick-logins.ts';
import { makeServerFolder, removeServerFolder } from './server-folder.ts';
import { slowestFiles, timeFiles } from './slowest-files.ts';
import { drawTestOrder, orderTests } from './test-order.ts';
import { controlTemplate, quickSettings, server } from './test-server.ts';
import { makeWorldTemplate } from './world-template.ts';

// On a busy machine, PostgreSQL may take seconds to accept a connection.
for (const kind of ['operator', 'migrations', 'move', 'doctor'] as const) {
  Object.assign(timeLimits[kind], { connectMs: 30_000 });
}
// Below the 9 s that requests wait in test/operator/databases.
Object.assign(timeLimits.move, { lockMs: 8_000 });

export const mochaHooks = {
  beforeAll: [timeFiles.beforeAll, orderTests.beforeAll],
  afterAll: timeFiles.afterAll,
};

let folder: string;
let postgres: EmbeddedPostgres | undefined;

export async function mochaGlobalSetup(): Promise<void> {
  drawTestOrder();
  startGuardian();
  await startServer().catch(error => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1); // mocha would wait for the server, which only its teardown stops
  });
}

/**
 * Starts one PostgreSQL for the whole suite, with the databases that every world is copied
 * from.
 */
async function startServer(): Promise<void> {
  const { connectMs } = timeLimits.control;
  // The longer limit holds until the end of this function: tests need that of the service.
  Object.assign(timeLimits.control, { connectMs: 30_000 });

  folder = await makeServerFolder('test');
  postgres = await startEmbeddedPostgres(folder, {
    // Without autovacuum the server itself neither connects to a database nor writes to it.
    settings: [...quickSettings, 'autovacuum=off', 'max_connections=500'],
  });
  process.env.TEST_POSTGRES_URL = postgres.url;
  process.env.TEST_SERVER_FOLDER = folder;
  await quickenLogins(postgres.url);

  const url = databaseUrl(postgres.url, controlTemplate);
  await withConnection(postgres.url, client => client.query(`create database ${controlTemplate}`));
  await migrateControl(url);
  await withConnection(url, client =>
    client.query('update servers set prefix = $1', [server.prefix]),
  );

  // Makes the template and stores its schema fingerprint, so that no world has to compute it.
  const control = openControlDatabase(url);
  await headFingerprint(
    async () => control,
    await control.em.fork().findOneOrFail(Server, { name: server.name }),
    postgres.url,
  );
  await control.close(true);

  await makeWorldTemplate(postgres.url);
  Object.assign(timeLimits.control, { connectMs });
}

export async function mochaGlobalTeardown(): Promise<void> {
  process.stdout.write(await slowestFiles());
  await postgres?.leave();
  await removeServerFolder(folder);
}

/**
 * Names this run for all processes that it starts, and lets its guardian know when it ends. See
 * guardian.ts. On SIGINT, mocha would end its workers and then wait for ever: this process
 * exits, and the guardian does the rest.
 */
function startGuardian(): void {
  const run = String(process.pid);
  const script = fileURLToPath(new URL('guardian.ts', import.meta.url));
  // In a session of its own, so that no signal to the run reaches it.
  const guardian = spawn(process.execPath, [script, run], {
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  guardian.unref();
  (guardian.stdin as Socket).unref();
  process.env.TEST_RUN = run; // after the start of the guardian, which would end itself otherwise
  process.once('SIGINT', () => process.exit(130));
}

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Installation, openInstallation } from '../src/control/installation.ts';
import { requireMasterKey } from '../src/control/present-key.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { readConfig } from '../src/lib/config/config.ts';
import { findRunningPostgres } from '../src/lib/embedded/pid-file.ts';
import { startEmbeddedPostgres } from '../src/lib/embedded/postgres.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { migrateControl } from '../src/operator/schema/migrate-control.ts';

/** A temporary installation on a separate PostgreSQL, in a folder that `close` removes. */
export interface BenchInstallation {
  readonly folder: string;
  /** Superuser URL of the database `postgres`. */
  readonly serverUrl: string;
  readonly controlUrl: string;
  readonly masterKey: string;
  readonly installation: Installation;
  /** The process of PostgreSQL, whose children are the backends. */
  readonly postgresPid: number;
  /**
   * Closes this process's connections to the control database; PostgreSQL keeps running. Safe
   * to call twice.
   */
  disconnect(): Promise<void>;
  /** Stops everything and removes the folder. Safe to call twice. */
  close(): Promise<void>;
}

/**
 * Changes a setting of PostgreSQL while it runs.
 * @param change `set name = value` or `reset name`
 */
export async function changeSetting(serverUrl: string, change: string): Promise<void> {
  await withConnection(serverUrl, async client => {
    await client.query(`alter system ${change}`);
    await client.query('select pg_reload_conf()');
  });
}

/** @param settings additional settings of PostgreSQL, `name=value` */
export async function openBenchInstallation(settings: string[] = []): Promise<BenchInstallation> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-bench-'));
  // A large PostgreSQL that writes its last checkpoint outlives the wait for its end.
  const patience = { maxRetries: 20, retryDelay: 500 };
  const undo: (() => Promise<unknown>)[] = [
    () => rm(folder, { recursive: true, force: true, ...patience }),
  ];
  const close = async (): Promise<void> => {
    for (let step = undo.pop(); step; step = undo.pop()) await step();
  };

  try {
    const postgres = await startEmbeddedPostgres(folder, { settings });
    undo.push(postgres.leave);

    const controlUrl = databaseUrl(postgres.url, 'backoffice');
    await withConnection(postgres.url, client => client.query('create database backoffice'));
    await migrateControl(controlUrl);

    const masterKey = randomBytes(32).toString('base64');
    const installation = await openInstallation(
      readConfig({ DATABASE_URL: controlUrl, MASTER_KEY: masterKey }),
    );
    await requireMasterKey(installation.statements, installation.secrets);

    let disconnected: Promise<void> | undefined;
    const disconnect = (): Promise<void> => {
      disconnected ??= installation.close();
      return disconnected;
    };
    undo.push(disconnect);

    const postgresPid = (await findRunningPostgres(join(folder, 'postgres')))?.pid ?? Number.NaN;

    return {
      folder,
      serverUrl: postgres.url,
      controlUrl,
      masterKey,
      installation,
      postgresPid,
      disconnect,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '../src/config.ts';
import { Server } from '../src/control/fleet-entities.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { type Installation, openInstallation } from '../src/installation.ts';
import { migrateControl } from '../src/operator/migrations/migrate-control.ts';
import { withConnection } from '../src/postgres/connection.ts';

/** An installation of a bench's own, on a PostgreSQL of its own, in a folder that goes with it. */
export interface BenchInstallation {
  readonly folder: string;
  /** Superuser, on the server's own database `postgres`. */
  readonly serverUrl: string;
  readonly controlUrl: string;
  readonly masterKey: string;
  readonly installation: Installation;
  /** The one server of the installation, on which all its tenants are. */
  readonly server: Server;
  /** Closes this process' own connections to the control database; what runs beside it goes on. Safe to call twice. */
  leave(): Promise<void>;
  /** Stops everything and removes the folder. Safe to call twice. */
  close(): Promise<void>;
}

/** @param settings more settings of PostgreSQL, `name=value` */
export async function openBenchInstallation(settings: string[] = []): Promise<BenchInstallation> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-bench-'));
  const undo: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })];
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
    const installation = await openInstallation(readConfig({ DATABASE_URL: controlUrl, MASTER_KEY: masterKey }));
    let left: Promise<void> | undefined;
    const leave = (): Promise<void> => {
      left ??= installation.close();
      return left;
    };
    undo.push(leave);
    const server = await installation.control.em.fork().findOneOrFail(Server, { name: 'default' });
    return { folder, serverUrl: postgres.url, controlUrl, masterKey, installation, server, leave, close };
  } catch (error) {
    await close();
    throw error;
  }
}

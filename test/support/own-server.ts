import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { makeServerFolder } from './server-folder.ts';
import { copyPlainTemplate } from './server-templates.ts';

/** A PostgreSQL server of a test. `close` ends it, and removes its folder. */
export interface OwnServer {
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  /** Kills it, as when its machine loses power. */
  crash(): Promise<void>;
  /** Starts it on the same port after a crash. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

/** Starts a PostgreSQL server with these settings, `name=value`, in a folder of its own. */
export async function startOwnServer(name: string, settings: string[]): Promise<OwnServer> {
  const folder = await makeServerFolder(name);
  await copyPlainTemplate(folder);
  let postgres = await startEmbeddedPostgres(folder, { settings });
  const { url } = postgres;
  return {
    url,
    crash: async () => {
      const file = await readFile(join(folder, 'postgres', 'postmaster.pid'), 'utf8');
      process.kill(Number(file.split('\n')[0]), 'SIGKILL');
    },
    restart: async () => {
      postgres = await startEmbeddedPostgres(folder, { settings: [...settings, `port=${new URL(url).port}`] });
    },
    close: async () => {
      await postgres.leave();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

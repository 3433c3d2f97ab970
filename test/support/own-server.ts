import { rm } from 'node:fs/promises';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { makeServerFolder } from './server-folder.ts';
import { copyPlainTemplate } from './server-templates.ts';

/** A PostgreSQL server of a test. `close` ends it, and removes its folder. */
export interface OwnServer {
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  close(): Promise<void>;
}

/** Starts a PostgreSQL server with these settings, `name=value`, in a folder of its own. */
export async function startOwnServer(name: string, settings: string[]): Promise<OwnServer> {
  const folder = await makeServerFolder(name);
  await copyPlainTemplate(folder);
  const postgres = await startEmbeddedPostgres(folder, { settings });
  const close = async (): Promise<void> => {
    await postgres.leave();
    await rm(folder, { recursive: true, force: true });
  };
  return { url: postgres.url, close };
}

import { execFile } from 'node:child_process';
import { readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { eventually } from './eventually.ts';
import { makeServerFolder, removeServerFolder } from './server-folder.ts';
import { copyPlainTemplate } from './server-templates.ts';

/** A PostgreSQL server of a test. `close` ends it, and removes its folder. */
export interface OwnServer {
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  /** Kills it, as when its machine loses power. */
  crash(): Promise<void>;
  /** Starts it on the same port after a crash. */
  restart(): Promise<void>;
  /** Copies its files as of one moment while it runs, as a snapshot of its volume does. */
  takeSnapshot(): Promise<void>;
  /** Kills it, and puts its files back to those of the snapshot. `restart` starts it again. */
  putBack(): Promise<void>;
  /** Returns what the server has logged. */
  log(): Promise<string>;
  close(): Promise<void>;
}

interface OwnServerOptions {
  /** True if `initdb` makes it. Else it is a copy, with the system identifier of the others. */
  readonly isNew?: boolean;
}

/** Starts a PostgreSQL server with these settings, `name=value`, in a folder of its own. */
export async function startOwnServer(
  name: string,
  settings: string[],
  { isNew = false }: OwnServerOptions = {},
): Promise<OwnServer> {
  const folder = await makeServerFolder(name);
  const data = join(folder, 'postgres');
  const snapshot = join(folder, 'snapshot');
  if (!isNew) await copyPlainTemplate(folder);
  let postgres = await startEmbeddedPostgres(folder, { settings });
  const { url } = postgres;

  const readPid = async (): Promise<number> =>
    Number((await readFile(join(data, 'postmaster.pid'), 'utf8')).split('\n')[0]);
  const copyFiles = (from: string, to: string) => promisify(execFile)('cp', ['-a', from, to]);

  async function crash(): Promise<void> {
    const parent = await readPid();
    const all = [parent, ...(await childrenOf(parent))];
    process.kill(parent, 'SIGKILL');
    // The processes end when they notice that their server is gone.
    await eventually(() => signal(all, 0).length === 0);

    // would join the restarted server as a second user, who keeps it running
    await postgres.leave();
  }

  return {
    url,
    crash,
    restart: async () => {
      postgres = await startEmbeddedPostgres(folder, { settings });
    },
    takeSnapshot: async () => {
      const parent = await readPid();
      process.kill(parent, 'SIGSTOP'); // begins no further process
      const all = [parent, ...(await childrenOf(parent))];
      signal(all, 'SIGSTOP');
      await copyFiles(data, snapshot);
      signal(all, 'SIGCONT');
    },
    putBack: async () => {
      await crash();
      await rm(data, { recursive: true });
      await rename(snapshot, data);
    },
    log: () => readFile(join(folder, 'postgres.log'), 'utf8'),
    close: async () => {
      await postgres.leave();
      await removeServerFolder(folder);
    },
  };
}

async function childrenOf(pid: number): Promise<number[]> {
  const { stdout } = await promisify(execFile)('ps', ['-o', 'pid=', '--ppid', String(pid)]);
  return stdout.split('\n').flatMap(line => Number(line) || []);
}

/**
 * Sends a signal to processes.
 * @returns those that exist
 */
function signal(pids: readonly number[], name: NodeJS.Signals | 0): number[] {
  return pids.filter(pid => {
    try {
      return process.kill(pid, name);
    } catch {
      return false;
    }
  });
}

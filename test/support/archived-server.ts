import { execFile } from 'node:child_process';
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createRunner, postgresBinaries } from '../../src/lib/embedded/binaries.ts';
import { createDedicatedServer, type DedicatedServer } from './dedicated-server.ts';
import { makeServerFolder } from './server-folder.ts';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const script = (name: string): string => join(root, 'deploy/recovery', name);

/**
 * A server whose write-ahead log is archived as `deploy/base-backup` does, and that
 * `deploy/recovery/host.sh` recovers.
 */
export interface ArchivedServer extends DedicatedServer {
  /** Has the base backups, the archived log, and below `scratch` what recoveries use. */
  readonly folder: string;
  /** Makes a base backup with the script for it. */
  makeBaseBackup(): Promise<void>;
  /** Returns the time of the server, to the microsecond. */
  now(): Promise<string>;
}

/** @param extraSettings further settings of the server, `name=value` */
export async function createArchivedServer(extraSettings: string[] = []): Promise<ArchivedServer> {
  const server = await createDedicatedServer(extraSettings);
  const folder = await makeServerFolder('archived');
  const [wal, scratch] = [join(folder, 'default', 'wal'), join(folder, 'scratch')];
  for (const path of [wal, scratch]) await mkdir(path, { recursive: true });
  await server.sql(`alter system set archive_command = '${await archiveCommand(folder)}'`);
  await server.sql('select pg_reload_conf()');

  const recovery = {
    RECOVERY_DIR: folder,
    RECOVERY_SCRATCH: scratch,
    RECOVERY_PG_CTL: await pgCtl(folder),
    RECOVERY_COMMAND: script('host.sh'),
  };

  const { hostname, port, username, password } = new URL(server.url);
  const login = {
    PGHOST: hostname,
    PGPORT: port,
    PGUSER: username,
    PGPASSWORD: decodeURIComponent(password),
  };

  return {
    ...server,
    folder,
    environment: { ...server.environment, ...recovery },
    makeBaseBackup: async () =>
      void (await run(script('host-base-backup.sh'), ['default'], {
        env: { ...process.env, ...recovery, ...login },
      })),
    now: async () =>
      (
        await server.sql<{ at: string }>(
          `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
        )
      )[0]?.at ?? '',
    close: async () => {
      await server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Returns the command of `deploy/base-backup/archive.conf`, which archives into a folder. */
async function archiveCommand(folder: string): Promise<string> {
  const settings = await readFile(join(root, 'deploy/base-backup/archive.conf'), 'utf8');
  const command = /^archive_command = '(.*)'$/m.exec(settings)?.[1] ?? '';
  return command.replace('/mnt/backup', folder).replace('/opt/backoffice', root);
}

/** Makes a program of `pg_ctl`, which also root can run. */
async function pgCtl(folder: string): Promise<string> {
  const program = join(dirname((await postgresBinaries()).postgres), 'pg_ctl');
  const { command } = await createRunner(folder);
  const wrapper = join(folder, 'pg_ctl');
  await writeFile(wrapper, `#!/bin/sh\nexec ${[...command, program].join(' ')} "$@"\n`);
  await chmod(wrapper, 0o755);
  return wrapper;
}

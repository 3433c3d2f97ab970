import { execFile } from 'node:child_process';
import { chown, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createRunner } from '../../src/lib/embedded/binaries.ts';
import { findRunningPostgres } from '../../src/lib/embedded/pid-file.ts';
import { launchServer, startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from './eventually.ts';
import { makeServerFolder, removeServerFolder } from './server-folder.ts';
import { quickSettings } from './test-server.ts';

/** A PostgreSQL server that runs on a copy of the files of another one, as of one moment. */
export interface CopiedServer {
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  close(): Promise<void>;
}

/**
 * Keeps the owner and the rights, which PostgreSQL checks. `fs.cp` takes ten times the CPU
 * time. A file that is removed meanwhile is left out: the write-ahead log says that it is gone.
 */
async function copy(from: string, names: string[], to: string): Promise<void> {
  const paths = names.map(name => join(from, name));
  await promisify(execFile)('cp', ['-a', ...paths, to]).catch(error => {
    const lines = String(error.stderr).trim().split('\n');
    if (!lines.every(line => line.endsWith('No such file or directory'))) throw error;
  });
}

interface CopyOptions {
  /** Further settings of the copy, `name=value`. */
  extraSettings?: string[];
  /** True if the copy stays in recovery, and waits for more of the write-ahead log. */
  recovers?: boolean;
}

/**
 * Copies the files of a server on this machine while it is used, and starts a server on the
 * copy.
 */
export async function copyServer(
  url: string,
  { extraSettings = [], recovers = false }: CopyOptions = {},
): Promise<CopiedServer> {
  const folder = await makeServerFolder('copied');
  const data = join(folder, 'postgres');

  await withConnection(url, async client => {
    // Until the session ends, no checkpoint removes the write-ahead log that the copy begins with.
    await client.query(
      `select pg_create_physical_replication_slot('copy_of_' || pg_backend_pid(), true, true)`,
    );
    const { rows } = await client.query<{ source: string }>(
      `select current_setting('data_directory') as source from pg_backup_start('copy', fast => true)`,
    );
    const source = rows[0]?.source ?? '';
    await mkdir(data, { mode: 0o700 });
    const { uid, gid } = await stat(source);
    await chown(data, uid, gid);

    // The write-ahead log is copied at the end; its files come and go meanwhile.
    const names = (await readdir(source)).filter(
      name => !['pg_wal', 'postmaster.pid'].includes(name),
    );
    await copy(source, names, data);

    const { rows: stopped } = await client.query<{ label: string }>(
      'select labelfile as label from pg_backup_stop(wait_for_archive => false)',
    );
    await copy(source, ['pg_wal'], data);
    await writeFile(join(data, 'backup_label'), stopped[0]?.label ?? '', { mode: 0o600 });
  });

  const settings = [...quickSettings, ...extraSettings];
  if (recovers) {
    await writeFile(join(data, 'standby.signal'), '');
    await launchServer(data, folder, await createRunner(data), settings);
    await eventually(async () => (await findRunningPostgres(data))?.port || undefined);
  }

  const postgres = await startEmbeddedPostgres(folder, { settings });
  return {
    url: postgres.url,
    close: async () => {
      await postgres.leave();
      await removeServerFolder(folder);
    },
  };
}

import { cp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { makeServerFolder } from './server-folder.ts';
import { quickSettings } from './test-server.ts';

/** A PostgreSQL server that runs on a copy of the files of another one, as of one moment. */
export interface CopiedServer {
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  close(): Promise<void>;
}

/** Copies the files of a server on this machine while it is used, and starts a server on the copy. */
export async function copyServer(url: string): Promise<CopiedServer> {
  const folder = await makeServerFolder('copied');
  const data = join(folder, 'postgres');
  await withConnection(url, async client => {
    const { rows } = await client.query<{ source: string }>(
      `select current_setting('data_directory') as source from pg_backup_start('copy', fast => true)`,
    );
    const source = rows[0]?.source ?? '';
    await cp(source, data, { recursive: true, filter: path => !path.endsWith('postmaster.pid') });
    const { rows: stopped } = await client.query<{ label: string }>(
      'select labelfile as label from pg_backup_stop(wait_for_archive => false)',
    );
    await rm(join(data, 'pg_wal'), { recursive: true });
    await cp(join(source, 'pg_wal'), join(data, 'pg_wal'), { recursive: true });
    await writeFile(join(data, 'backup_label'), stopped[0]?.label ?? '', { mode: 0o600 });
  });
  const postgres = await startEmbeddedPostgres(folder, { settings: quickSettings });
  return {
    url: postgres.url,
    close: async () => {
      await postgres.leave();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

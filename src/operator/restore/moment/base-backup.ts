import { chown, lstat, mkdir, open, readFile, readlink, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { BaseRetention } from '../../../config-values.ts';
import type { Server } from '../../../control/fleet-entities.ts';
import { databaseUrl } from '../../../control/server-urls.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { lockSpaces } from '../../../postgres/advisory-locks.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { sqlState } from '../../../postgres/database-error.ts';
import { type BaseBackup, type BaseFolder, createBaseFolder, unfinished } from './base-folder.ts';
import { copyCluster, databaseOf } from './copy-cluster.ts';
import { type PrunedBases, pruneBaseBackups } from './prune-base-backups.ts';
import { removeLeftovers, removeUnfinished } from './scratch-folder.ts';
import { requireWalArchive } from './wal-archive.ts';

interface BaseBackupOptions {
  /** The folder that the server archives its write-ahead log to already. */
  wal?: string | undefined;
  /** Which base backups are kept. */
  keep: BaseRetention;
  onProgress?: (files: number) => void;
}

/**
 * Makes a base backup of a server that runs on this machine, while it is used, and lets the server archive its
 * write-ahead log. From then on each tenant on it can be restored to any moment. A killed run leaves an unfinished
 * folder, which the next one removes. Only one run at a time has the server's lock, which ends with the connection; a
 * paused run that has lost it cannot end its copy, because `pg_backup_stop` needs that connection, too.
 * @throws {OperatorError} when the files of the server cannot be read, the server does not archive, or another run
 *   makes a base backup of it
 */
export async function makeBaseBackup(
  installation: Installation,
  server: Server,
  folder: BaseFolder,
  { wal, keep, onProgress }: BaseBackupOptions,
): Promise<{ base: BaseBackup; pruned: PrunedBases }> {
  const url = databaseUrl(installation.servers.adminUrl(server), 'postgres');
  return withConnection(url, async client => {
    const facts = await readFacts(client);
    await requireFiles(facts, server.name);
    await lockBaseBackups(client, server.name);
    await createBaseFolder(folder);
    await shareWithServer(facts.dataDirectory, folder);
    await removeLeftovers(folder);
    await removeUnfinished(folder);
    const walArchive = await requireWalArchive(client, folder.wal, wal);
    const base = await copyInBackupMode(client, { ...facts, walArchive }, folder, onProgress);
    await waitForArchive(client, walArchive, base.firstSegment);
    return { base, pruned: await pruneBaseBackups(folder, keep, new Date(base.finishedAt)) };
  });
}

type Facts = Pick<
  BaseBackup,
  'systemIdentifier' | 'version' | 'superuser' | 'maxPreparedTransactions' | 'dataDirectory'
>;

async function readFacts(client: pg.Client): Promise<Facts> {
  try {
    const { rows } = await client.query<Facts>(
      `select (select system_identifier::text from pg_control_system()) as "systemIdentifier",
              current_setting('server_version_num')::int as version,
              (select rolname from pg_roles where oid = 10) as superuser,
              current_setting('max_prepared_transactions')::int as "maxPreparedTransactions",
              current_setting('data_directory') as "dataDirectory"`,
    );
    if (rows[0]) return rows[0];
  } catch (cause) {
    if (sqlState(cause) !== '42501') throw cause;
    throw new OperatorError('A base backup needs the login of a superuser of the server', { cause });
  }
  throw new Error('the query has no row');
}

/** @throws {OperatorError} unless the data directory that the server names is that of the server, on this machine */
async function requireFiles({ dataDirectory, systemIdentifier }: Facts, name: string): Promise<void> {
  const otherwise =
    'Run this command on the machine of the server, with a login that may read its files; otherwise restore tenants ' +
    'from archives (restore --archive), or use the point-in-time recovery of the provider';
  const control = await readFile(join(dataDirectory, 'global', 'pg_control')).catch((cause: NodeJS.ErrnoException) => {
    throw new OperatorError(`The files of server ${name} cannot be read here (${cause.code}). ${otherwise}`, { cause });
  });
  if (control.readBigUInt64LE().toString() !== systemIdentifier)
    throw new OperatorError(
      `Server ${name} runs on another machine: its folder is another server's here. ${otherwise}`,
    );
}

/** @throws {OperatorError} when another run makes a base backup of the connected server */
async function lockBaseBackups(client: pg.Client, name: string): Promise<void> {
  const { rows } = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1, 0) as locked', [
    lockSpaces.base,
  ]);
  if (!rows[0]?.locked)
    throw new OperatorError(
      `Another run makes a base backup of server ${name}: nothing was changed. Wait until it has ended, or end it`,
    );
}

/** Gives the folder of the write-ahead log to the login of the server, which writes to it. */
async function shareWithServer(dataDirectory: string, { root, wal }: BaseFolder): Promise<void> {
  const { uid, gid } = await lstat(dataDirectory);
  if (process.getuid?.() !== 0 || uid === 0) return;
  for (const path of [root, wal]) await chown(path, uid, gid);
}

/** @param onProgress called with the number of files so far */
async function copyInBackupMode(
  client: pg.Client,
  facts: Facts & { walArchive: string },
  folder: BaseFolder,
  onProgress?: (files: number) => void,
): Promise<BaseBackup> {
  const { rows: started } = await client.query<{ at: Date; segment: string }>(
    `select clock_timestamp() as at, pg_walfile_name(lsn) as segment
       from pg_backup_start('sales back office', fast => true) as lsn`,
  );
  const startedAt = started[0]?.at.toISOString() ?? '';
  const id = startedAt.replaceAll(/[-:.]/g, '');
  const temporary = `${folder.base(id)}${unfinished}`;
  const files = join(temporary, 'files');
  await rm(temporary, { recursive: true, force: true });
  await mkdir(temporary, { mode: 0o700 });
  const { largeFiles, bytes } = await copyCluster(facts.dataDirectory, files, onProgress);
  const databases = await client.query<{ oid: number; name: string }>(
    'select oid::int8::float8 as oid, datname as name from pg_database',
  );
  const { rows: stopped } = await client.query<{ label: string; at: Date }>(
    'select labelfile as label, clock_timestamp() as at from pg_backup_stop(wait_for_archive => false)',
  );
  await writeFile(join(files, 'backup_label'), stopped[0]?.label ?? '', { mode: 0o600 });
  const base: BaseBackup = {
    format: 1,
    id,
    ...facts,
    program: await programOf(facts.dataDirectory),
    firstSegment: started[0]?.segment ?? '',
    startedAt,
    finishedAt: stopped[0]?.at.toISOString() ?? '',
    bytes,
    databases: databases.rows.map(database => ({
      ...database,
      largeFiles: largeFiles.filter(([path]) => databaseOf(path) === database.oid),
    })),
  };
  await writeFile(join(temporary, 'manifest.json'), JSON.stringify(base), { mode: 0o600 });
  await rename(temporary, folder.base(id));
  return base;
}

/** Returns the path of the program that serves a data directory, if this login may know it. */
async function programOf(dataDirectory: string): Promise<string | null> {
  const pid = (await readFile(join(dataDirectory, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0];
  return readlink(`/proc/${pid}/exe`).catch(() => null);
}

const maxArchiveMs = 60_000;
const pollMs = 50;

/** Waits until the first segment that a recovery needs is in the archive: then the server can write to it. */
async function waitForArchive(client: pg.Client, archive: string, segment: string): Promise<void> {
  const deadline = performance.now() + maxArchiveMs;
  await client.query('select pg_switch_wal()');
  while (!(await isReadable(join(archive, segment)))) {
    if (performance.now() > deadline)
      throw new OperatorError(
        `Segment ${segment} of the write-ahead log did not get to ${archive} within 60 s. The log of the server says ` +
          'why; select * from pg_stat_archiver shows the last failure. The base backup is complete: when the archive ' +
          'works, it can be used',
      );
    await sleep(pollMs);
  }
}

async function isReadable(path: string): Promise<boolean> {
  const file = await open(path, 'r').catch(() => undefined);
  await file?.close();
  return file !== undefined;
}

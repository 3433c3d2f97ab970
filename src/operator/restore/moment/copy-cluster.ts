import { constants } from 'node:fs';
import { copyFile, lstat, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import pLimit from 'p-limit';
import { passwordFile } from '../../../embedded/server-url.ts';

/** Folders whose files PostgreSQL makes anew. They exist in the copy, and are empty. */
const emptied = [
  'pg_wal',
  'pg_replslot',
  'pg_dynshmem',
  'pg_notify',
  'pg_serial',
  'pg_snapshots',
  'pg_stat_tmp',
  'pg_subtrans',
];
/** Files that must not be in a copy, or that it does not need. */
const skipped =
  /^(postmaster\.(pid|opts)|current_logfiles|backup_label.*|tablespace_map.*|pg_internal\.init.*|pgsql_tmp.*)$/;
const maxConcurrent = 8;
const batch = 1_000;

/** A file of a database whose blocks are zeros in a recovery of another database. Shorter files are left out there. */
const largeFileBytes = 256 * 1024;

/** What was copied. Paths are below the data directory. */
export interface CopiedCluster {
  bytes: number;
  files: number;
  largeFiles: [path: string, bytes: number][];
}

/**
 * Copies the files of a server between `pg_backup_start` and `pg_backup_stop`. Files change and disappear meanwhile;
 * the recovery replaces what was torn. Tablespaces are copied into their folders below `pg_tblspc`.
 * @param onProgress called with the number of files so far
 */
export async function copyCluster(
  source: string,
  target: string,
  onProgress: (files: number) => void = () => {},
): Promise<CopiedCluster> {
  const copied: CopiedCluster = { bytes: 0, files: 0, largeFiles: [] };
  const limit = pLimit(maxConcurrent);
  const copyOne = async (path: string): Promise<void> => {
    const bytes = await copy(join(source, path), join(target, path));
    if (bytes === undefined) return;
    copied.bytes += bytes;
    copied.files++;
    if (bytes > largeFileBytes && isOfDatabase(path)) copied.largeFiles.push([path, bytes]);
    if (copied.files % batch === 0) onProgress(copied.files);
  };
  const walk = async (folder: string): Promise<void> => {
    await mkdir(join(target, folder), { mode: 0o700 });
    if (emptied.includes(folder)) return;
    const entries = await readdir(join(source, folder), { withFileTypes: true }).catch(ignoreMissing);
    const files: string[] = [];
    for (const entry of entries ?? []) {
      if (skipped.test(entry.name) || entry.name === passwordFile) continue;
      const path = join(folder, entry.name);
      if (entry.isDirectory() || (entry.isSymbolicLink() && folder === 'pg_tblspc')) await walk(path);
      else if (entry.isFile() && path !== lastFile) files.push(path);
    }
    await Promise.all(files.map(path => limit(copyOne, path)));
  };
  await walk('');
  await copyOne(lastFile);
  return copied;
}

/** Copied at the end, as the manual of PostgreSQL says of copies of a running server. */
const lastFile = join('global', 'pg_control');

/** @returns the size of the copy; undefined if the file is gone */
async function copy(from: string, to: string): Promise<number | undefined> {
  try {
    await copyFile(from, to, constants.COPYFILE_FICLONE);
    return (await lstat(to)).size;
  } catch (error) {
    ignoreMissing(error as NodeJS.ErrnoException);
    return undefined;
  }
}

function isOfDatabase(path: string): boolean {
  return databaseOf(path) !== undefined;
}

/** Returns the OID of the database that a file belongs to; undefined for a file of all databases. */
export function databaseOf(path: string): number | undefined {
  const oid = /^(?:base|pg_tblspc\/\d+\/[^/]+)\/(\d+)\//.exec(path)?.[1];
  return oid === undefined ? undefined : Number(oid);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

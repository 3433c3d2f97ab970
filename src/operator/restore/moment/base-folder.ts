import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { OperatorError } from '../../../operator-error.ts';

const manifestContract = z.object({
  format: z.literal(1),
  id: z.string(),
  /** The identifier that PostgreSQL gives a cluster when it is created. */
  systemIdentifier: z.string(),
  /** `server_version_num`: 180004 is PostgreSQL 18.4. */
  version: z.number().int(),
  /** The program of the server. Only the same major version can recover the files. */
  program: z.string().nullable(),
  /** The role that owns the cluster: the scratch server is opened with it. */
  superuser: z.string(),
  maxPreparedTransactions: z.number().int(),
  /** Where the server keeps its own files, and archives the write-ahead log to. */
  dataDirectory: z.string(),
  walArchive: z.string(),
  /** The first segment of the write-ahead log that a recovery reads. */
  firstSegment: z.string(),
  /** A recovery can stop at any time after `finishedAt`. By the clock of the server, in ISO 8601. */
  startedAt: z.string(),
  finishedAt: z.string(),
  bytes: z.number(),
  databases: z.array(
    z.object({
      oid: z.number().int(),
      name: z.string(),
      /** Its files above `largeFileBytes`: path below the data directory, and length. */
      largeFiles: z.array(z.tuple([z.string(), z.number()])),
    }),
  ),
});

/** A base backup: a copy of all files of a server, from which a recovery begins. */
export type BaseBackup = z.output<typeof manifestContract>;

/** Where the base backups of a server and its archived write-ahead log are: only for the login of the command line. */
export interface BaseFolder {
  readonly root: string;
  readonly wal: string;
  /** The folder of one base backup; it has the files of the server below `files`. */
  readonly base: (id: string) => string;
  /** Files of one run, removed at its end. */
  readonly scratch: (name: string) => string;
}

/** The suffix of a base backup that is not complete. */
export const unfinished = '.unfinished';

/** @param root the folder of `BASE_BACKUP_DIR` */
export function baseFolder(root: string, server: string): BaseFolder {
  const folder = join(root, server);
  return {
    root: folder,
    wal: join(folder, 'wal'),
    base: id => join(folder, `base-${id}`),
    scratch: name => join(folder, `scratch-${name}`),
  };
}

export async function createBaseFolder({ root, wal }: BaseFolder): Promise<void> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  await mkdir(wal, { recursive: true, mode: 0o700 });
}

/** Returns the names of the servers that have a folder in `BASE_BACKUP_DIR`. */
export async function listBaseFolders(root: string): Promise<string[]> {
  const entries = await readdir(root, { withFileTypes: true }).catch(() => []);
  return entries
    .filter(entry => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
}

/** Returns the complete base backups of a server, oldest first. One that is removed meanwhile is left out. */
export async function listBaseBackups(folder: BaseFolder): Promise<BaseBackup[]> {
  const names = await readdir(folder.root).catch(() => []);
  const ids = names.map(name => /^base-([0-9TZ]+)$/.exec(name)?.[1]).filter(id => id !== undefined);
  const bases = await Promise.all(ids.sort().map(id => readBaseBackup(folder, id)));
  return bases.filter(base => base !== undefined);
}

async function readBaseBackup(folder: BaseFolder, id: string): Promise<BaseBackup | undefined> {
  try {
    return manifestContract.parse(JSON.parse(await readFile(join(folder.base(id), 'manifest.json'), 'utf8')));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}

/**
 * Returns the newest base backup that was complete before a moment.
 * @throws {OperatorError} when there is none
 */
export async function findBaseBackup(folder: BaseFolder, server: string, moment: Date): Promise<BaseBackup> {
  const bases = await listBaseBackups(folder);
  const base = bases.findLast(({ finishedAt }) => new Date(finishedAt) <= moment);
  if (base) return base;
  const oldest = bases[0];
  throw new OperatorError(
    oldest
      ? `The oldest base backup of server ${server} is of ${oldest.finishedAt}: restore to a later moment, or from an ` +
          'archive (backup list shows them)'
      : `There is no base backup of server ${server} in ${folder.root}. Make one, for later: npx backoffice ` +
          'backup base. Restore from an archive now (backup list shows them)',
  );
}

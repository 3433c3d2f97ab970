import { randomUUID } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { OperatorError } from '../../../log/operator-error.ts';
import type { BackupTarget, StoredFile } from './backup-target.ts';
import { TargetCalls, type TargetLimits, targetLimits } from './target-calls.ts';

/** Only the login of the command line may read archives. */
const folderMode = 0o700;
const fileMode = 0o600;
const unfinished = '.unfinished';
const readBytes = 256 * 1024;
/** A file is flushed after each of these, so that no flush of a large one takes as long as a silent call may. */
const flushBytes = 16 * 1024 * 1024;

/** Waits for one operation of the file system, as a step of a call. */
type Wait = <T>(step: () => Promise<T>) => Promise<T>;

/**
 * Stores archives in a folder, such as a mounted disk. A file is written under another name, flushed to the disk and
 * then renamed, so that a file with its final name is complete also after a power failure. An operation that hangs, as
 * on a mount whose server is away, fails its call. It keeps the process until it ends, or the process is killed.
 * @param root absolute path
 */
export function folderTarget(root: string, { maxSilenceMs }: TargetLimits = targetLimits): BackupTarget {
  const description = `folder ${root}`;
  const calls = new TargetCalls(description, 'Check its mount and its disk', maxSilenceMs);
  const waitFor =
    (call: string): Wait =>
    step =>
      calls.wait(call, async () => {
        try {
          return await step();
        } catch (error) {
          throw explainFailure(description, call, error as NodeJS.ErrnoException);
        } finally {
          calls.answered();
        }
      });
  return {
    description,
    check: async () => {
      const probe = unfinishedPath(join(root, 'write-test'));
      try {
        await calls.wait('check the target', async () => {
          await (await open(probe, 'w', fileMode)).close();
          await rm(probe);
        });
      } catch (cause) {
        if (cause instanceof OperatorError) throw cause;
        const { code } = cause as NodeJS.ErrnoException;
        throw new OperatorError(
          code === 'ENOENT'
            ? `The folder of BACKUP_TARGET does not exist: ${root}. Mount it, or make it: mkdir -m 700 -p ${root}`
            : `The folder of BACKUP_TARGET cannot be written (${code}): ${root}. Mount it, or give this login the right to write`,
          { cause },
        );
      }
    },
    write: (name, bytes) => writeFile(join(root, name), bytes, waitFor(`write ${name}`)),
    read: async name => {
      const wait = waitFor(`read ${name}`);
      const path = join(root, name);
      const isFile = await wait(() => stat(path).then(found => found.isFile(), ignoreMissing));
      return isFile ? chunksOf(path, wait) : undefined;
    },
    remove: name => waitFor(`remove ${name}`)(() => rm(join(root, name), { force: true }).catch(ignoreMissing)),
    list: prefix => listFiles(root, prefix, waitFor(`list ${prefix}`)),
    removeUnfinished: async folder => {
      const wait = waitFor('remove unfinished files');
      for await (const path of filesBelow(join(root, folder), wait))
        if (path.endsWith(unfinished)) await wait(() => rm(path, { force: true }));
    },
  };
}

/** Returns another path each time: a purge and a run may write the same file, the mark of a purge, at the same time. */
function unfinishedPath(path: string): string {
  return `${path}.${randomUUID()}${unfinished}`;
}

async function writeFile(path: string, bytes: AsyncIterable<Buffer>, wait: Wait): Promise<number> {
  const temporary = unfinishedPath(path);
  await wait(() => mkdir(dirname(path), { recursive: true, mode: folderMode }));
  const file = await openFile(temporary, 'w', wait);
  let length = 0;
  let unflushed = 0;
  try {
    for await (const chunk of bytes) {
      await wait(() => file.writeFile(chunk)); // continues at the end of what was written before
      length += chunk.length;
      unflushed += chunk.length;
      if (unflushed < flushBytes) continue;
      await wait(() => file.datasync());
      unflushed = 0;
    }
    await wait(() => file.sync());
    await wait(() => file.close());
    await wait(() => rename(temporary, path));
  } catch (error) {
    await wait(() => file.close()).catch(() => {}); // of a closed file: without effect
    await wait(() => rm(temporary, { force: true })).catch(() => {});
    throw error;
  }
  await wait(() => syncFolder(dirname(path)));
  return length;
}

/** Writes the names in a folder to the disk. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  await folder.sync().finally(() => folder.close());
}

async function openFile(path: string, flags: string, wait: Wait): Promise<FileHandle> {
  let isLate = false;
  const opened = wait(async () => {
    const file = await open(path, flags, fileMode);
    if (isLate) await file.close();
    return file;
  });
  return opened.catch(error => {
    isLate = true;
    throw error;
  });
}

/** Only the time of a read counts, not that of a reader who is busy. */
async function* chunksOf(path: string, wait: Wait): AsyncGenerator<Buffer> {
  const file = await openFile(path, 'r', wait);
  try {
    for (;;) {
      const { bytesRead, buffer } = await wait(() => file.read(Buffer.allocUnsafe(readBytes)));
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    void file.close().catch(() => {}); // not awaited: it waits for a read that hangs
  }
}

async function* listFiles(root: string, prefix: string, wait: Wait): AsyncGenerator<StoredFile> {
  for await (const path of filesBelow(root, wait)) {
    const name = relative(root, path).split(sep).join('/');
    if (!name.startsWith(prefix) || name.endsWith(unfinished)) continue;
    const file = await wait(() => stat(path).catch(ignoreMissing));
    if (file) yield { name, bytes: file.size };
  }
}

/** Reads one folder at a time, because a large tree takes longer than a call may be silent. */
async function* filesBelow(folder: string, wait: Wait): AsyncGenerator<string> {
  const entries = await wait(() => readdir(folder, { withFileTypes: true }).catch(ignoreMissing));
  for (const entry of entries ?? []) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesBelow(path, wait);
    else if (entry.isFile()) yield path;
  }
}

/** A folder in the place of a file is no file. */
function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (!['ENOENT', 'ENOTDIR', 'ERR_FS_EISDIR'].includes(error.code ?? '')) throw error;
}

function explainFailure(description: string, call: string, cause: NodeJS.ErrnoException): Error {
  const { code } = cause;
  if (code === undefined) return cause;
  const what: Readonly<Record<string, string>> = {
    EISDIR: `has a folder in the place of a file: ${call} (${code}). Move it away, then try again`,
    ENOTDIR: `has a file in the place of a folder: ${call} (${code}). Move it away, then try again`,
    ENOSPC: `is full: ${call} (${code}). Make room, then try again`,
  };
  const otherwise = `cannot be used: ${call} (${code}). Check its mount and the rights of this login, then try again`;
  return new OperatorError(`${description} ${what[code] ?? otherwise}`, { cause });
}

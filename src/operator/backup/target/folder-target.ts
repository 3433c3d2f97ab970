import { createHash, randomUUID } from 'node:crypto';
import {
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
} from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import {
  type Erased,
  FullTargetError,
  MissingObjectError,
  type StoredDocument,
  type StoredObject,
  type Target,
  type WriteConditions,
} from './target.ts';
import { TargetCalls, type TargetLimits, targetLimits } from './target-calls.ts';

/** The file that makes a folder a target. Only its presence counts. */
export const markerFile = 'backup-target.txt';
const markerText =
  'This folder has archives of a sales back office. "backup init" has written this file: a folder without it\n' +
  'is taken for a disk that is not mounted, and nothing is written there.\n';

/** The mode of folders: only the login of the command line may read archives. */
const folderMode = 0o700;
const fileMode = 0o600;
const unfinished = '.unfinished';
const readBytes = 256 * 1024;
/**
 * The number of bytes after which a file is flushed, so that no flush of a large file takes as
 * long as a call may be silent.
 */
const flushBytes = 16 * 1024 * 1024;
/** Files whose size is read at the same time, in a listing. */
const statsAtOnce = 32;
/** Maximum time between two checks of a lock file that another process has. */
const lockPauseMs = 200;

/**
 * Stores archives in a folder, such as a mounted disk. A file is written under another name,
 * flushed to the disk and then renamed, so that a file with its final name is complete also
 * after a power failure. On a file system that cannot flush folders, a power failure may lose
 * the name. When an operation hangs, as on a mount whose server is away, its call fails; the
 * operation keeps the process alive until it ends, or the process is killed.
 */
export class FolderTarget implements Target {
  readonly description: string;
  readonly #root: string;
  readonly #calls: TargetCalls;
  readonly #maxSilenceMs: number;

  /** @param root absolute path */
  constructor(root: string, limits: TargetLimits = targetLimits) {
    this.description = `folder ${root}`;
    this.#root = root;
    this.#maxSilenceMs = limits.maxSilenceMs;
    this.#calls = new TargetCalls(this.description, 'Check its mount and its disk', limits);
  }

  async check(): Promise<void> {
    await this.#checkFolder();
    await this.#requireMarker('check the target');
  }

  async mark(): Promise<void> {
    await this.#checkFolder();
    if (await this.#wait('check the target', () => this.#exists(markerFile))) return;

    await this.#writeFile(markerFile, Readable.from([Buffer.from(markerText)]));
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    const call = `list ${prefix}`;
    const folder = prefix.slice(0, prefix.lastIndexOf('/') + 1);

    for await (const paths of this.#filesIn(folder, call)) {
      const named = paths
        .map(path => ({ path, name: relative(this.#root, path).split(sep).join('/') }))
        .filter(
          ({ name }) =>
            name.startsWith(prefix) && !name.endsWith(unfinished) && name !== markerFile,
        );

      for (let at = 0; at < named.length; at += statsAtOnce) {
        const stats = named.slice(at, at + statsAtOnce).map(async ({ path, name }) => {
          const file = await stat(path).catch(ignoreMissing);
          return file && { name, size: file.size, modifiedAt: file.mtime };
        });
        const found = await this.#wait(call, () => Promise.all(stats));

        for (const object of found) {
          if (object) yield object;
        }
      }
    }
  }

  async read(name: string): Promise<Readable> {
    const call = `read ${name}`;
    const path = this.#path(name);
    const isFile = await this.#wait(call, () =>
      stat(path).then(found => found.isFile(), ignoreMissing),
    );
    if (!isFile) throw new MissingObjectError(this.description, name);

    return Readable.from(this.#chunksOf(path, call), { objectMode: false });
  }

  async write(name: string, body: Readable): Promise<{ size: number }> {
    await this.#requireMarker(`write ${name}`);

    return this.#writeFile(name, body);
  }

  async #writeFile(name: string, body: Readable): Promise<{ size: number }> {
    const call = `write ${name}`;
    const path = this.#path(name);
    const temporary = unfinishedPath(path);

    const made = await this.#wait(call, () =>
      mkdir(dirname(path), { recursive: true, mode: folderMode }),
    );
    const file = await this.#openFile(temporary, 'w', call);

    try {
      const size = await this.#fill(file, body, call);
      await this.#wait(call, () => file.sync());
      await this.#wait(call, () => file.close());
      await this.#wait(call, () => rename(temporary, path));
      for (const folder of changedFolders(path, made)) {
        await this.#wait(call, () => syncFolder(folder));
      }

      return { size };
    } catch (error) {
      body.destroy();
      // Not awaited: closing a file waits for a write that hangs.
      void file.close().catch(() => {});
      await this.#wait(call, () => rm(temporary, { force: true })).catch(() => {});
      throw error;
    }
  }

  async remove(name: string): Promise<void> {
    await this.#wait(`remove ${name}`, () =>
      rm(this.#path(name), { force: true }).catch(ignoreMissing),
    );
  }

  async erase(prefix: string): Promise<Erased> {
    const left: string[] = [];
    let removed = 0;
    let error: string | null = null;

    for await (const { name } of this.list(prefix)) {
      try {
        await this.remove(name);
        removed++;
      } catch (cause) {
        left.push(name);
        error = (cause as Error).message;
      }
    }
    await this.removeUnfinished(prefix);
    if (left.length === 0 && prefix.endsWith('/')) {
      removed += await this.#removeFolder(this.#path(prefix).slice(0, -1), `remove ${prefix}`);
    }

    return { removed, left, error };
  }

  /**
   * Removes a folder with everything in it that is no file, such as links, and nothing that is
   * behind a link.
   * @returns the number of things that were removed, without folders
   */
  async #removeFolder(path: string, call: string): Promise<number> {
    const found = await this.#wait(call, () => lstat(path).catch(ignoreMissing));
    if (!found) return 0;
    if (!found.isDirectory()) {
      await this.#wait(call, () => rm(path, { force: true }));
      return 1;
    }

    let removed = 0;
    for (const name of await this.#wait(call, () => readdir(path))) {
      removed += await this.#removeFolder(join(path, name), call);
    }
    await rmdir(path).catch(() => {}); // an empty folder harms nobody

    return removed;
  }

  async removeUnfinished(prefix: string): Promise<void> {
    const call = 'remove unfinished files';

    for await (const paths of this.#filesIn(prefix, call)) {
      for (const path of paths) {
        if (path.endsWith(unfinished)) await this.#wait(call, () => rm(path, { force: true }));
      }
    }
  }

  async readDocument(name: string): Promise<StoredDocument | undefined> {
    const text = await this.#wait(`read ${name}`, () =>
      readFile(this.#path(name), 'utf8').catch(ignoreMissing),
    );

    return text === undefined ? undefined : { text, version: versionOf(text) };
  }

  async replaceDocument(name: string, text: string, former: string | undefined): Promise<boolean> {
    await this.#requireMarker(`write ${name}`);
    await this.#wait(`write ${name}`, () =>
      mkdir(dirname(this.#path(name)), { recursive: true, mode: folderMode }),
    );

    return this.#withLockFile(name, async () => {
      const present = await this.readDocument(name);
      if (present?.version !== former) return false;

      await this.write(name, Readable.from([Buffer.from(text)]));
      return true;
    });
  }

  /** Returns true for both conditions, which a folder has by a lock file. */
  tryConditions(): Promise<WriteConditions> {
    return Promise.resolve({ ifNoneMatch: true, ifMatch: true });
  }

  #path(name: string): string {
    return join(this.#root, name);
  }

  async #exists(name: string): Promise<boolean> {
    return (await stat(this.#path(name)).catch(ignoreMissing)) !== undefined;
  }

  /**
   * Requires the file of `backup init` before each write: a disk can be unmounted in the middle
   * of a run, and the archives would go into the folder below it.
   * @throws {OperatorError} when it is not there
   */
  async #requireMarker(call: string): Promise<void> {
    if (await this.#wait(call, () => this.#exists(markerFile))) return;

    throw new OperatorError(
      `${this.description} is no backup target yet, or is not mounted: it has no file ${markerFile}. ` +
        `If it is the right place, and new: bin/backoffice backup init (a copy of a target: touch ${join(this.#root, markerFile)})`,
    );
  }

  /**
   * Checks that the folder exists. It need not be writable: a host that only reads may mount it
   * so.
   * @throws {OperatorError} when it does not exist
   */
  async #checkFolder(): Promise<void> {
    const root = this.#root;
    const found = await this.#wait('check the target', () => stat(root).catch(ignoreMissing));
    if (found?.isDirectory()) return;

    throw new OperatorError(
      `The folder of BACKUP_TARGET does not exist: ${root}. Mount it, or make it: mkdir -m 700 -p ${root}`,
    );
  }

  /** Waits for one operation of the file system, as a step of a call. */
  #wait<T>(call: string, step: () => Promise<T>): Promise<T> {
    return this.#calls.wait(call, async () => {
      try {
        return await step();
      } catch (error) {
        throw explainFailure(this.description, call, error as NodeJS.ErrnoException);
      } finally {
        this.#calls.answered();
      }
    });
  }

  async #fill(file: FileHandle, body: Readable, call: string): Promise<number> {
    let size = 0;
    let unflushed = 0;

    for await (const chunk of body) {
      // Each call continues at the end of the bytes that were written before.
      await this.#wait(call, () => file.writeFile(chunk));
      size += chunk.length;
      unflushed += chunk.length;

      if (unflushed >= flushBytes) {
        await this.#wait(call, () => file.datasync());
        unflushed = 0;
      }
    }

    return size;
  }

  async #openFile(path: string, flags: string, call: string): Promise<FileHandle> {
    let isLate = false;

    const opened = this.#wait(call, async () => {
      const file = await open(path, flags, fileMode);
      if (isLate) await file.close();
      return file;
    });

    return opened.catch(error => {
      isLate = true;
      throw error;
    });
  }

  /**
   * Yields the chunks of a file. Only the time of a read counts as silence, not the time for
   * which the consumer is busy.
   */
  async *#chunksOf(path: string, call: string): AsyncGenerator<Buffer> {
    const file = await this.#openFile(path, 'r', call);

    try {
      for (;;) {
        const { bytesRead, buffer } = await this.#wait(call, () =>
          file.read(Buffer.allocUnsafe(readBytes)),
        );
        if (bytesRead === 0) return;
        yield buffer.subarray(0, bytesRead);
      }
    } finally {
      void file.close().catch(() => {}); // not awaited: it waits for a read that hangs
    }
  }

  /**
   * Returns the files below a folder of the target, those of one folder at a time.
   * @throws {OperatorError} for a link in its place, or in that of a folder above it
   */
  async *#filesIn(folder: string, call: string): AsyncGenerator<string[]> {
    const parts = folder.split('/').filter(part => part !== '');
    for (let depth = 1; depth <= parts.length; depth++) {
      const path = join(this.#root, ...parts.slice(0, depth));
      const found = await this.#wait(call, () => lstat(path).catch(ignoreMissing));
      if (found?.isSymbolicLink()) await this.#refuseLinkedFolder(path, call);
    }

    yield* this.#filesBelow(join(this.#root, folder), call);
  }

  /**
   * Returns the files of one folder at a time, because a large tree takes longer than a call
   * may be silent.
   */
  async *#filesBelow(folder: string, call: string): AsyncGenerator<string[]> {
    const entries = await this.#wait(call, () =>
      readdir(folder, { withFileTypes: true }).catch(ignoreMissing),
    );
    if (!entries) return;

    yield entries.filter(entry => entry.isFile()).map(entry => join(folder, entry.name));

    for (const entry of entries) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) yield* this.#filesBelow(path, call);
      if (entry.isSymbolicLink()) await this.#refuseLinkedFolder(path, call);
    }
  }

  /**
   * Refuses a link in the place of a folder. A removal does not follow links, because it would
   * remove the files behind them. But a write goes through a link, and no listing would have
   * the archives.
   * @throws {OperatorError} for a link in the place of a folder of an installation
   */
  async #refuseLinkedFolder(path: string, call: string): Promise<void> {
    const name = relative(this.#root, path);
    if (!/^[0-9a-f]{8}-[0-9a-f-]{27}(?:$|[/\\])/.test(name)) return;

    const found = await this.#wait(call, () => stat(path).catch(() => undefined));
    if (!found?.isDirectory()) return;

    throw new OperatorError(
      `${this.description} has a symbolic link in the place of a folder, which is not followed: ${name}. ` +
        'Mount there what it points to (mount --bind), then try again',
    );
  }

  /**
   * Runs `work` while no other process has the lock file of a document. Of two processes that
   * take an abandoned one at the same moment, one may remove the new lock of the other, so that
   * both write: the last one has the file, which the other finds when it reads the file again
   * (`Claim.confirm`).
   */
  async #withLockFile<T>(name: string, work: () => Promise<T>): Promise<T> {
    const call = `lock ${name}`;
    const path = this.#path(`${name}.lock`);
    const id = randomUUID();

    await this.#takeLock(path, id, call);

    try {
      return await work();
    } finally {
      const isMine = (await this.#readLock(path, call)) === id;
      if (isMine) await this.#wait(call, () => rm(path, { force: true }));
    }
  }

  /**
   * Waits for a lock file. It is held for some milliseconds: one that stays for as long as a
   * call may be silent was left by a killed process, and is removed. Only the time of this
   * process counts, because the clock of a mount can differ.
   */
  async #takeLock(path: string, id: string, call: string): Promise<void> {
    let seen: string | undefined;
    let since = performance.now();

    while (!(await this.#wait(call, () => createLock(path, id)))) {
      const holder = await this.#readLock(path, call);

      if (holder !== seen) {
        seen = holder;
        since = performance.now();
      } else if (performance.now() - since >= this.#maxSilenceMs) {
        await this.#wait(call, () => rm(path, { force: true }));
      } else {
        await sleep(lockPauseMs * Math.random()); // so that two do not wake at the same moment
      }
    }
  }

  /** @returns undefined when there is no lock file */
  #readLock(path: string, call: string): Promise<string | undefined> {
    return this.#wait(call, () => readFile(path, 'utf8').catch(ignoreMissing));
  }
}

/**
 * Creates a lock file, and removes it again if it could not be written.
 * @returns false when there is one
 */
async function createLock(path: string, id: string): Promise<boolean> {
  const file = await open(path, 'wx', fileMode).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  if (!file) return false;

  try {
    await file.writeFile(id);
    await file.close();
    return true;
  } catch (error) {
    await file.close().catch(() => {});
    await rm(path, { force: true });
    throw error;
  }
}

/** Returns another path each time, so that two writers of a file do not meet. */
function unfinishedPath(path: string): string {
  return `${path}.${randomUUID()}${unfinished}`;
}

/**
 * Returns the folders that have a new entry: those on the way to a file.
 * @param made the first folder that was made for it; undefined: none was
 */
function changedFolders(path: string, made: string | undefined): string[] {
  const folders = [dirname(path)];
  while (made !== undefined && folders[0] !== dirname(made)) {
    folders.unshift(dirname(folders[0] ?? made));
  }
  return folders;
}

/**
 * Answers of a file system that cannot flush a folder: some that are on a network or in a
 * program (FUSE), which write names by themselves. PostgreSQL goes on after them, too
 * (`fsync_fname_ext`).
 */
const unflushable = ['EINVAL', 'EBADF', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'];

/** Writes the names in a folder to the disk, where the file system can do so. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } catch (error) {
    if (!unflushable.includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  } finally {
    await folder.close();
  }
}

function versionOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Ignores the error of a missing file, also where a folder has the name of the file. */
function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (!['ENOENT', 'ENOTDIR', 'ERR_FS_EISDIR'].includes(error.code ?? '')) throw error;
}

function explainFailure(description: string, call: string, cause: NodeJS.ErrnoException): Error {
  const { code } = cause;
  if (code === undefined || cause instanceof OperatorError) return cause;

  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new FullTargetError(
      `${description} is full: ${call} (${code}). Make room, then try again`,
      { cause },
    );
  }

  const what: Readonly<Record<string, string>> = {
    EFBIG: `takes no file of this size: ${call} (${code}). Use a file system with larger files, and set no limit of them (ulimit -f)`,
    EISDIR: `has a folder in the place of a file: ${call} (${code}). Move it away, then try again`,
    ENOTDIR: `has a file in the place of a folder: ${call} (${code}). Move it away, then try again`,
    EROFS: `is mounted to be read only: ${call} (${code}). Mount it to be written`,
  };
  const otherwise = `cannot be used: ${call} (${code}). Check its mount and the rights of this login, then try again`;

  return new OperatorError(`${description} ${what[code] ?? otherwise}`, { cause });
}

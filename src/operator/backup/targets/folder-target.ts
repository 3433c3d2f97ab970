import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { OperatorError } from '../../../operator-error.ts';
import type { BackupTarget } from './backup-target.ts';

/** Only the login of the command line may read archives. */
const folderMode = 0o700;
const fileMode = 0o600;
const unfinished = '.unfinished';

/**
 * Stores archives in a folder, such as a mounted disk. A file is written under another name, flushed to the disk and
 * then renamed, so that a file with its final name is complete also after a power failure.
 * @param root absolute path
 */
export function folderTarget(root: string): BackupTarget {
  return {
    description: `folder ${root}`,
    check: async () => {
      const probe = join(root, `write-test-${process.pid}${unfinished}`);
      try {
        await (await open(probe, 'w', fileMode)).close();
        await rm(probe);
      } catch (cause) {
        const { code } = cause as NodeJS.ErrnoException;
        throw new OperatorError(
          code === 'ENOENT'
            ? `The folder of BACKUP_TARGET does not exist: ${root}. Mount it, or make it: mkdir -m 700 -p ${root}`
            : `The folder of BACKUP_TARGET cannot be written (${code}): ${root}. Mount it, or give this login the right to write`,
          { cause },
        );
      }
    },
    write: (name, bytes) => writeFile(join(root, name), bytes),
    read: async name => {
      const path = join(root, name);
      const isFile = await stat(path).then(
        file => file.isFile(),
        error => ignoreMissing(error) ?? false,
      );
      return isFile ? createReadStream(path, { highWaterMark: 256 * 1024 }) : undefined;
    },
    remove: name => rm(join(root, name), { force: true }),
    list: prefix => listFiles(root, prefix),
    removeUnfinished: async () => {
      for (const path of await filesBelow(root)) if (path.endsWith(unfinished)) await rm(path, { force: true });
    },
  };
}

async function writeFile(path: string, bytes: AsyncIterable<Buffer>): Promise<number> {
  const temporary = `${path}${unfinished}`;
  await mkdir(dirname(path), { recursive: true, mode: folderMode });
  const file = await open(temporary, 'w', fileMode);
  let length = 0;
  try {
    for await (const chunk of bytes) {
      await file.writeFile(chunk); // continues at the end of what was written before
      length += chunk.length;
    }
    await file.sync();
  } catch (error) {
    await file.close();
    await rm(temporary, { force: true });
    throw error;
  }
  await file.close();
  await rename(temporary, path);
  await syncFolder(dirname(path));
  return length;
}

/** Writes the names in a folder to the disk. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  await folder.sync().finally(() => folder.close());
}

async function* listFiles(root: string, prefix: string) {
  for (const path of await filesBelow(root)) {
    const name = relative(root, path).split(sep).join('/');
    if (!name.startsWith(prefix) || name.endsWith(unfinished)) continue;
    const file = await stat(path).catch(ignoreMissing);
    if (file) yield { name, bytes: file.size };
  }
}

async function filesBelow(root: string): Promise<string[]> {
  const entries = (await readdir(root, { recursive: true, withFileTypes: true }).catch(ignoreMissing)) ?? [];
  return entries.filter(entry => entry.isFile()).map(entry => join(entry.parentPath, entry.name));
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error;
}

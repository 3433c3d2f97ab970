import { execFile } from 'node:child_process';
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { environment } from './run.ts';

const execute = promisify(execFile);

const present = join(import.meta.dirname, '../..');
const maxOutput = 64 * 1024 * 1024; // bytes

/**
 * Checks a commit out into a new folder, as a worktree of this clone, with its packages: linked
 * from this folder if the lock file of the commit is that of this folder, otherwise installed.
 */
export async function checkOutBuild(commit: string, folder: string): Promise<void> {
  await git('worktree', 'add', '--detach', folder, commit);

  const [wanted, installed] = await Promise.all(
    [folder, present].map(root => readFile(join(root, 'package-lock.json'), 'utf8')),
  );
  if (wanted === installed) await linkPackages(folder);
  else await installPackages(folder);
}

/** Removes what `checkOutBuild` has made, also after it has failed. */
export async function removeBuild(folder: string): Promise<void> {
  await git('worktree', 'remove', '--force', '--force', folder).catch(() =>
    git('worktree', 'prune'),
  );
}

/**
 * Links every file of the present packages, or copies them where the folder is on another file
 * system.
 */
async function linkPackages(folder: string): Promise<void> {
  const [from, to] = [join(present, 'node_modules'), join(folder, 'node_modules')];
  await execute('cp', ['-al', from, to]).catch(() =>
    cp(from, to, { recursive: true, verbatimSymlinks: true, force: true }),
  );
}

async function installPackages(folder: string): Promise<void> {
  try {
    await execute('npm', ['ci', '--no-audit', '--no-fund', '--prefer-offline'], {
      cwd: folder,
      env: environment,
      maxBuffer: maxOutput,
    });
  } catch (error) {
    throw new Error(
      `npm ci failed in the checkout: ${(error as { stderr?: string }).stderr?.trim() ?? error}`,
    );
  }
}

/**
 * Runs git in this folder.
 * @returns what it prints, without the last line break
 */
export async function git(...args: string[]): Promise<string> {
  const { stdout } = await execute('git', args, { cwd: present, maxBuffer: maxOutput });
  return stdout.trimEnd();
}

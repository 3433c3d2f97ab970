import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { MigrationFolder } from '../../src/lib/postgres/migration-names.ts';
import { loadMigrations } from '../../src/lib/postgres/migration-steps.ts';
import { runScript } from './command-line.ts';
import { endCommands } from './run-command.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const run = promisify(execFile);

/** The files of an earlier commit of this project, with the `node_modules` of this one. */
export interface EarlierBuild {
  readonly commit: string;
  readonly folder: string;
  remove(): Promise<void>;
}

/**
 * Returns the commits before each migration that is declared to be compatible, the oldest
 * first, back to the last migration that is not: builds that must be able to use the schema of
 * this one. It is empty outside of a git clone.
 */
export async function compatibleCommits(): Promise<string[]> {
  const folders: MigrationFolder[] = ['control', 'tenant'];
  const migrations = (await Promise.all(folders.map(compatibleFiles))).flat();
  const commits = await Promise.all(migrations.map(commitBefore));
  const found = [...new Set(commits.filter(commit => commit !== undefined))];
  const serving = await Promise.all(
    found.map(async commit => (await hasKnownMigrations(commit)) && commit),
  );
  const dated = serving
    .filter(commit => commit !== false)
    .map(async commit => ({ commit, age: await ageOf(commit) }));
  return (await Promise.all(dated)).sort((a, b) => a.age - b.age).map(({ commit }) => commit);
}

/** Writes the files of a commit to a folder under the temporary one. */
export async function checkOut(commit: string): Promise<EarlierBuild> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-earlier-'));
  await run('sh', ['-c', 'git archive "$0" | tar -x -C "$1"', commit, folder], { cwd: root });
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
  return {
    commit,
    folder,
    remove: () => {
      endCommands(folder);
      return rm(folder, { recursive: true });
    },
  };
}

/**
 * Checks out the newest commit whose command line runs: one in the middle of a series may not.
 */
export async function checkOutNewest(): Promise<EarlierBuild | undefined> {
  for (const commit of (await compatibleCommits()).reverse()) {
    const build = await checkOut(commit);
    if ((await runScript(join(build.folder, 'scripts/tenant.ts'), ['--help'], {})).code === 0) {
      return build;
    }
    await build.remove();
  }
  return undefined;
}

/**
 * Replaces the migrations of an earlier build by those of this one, as if this one had migrated
 * its databases.
 */
export async function useMigrationsOfThisBuild({ folder }: EarlierBuild): Promise<void> {
  await rm(join(folder, 'migrations'), { recursive: true });
  await cp(join(root, 'migrations'), join(folder, 'migrations'), { recursive: true });
}

/** The files of the newest migrations that are declared to be compatible. */
async function compatibleFiles(folder: MigrationFolder): Promise<string[]> {
  const migrations = await loadMigrations(folder);
  const last = migrations.findLastIndex(({ compatible }) => !compatible);
  return migrations.slice(last + 1).map(({ name }) => fileOf(folder, name));
}

/**
 * The commit before the one that added a file; the newest one while the file is not committed.
 */
async function commitBefore(file: string): Promise<string | undefined> {
  const added = await git('log', '--diff-filter=A', '--format=%H', '--', file);
  return git('rev-parse', added ? `${added.split('\n').at(-1)}^` : 'HEAD');
}

/**
 * Returns true if a commit has every migration that is not compatible, without which it cannot
 * use the schema, and none that this build does not have: one in the middle of a series may
 * have it under another name.
 */
async function hasKnownMigrations(commit: string): Promise<boolean> {
  const folders = (['control', 'tenant'] as const).map(async folder => {
    const migrations = await loadMigrations(folder);
    const required = migrations.findLast(({ compatible }) => !compatible)?.name;
    const listed =
      (await git('ls-tree', '--name-only', commit, '--', `migrations/${folder}/`))?.split('\n') ??
      [];
    const known = new Set(migrations.map(({ name }) => fileOf(folder, name)));
    return (
      listed.every(file => known.has(file) || !/\/\d{4}-/.test(file)) &&
      (required === undefined || listed.includes(fileOf(folder, required)))
    );
  });
  return (await Promise.all(folders)).every(Boolean);
}

async function ageOf(commit: string): Promise<number> {
  return Number(await git('rev-list', '--count', commit));
}

function fileOf(folder: MigrationFolder, name: string): string {
  return `migrations/${folder}/${name}.ts`;
}

/**
 * Returns what git prints; undefined when it fails, as outside of a clone or before the first
 * commit.
 */
async function git(...args: string[]): Promise<string | undefined> {
  return run('git', args, { cwd: root }).then(
    ({ stdout }) => stdout.trim(),
    () => undefined,
  );
}

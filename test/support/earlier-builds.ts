import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { checkOutBuild, git, removeBuild } from '../../deploy/release/former-build.ts';
import { type ReleasedMigrations, readReleased } from '../../deploy/release/released-migrations.ts';
import type { MigrationFolder } from '../../src/lib/postgres/migration-names.ts';
import { loadMigrations } from '../../src/lib/postgres/migration-steps.ts';
import { root } from './command-line.ts';
import type { CopiedBuild } from './next-build.ts';
import { endCommands } from './run-command.ts';

/** A released build in a worktree of the clone, with its packages. */
export interface EarlierBuild extends CopiedBuild {
  /** The version, or the commit that stands for one. */
  readonly name: string;
}

/**
 * Returns the releases that the migrations of this build are compatible with, the oldest first:
 * builds that must be able to serve its schema. Before the first release, the last commit
 * stands for one.
 */
export async function compatibleReleases(): Promise<{ name: string; commit: string }[]> {
  const releases = await readReleased(root);
  if (releases.length === 0) {
    return [{ name: 'the last commit', commit: await git('rev-parse', 'HEAD') }];
  }

  const served = await Promise.all(
    releases.map(async release => (await isServedBy(release)) && release),
  );
  return served
    .filter(release => release !== false)
    .map(({ version, commit }) => ({ name: version, commit }));
}

/** Returns true if all migrations after a release are declared to be compatible. */
async function isServedBy(release: ReleasedMigrations): Promise<boolean> {
  const folders: MigrationFolder[] = ['control', 'tenant'];
  const later = folders.map(async folder =>
    (await loadMigrations(folder)).slice(release[folder].length),
  );

  return (await Promise.all(later)).flat().every(({ compatible }) => compatible);
}

/** Makes the build of a release from the history. */
export async function makeEarlierBuild({
  name,
  commit,
}: {
  name: string;
  commit: string;
}): Promise<EarlierBuild> {
  const parent = await mkdtemp(join(tmpdir(), 'backoffice-earlier-'));
  const folder = join(parent, 'build');
  await checkOutBuild(commit, folder);

  return {
    name,
    file: path => join(folder, path),
    remove: async () => {
      endCommands(folder);
      await removeBuild(folder);
      await rm(parent, { recursive: true, force: true });
    },
  };
}

/**
 * Replaces the migrations of an earlier build by those of this one, as if this one had migrated
 * its databases.
 */
export async function useMigrationsOfThisBuild({ file }: EarlierBuild): Promise<void> {
  await rm(file('migrations'), { recursive: true });
  await cp(join(root, 'migrations'), file('migrations'), { recursive: true });
}

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { checkOutBuild, git } from '../deploy/release/former-build.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import type { Credentials } from './baseline.ts';
import { progress } from './bench-progress.ts';
import type { Child, Children } from './children.ts';
import { startReady } from './targets.ts';

const run = promisify(execFile);

const present = fileURLToPath(new URL('../', import.meta.url));

/** A build of the project in a folder, with its packages. */
export interface Build {
  /**
   * The short name of the build in reports: a commit, with `+` if the folder has changes that
   * are not committed.
   */
  readonly name: string;
  readonly folder: string;
}

/** An installation of one build: its control database, with one tenant. */
export interface BuildInstallation {
  readonly build: Build;
  readonly settings: Readonly<Record<string, string>>;
  readonly guid: string;
  readonly admin: Credentials;
}

/** Returns the build of this folder, with the changes that are not committed. */
export async function presentBuild(): Promise<Build> {
  const commit = await git('rev-parse', '--short=8', 'HEAD');
  const changes = await git('status', '--porcelain', '--untracked-files=no');

  return { name: changes === '' ? commit : `${commit}+`, folder: present };
}

/**
 * Returns the name of the build of this folder; without a clone of the repository, its version.
 */
export async function presentName(): Promise<string> {
  const { version } = JSON.parse(await readFile(join(present, 'package.json'), 'utf8'));

  return presentBuild().then(
    ({ name }) => `commit ${name}`,
    () => `version ${version}`,
  );
}

/**
 * Finds the commit of a revision.
 * @throws {Error} with a sentence for the reader, if there is none
 */
export async function findCommit(revision: string): Promise<string> {
  await git('rev-parse', '--git-dir').catch(() => {
    throw new Error('--against needs git and a clone of the repository');
  });
  // The options of git cannot be reached by a revision behind this one.
  return git('rev-parse', '--verify', '--quiet', '--end-of-options', `${revision}^{commit}`).catch(
    () => {
      throw new Error(
        `--against: this repository has no commit '${revision}' (a shallow clone has few: git fetch --unshallow)`,
      );
    },
  );
}

/** Checks a commit out into a folder, with its packages. */
export async function checkOut(commit: string, folder: string): Promise<Build> {
  progress(`checking out ${commit.slice(0, 8)}, with its packages`);
  await checkOutBuild(commit, folder);

  return { name: commit.slice(0, 8), folder };
}

/**
 * Makes the installation of a build by its own command line: a control database with the name
 * of the build, and one tenant.
 */
export async function installBuild(
  build: Build,
  serverUrl: string,
  slug: string,
): Promise<BuildInstallation> {
  progress(`installing ${build.name}: control database, tenant ${slug}`);
  const settings = {
    DATABASE_URL: databaseUrl(serverUrl, `control_${slug}`),
    MASTER_KEY: randomBytes(32).toString('base64'),
    DATA_DIR: join(build.folder, '.data'),
  };
  await command(build, settings, 'control', 'migrate');

  const args = ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`, '--json'];
  const { guid, admin } = JSON.parse(await command(build, settings, ...args));

  return { build, settings, guid, admin };
}

/**
 * Starts the service of an installation as its `npm start` does, and waits until it is ready.
 */
export async function startBuild(
  children: Children,
  { build, settings }: BuildInstallation,
  further: Record<string, string>,
): Promise<{ url: string; child: Child }> {
  const { scripts } = JSON.parse(await readFile(join(build.folder, 'package.json'), 'utf8'));
  const launch = { command: 'sh', args: ['-c', scripts.start], folder: build.folder };
  const environment = { ...settings, ...further, PATH: pathOf(build) };
  const { port, child } = await startReady(children, build.name, launch, environment);

  return { url: `http://127.0.0.1:${port}`, child };
}

/**
 * Runs the command line of a build.
 * @returns what it prints
 */
async function command(
  build: Build,
  settings: Record<string, string>,
  ...args: string[]
): Promise<string> {
  const env = { ...settings, PATH: pathOf(build) };
  try {
    const { stdout } = await run(join(build.folder, 'bin/backoffice'), args, {
      cwd: build.folder,
      env,
    });
    return stdout;
  } catch (error) {
    const { stderr = '', stdout = '' } = error as { stderr?: string; stdout?: string };
    throw new Error(
      `${build.name}: backoffice ${args.join(' ')} failed: ${stderr.trim() || stdout.trim()}`,
    );
  }
}

/** The Node of the build comes first in its PATH. */
function pathOf({ folder }: Build): string {
  return [join(folder, 'node_modules/.bin'), process.env.PATH].join(delimiter);
}

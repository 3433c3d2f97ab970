import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { releaseNotes } from './changelog.ts';
import { readReleased, releasedFolder } from './released-migrations.ts';
import { ReleaseError, run, tryRun } from './run.ts';

/** What is released. */
export interface Release {
  readonly version: string;
  readonly commit: string;
  /** Its part of the changelog. */
  readonly notes: string;
  /** The address of the repository, if its remote `origin` has one that others can open. */
  readonly source: string | undefined;
}

/**
 * Checks what has to hold before a version is frozen, or anything is made of it.
 * @param root folder of the clone
 * @throws {ReleaseError} with all sentences at once
 */
export async function checkConditions(root: string): Promise<Release> {
  const version = await versionOf(root, 'package.json');
  const changelog = await readFile(join(root, 'CHANGELOG.md'), 'utf8');
  const commit = run(root, 'git', 'rev-parse', 'HEAD').trim();
  const { notes, faults } = releaseNotes(changelog, version);

  const sentences = [...changedFiles(root), ...(await otherVersions(root, version)), ...faults];
  if (sentences.length > 0) throw new ReleaseError(sentences.join('\n'));

  return { version, commit, notes, source: sourceOf(root) };
}

/**
 * Finds the commit from which a version is made: the one that its file names.
 * @param release of HEAD
 * @throws {ReleaseError} when the version is not frozen, or HEAD has something else than it
 */
export async function findFrozen(root: string, release: Release): Promise<Release> {
  const { version } = release;
  const frozen = (await readReleased(root)).find(each => each.version === version);
  if (!frozen) {
    throw new ReleaseError(`The schema of ${version} is not frozen: npm run -s freeze.`);
  }

  const { commit } = frozen;
  const differs = ['diff', '--quiet', commit, 'HEAD', '--', '.', `:!${releasedFolder}`];
  if (tryRun(root, 'git', ...differs) === undefined) {
    throw new ReleaseError(
      `This commit differs from ${commit.slice(0, 12)}, whose tree is ${version}: what is released goes on as a new version.`,
    );
  }

  return { ...release, commit };
}

async function versionOf(root: string, file: string): Promise<string> {
  return JSON.parse(await readFile(join(root, file), 'utf8')).version;
}

function changedFiles(root: string): string[] {
  const lines = run(root, 'git', 'status', '--porcelain').trimEnd().split('\n').filter(Boolean);
  if (lines.length === 0) return [];

  const names = lines.slice(0, 5).map(line => line.slice(3));
  return [
    `The tree has changes that are not committed (${names.join(', ')}): commit or remove them.`,
  ];
}

/** Each package has the version of the service: the client is made for it. */
async function otherVersions(root: string, version: string): Promise<string[]> {
  const files = [
    'package-lock.json',
    'clients/typescript/package.json',
    'clients/typescript/package-lock.json',
  ];
  const versions = await Promise.all(files.map(file => versionOf(root, file)));

  return files.flatMap((file, index) =>
    versions[index] === version
      ? []
      : [
          `${file} has version ${versions[index]}, and package.json ${version}: give both the same.`,
        ],
  );
}

/** Without a login, which such an address can have. */
function sourceOf(root: string): string | undefined {
  const origin =
    run(root, 'git', 'remote') === ''
      ? ''
      : run(root, 'git', 'config', '--default', '', 'remote.origin.url');
  if (!/^https?:/.test(origin)) return undefined;

  const url = new URL(origin.trim());
  url.username = '';
  url.password = '';
  return url.href.replace(/\.git$/, '');
}

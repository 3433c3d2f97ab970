import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MigrationFolder } from '../../src/lib/postgres/migration-names.ts';
import {
  type LoadedMigration,
  loadMigrations,
  migrationQueries,
} from '../../src/lib/postgres/migration-steps.ts';
import { tryRun } from './run.ts';

/** The folder of the files that say what each release has, beside the migrations. */
export const releasedFolder = 'migrations/released';

/** The first version that is published: from it on, each version has its file. */
const firstPublished = '0.2.0';

/** A migration, as a release has it. */
export interface ReleasedMigration {
  readonly name: string;
  /** SHA-256, in hexadecimal, of the SQL of both directions and of `compatible`. */
  readonly digest: string;
}

/** What `migrations/released/<version>.json` says. */
export interface ReleasedMigrations
  extends Readonly<Record<MigrationFolder, readonly ReleasedMigration[]>> {
  readonly version: string;
  /** The commit whose tree is the release: the parent of the one that added the file. */
  readonly commit: string;
}

const migrationFolders = ['control', 'tenant'] as const;

/** Returns the path of the file of a version, from the root of the project. */
export function releasedFile(version: string): string {
  return `${releasedFolder}/${version}.json`;
}

/**
 * Reads the files of all releases, the oldest first.
 * @param root folder of the clone
 */
export async function readReleased(root: string): Promise<ReleasedMigrations[]> {
  const names = await readdir(join(root, releasedFolder)).catch(() => []);
  const files = names.filter(name => name.endsWith('.json'));
  const releases = files.map(async (name): Promise<ReleasedMigrations> => {
    return JSON.parse(await readFile(join(root, releasedFolder, name), 'utf8'));
  });

  return (await Promise.all(releases)).sort((a, b) => compareVersions(a.version, b.version));
}

/**
 * Returns the migrations of this build with the digests of what they yield: their pages, and
 * what helpers such as `grant` make of their arguments, included.
 */
export async function presentMigrations(): Promise<Record<MigrationFolder, ReleasedMigration[]>> {
  const [control = [], tenant = []] = await Promise.all(
    migrationFolders.map(async folder => Promise.all((await loadMigrations(folder)).map(digestOf))),
  );

  return { control, tenant };
}

async function digestOf(migration: LoadedMigration): Promise<ReleasedMigration> {
  const { name, compatible } = migration;
  const up = await migrationQueries(migration, 'up');
  const down = await migrationQueries(migration, 'down').catch(() => null);
  const text = JSON.stringify({ compatible, up, down }).replaceAll('\\r\\n', '\\n');

  return { name, digest: createHash('sha256').update(text).digest('hex') };
}

/**
 * Compares the migrations of this build, whose databases go on from those of each release, with
 * the files of the releases, and these with the history.
 * @param root folder of the clone
 * @returns a sentence for each fault
 */
export async function findReleaseFaults(root: string): Promise<string[]> {
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const releases = await readReleased(root);
  const isMissing =
    compareVersions(version, firstPublished) >= 0 &&
    !releases.some(release => release.version === version);
  const missing = isMissing
    ? [
        `package.json has version ${version}, and ${releasedFile(version)} is missing: freeze its schema, by npm run -s freeze.`,
      ]
    : [];
  const present = await presentMigrations();

  return [
    ...missing,
    ...historyFaults(root, releases),
    ...releases.flatMap(release => migrationFaults(release, present)),
  ];
}

/**
 * Checks that each file is as the commit after its release has added it. A clone needs its
 * history back to the oldest release for that.
 */
function historyFaults(root: string, releases: readonly ReleasedMigrations[]): string[] {
  const [oldest] = releases;
  if (!oldest) return [];

  const isShallow = tryRun(root, 'git', 'rev-parse', '--is-shallow-repository')?.trim();
  if (isShallow !== 'false') {
    const cause = isShallow === 'true' ? 'this clone is shallow' : 'this is no clone';
    return [
      `The files of ${releasedFolder} are compared with the history back to ${oldest.commit}, the commit of ${oldest.version}, and ${cause}: git fetch --unshallow, or fetch-depth: 0 for actions/checkout.`,
    ];
  }

  return releases.flatMap(({ version, commit }) => {
    const file = releasedFile(version);
    if (tryRun(root, 'git', 'merge-base', '--is-ancestor', commit, 'HEAD') === undefined) {
      return [`${file} names ${commit}, which is not in the history of HEAD.`];
    }

    const added = ['log', '--diff-filter=A', '--format=%H %P', '-1', '--', file];
    const [adding, ...parents] =
      tryRun(root, 'git', ...added)
        ?.trim()
        .split(' ') ?? [];
    if (!adding) return [`${file} is not committed: npm run -s freeze commits it.`];
    if (!parents.includes(commit)) {
      return [
        `${file} names ${commit}, and was added by ${adding}, which does not follow that commit: remove the file, and freeze the version anew.`,
      ];
    }
    if (tryRun(root, 'git', 'diff', '--quiet', adding, '--', file) === undefined) {
      return [`${file} was changed after ${adding} has added it: take the change back.`];
    }

    return [];
  });
}

/**
 * Checks that the migrations of a release come first, in its order, and yield what they did.
 */
function migrationFaults(
  release: ReleasedMigrations,
  present: Readonly<Record<MigrationFolder, readonly ReleasedMigration[]>>,
): string[] {
  return migrationFolders.flatMap(folder =>
    release[folder].flatMap(({ name, digest }, index) => {
      const found = present[folder].find(migration => migration.name === name);
      const subject = `migrations/${folder}/${name}`;
      if (!found) return [`${subject} is missing, and databases of ${release.version} have it.`];
      if (found.digest !== digest) {
        return [
          `${subject} yields other SQL than in ${release.version}, which databases have: take the change back, and write another migration (migrations/README.md).`,
        ];
      }
      if (present[folder].indexOf(found) !== index) {
        return [
          `${subject} was number ${index + 1} in ${release.version}: a new migration gets the next number.`,
        ];
      }

      return [];
    }),
  );
}

/** Returns a number below, at or above 0, as `a` is before, at or after `b`. */
function compareVersions(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}

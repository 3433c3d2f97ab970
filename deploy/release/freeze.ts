import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checkConditions } from './conditions.ts';
import {
  findReleaseFaults,
  presentMigrations,
  type ReleasedMigrations,
  readReleased,
  releasedFile,
  releasedFolder,
} from './released-migrations.ts';
import { ReleaseError, reportFailure, run } from './run.ts';

// Freezes the schema of the version of this commit: npm run -s freeze. Writes the digests of
// the migrations to migrations/released, commits the file, and sets the tag of the version on
// the commit before, whose tree is the release. CONTRIBUTING.md has the steps around it.

const root = join(import.meta.dirname, '../..');

async function main(): Promise<void> {
  const { version, commit } = await checkConditions(root);
  const file = releasedFile(version);
  const releases = await readReleased(root);
  if (releases.some(release => release.version === version)) {
    throw new ReleaseError(`${file} exists: what follows ${version} gets a version of its own.`);
  }

  const released: ReleasedMigrations = { version, commit, ...(await presentMigrations()) };
  await mkdir(join(root, releasedFolder), { recursive: true });
  await writeFile(join(root, file), `${JSON.stringify(released, null, 2)}\n`);
  run(root, 'git', 'add', file);
  run(root, 'git', 'commit', '--quiet', '--message', `Freeze the schema of ${version}`, '--', file);
  console.log(`${file} names ${commit}, whose tree is ${version}.`);

  setTag(`v${version}`, commit);

  const faults = await findReleaseFaults(root);
  if (faults.length > 0) throw new ReleaseError(faults.join('\n'));
}

/** Sets a tag for people: nothing reads it, so a clone that takes none loses nothing. */
function setTag(tag: string, commit: string): void {
  try {
    run(root, 'git', 'tag', '--annotate', tag, '--message', tag.slice(1), commit);
    console.log(`The tag ${tag} is on that commit.`);
  } catch (error) {
    if (!(error instanceof ReleaseError)) throw error;
    console.log(
      `No tag was set, which changes nothing: git tag -a ${tag} -m ${tag.slice(1)} ${commit}\n${error.message}`,
    );
  }
}

await reportFailure(main);

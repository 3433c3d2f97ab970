import { join, resolve } from 'node:path';
import { checkOutBuild } from './former-build.ts';
import { readReleased } from './released-migrations.ts';

// Makes the build of a released version from the history of this clone, with its packages:
// npm run -s former-build -- VERSION FOLDER

const [version, given] = process.argv.slice(2);
const releases = await readReleased(join(import.meta.dirname, '../..'));
const release = releases.find(each => each.version === version);

if (!version || !given) {
  console.error('Name a version and a new folder: npm run -s former-build -- 0.2.0 ../former');
  process.exitCode = 1;
} else if (!release) {
  const names = releases.map(each => each.version).join(', ') || 'none';
  console.error(`${version} is no released version. migrations/released has: ${names}`);
  process.exitCode = 1;
} else {
  // npm runs this in the folder of the project: a relative one begins where somebody typed it.
  const folder = resolve(process.env.INIT_CWD ?? '.', given);
  await checkOutBuild(release.commit, folder);
  console.log(
    `${folder} has the build of ${version} (${release.commit.slice(0, 12)}). Afterwards: git worktree remove --force ${folder}`,
  );
}

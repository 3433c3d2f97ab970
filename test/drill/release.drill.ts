import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { whyLeftOut } from '../deploy/engines/machine.ts';
import { root, startProgram } from '../support/command-line.ts';

/** A version that no release has. */
const version = '99.0.0';

/**
 * A release of the last commit. Its image replaces one of this machine, so it is made where
 * everything may be changed, and left out elsewhere.
 */
describe('drill: a release', function () {
  this.timeout(900_000);
  let folder: string;
  let withoutImage: string | undefined;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-release-drill-'));
    withoutImage = whyLeftOut(['docker', 'version']);
    if (withoutImage) console.log(`      the image: ${withoutImage}`);
  });
  after(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  const git = (...args: string[]): string =>
    execFileSync('git', ['-c', 'user.name=n', '-c', 'user.email=n@example.com', ...args], {
      cwd: join(folder, 'clone'),
      encoding: 'utf8',
    });

  it('from a clean clone, one command freezes the schema, and one makes the source, the client, the SBOM and their checksums, and tries each of them', async () => {
    execFileSync('git', ['clone', '-q', root, join(folder, 'clone')]);
    for (const part of ['clone', 'clone/clients/typescript']) {
      execFileSync('npm', ['version', version, '--no-git-tag-version'], {
        cwd: join(folder, part),
        stdio: 'ignore',
      });
    }
    const changelog = `## [${version}] - 2026-11-30\n\n- Everything.\n`;
    await writeFile(join(folder, 'clone/CHANGELOG.md'), changelog);
    git('commit', '-qam', 'Name the version');
    git('config', 'user.name', 'n');
    git('config', 'user.email', 'n@example.com');
    execFileSync('npm', ['ci'], { cwd: join(folder, 'clone'), stdio: 'ignore' });
    execFileSync('npm', ['run', '-s', 'freeze'], { cwd: join(folder, 'clone'), stdio: 'ignore' });

    const made = join(folder, 'made');
    const { code, stdout, stderr } = await startProgram(
      'npm',
      ['--prefix', join(folder, 'clone'), 'run', '-s', 'release', '--', '--into', made],
      {
        HOME: process.env.HOME ?? folder,
        ...(withoutImage && { DOCKER_HOST: 'unix:///nowhere' }),
      },
    ).ended;

    expect(code, `${stdout}${stderr}`).to.equal(0);
    expect(await readdir(made)).to.have.members([
      'RELEASE-NOTES.md',
      'SHA256SUMS',
      ...(withoutImage ? [] : [`sales-back-office-${version}-image.tar.gz`]),
      `sales-back-office-${version}.cdx.json`,
      `sales-back-office-${version}.tar.gz`,
      `sales-back-office-client-${version}.tgz`,
    ]);
    const notes = await readFile(join(made, 'RELEASE-NOTES.md'), 'utf8');
    expect(notes).to.match(new RegExp(`^# ${version}\\n\\n- Everything\\.\\n\\n### Files\\n`));
    for (const name of (await readdir(made)).filter(each => each !== 'RELEASE-NOTES.md')) {
      expect(notes, name).to.include(`\n- \`${name}\`: `);
    }
    execFileSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: made });
  });

  it('the image of the release says of which version and commit it is', async function () {
    if (withoutImage) this.skip();

    const labels = execFileSync(
      'docker',
      ['image', 'inspect', '-f', '{{json .Config.Labels}}', `backoffice:${version}`],
      { encoding: 'utf8' },
    );

    expect(JSON.parse(labels)).to.include({
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.revision': git('rev-parse', `v${version}^{commit}`).trim(),
    });
  });
});

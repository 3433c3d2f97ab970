import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { writeChecksums } from '../../deploy/release/artefacts.ts';
import { releaseNotes } from '../../deploy/release/changelog.ts';
import { checkChecksums } from '../../deploy/release/checks.ts';
import { checkConditions, findFrozen } from '../../deploy/release/conditions.ts';
import { listedPackages, makeSbom } from '../../deploy/release/sbom.ts';
import { root } from '../support/command-line.ts';

const changelog = `# Changelog

## [Unreleased]

## [1.2.0] - 2026-11-30

### Added

- Something: [how](docs/guide.md), [why](https://example.com/why).

## [1.1.0] - 2026-10-01

- Before.
`;

describe('a release', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-release-test-'));
  });
  afterEach(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  const git = (...args: string[]): string =>
    execFileSync('git', ['-c', 'user.name=n', '-c', 'user.email=n@example.com', ...args], {
      cwd: folder,
      encoding: 'utf8',
    });
  const write = (file: string, content: unknown): Promise<void> =>
    writeFile(join(folder, file), typeof content === 'string' ? content : JSON.stringify(content));

  /** Makes a repository that can be released, with one commit. */
  async function makeRepository(): Promise<void> {
    await mkdir(join(folder, 'clients/typescript'), { recursive: true });
    for (const file of ['package.json', 'package-lock.json']) {
      await write(file, { version: '1.2.0' });
      await write(`clients/typescript/${file}`, { version: '1.2.0' });
    }
    await write('CHANGELOG.md', changelog);
    git('init', '-q');
    git('add', '.');
    git('commit', '-q', '-m', 'first');
  }

  /** Returns the sentences with which a release is refused. */
  async function refusals(): Promise<string[]> {
    const error = await checkConditions(folder).then(
      () => new Error(''),
      (reason: Error) => reason,
    );
    return error.message.split('\n').filter(Boolean);
  }

  it('a clean clone whose versions and changelog agree can be released, with the notes of its version alone', async () => {
    await makeRepository();

    const release = await checkConditions(folder);

    expect(release).to.deep.equal({
      version: '1.2.0',
      commit: git('rev-parse', 'HEAD').trim(),
      notes:
        '# 1.2.0\n\n### Added\n\n- Something: how (`docs/guide.md`), [why](https://example.com/why).\n',
      source: undefined,
    });
  });

  it('a refused release names all reasons at once, each in a sentence that says what to do', async () => {
    await makeRepository();
    await write('clients/typescript/package.json', { version: '1.1.0' });
    git('commit', '-qam', 'second');
    await write('CHANGELOG.md', changelog.replace('[Unreleased]', '[Unreleased]\n\n- Waiting.'));

    const sentences = await refusals();

    expect(sentences).to.have.length(3);
    expect(sentences[0]).to.equal(
      'The tree has changes that are not committed (CHANGELOG.md): commit or remove them.',
    );
    expect(sentences[1]).to.equal(
      'clients/typescript/package.json has version 1.1.0, and package.json 1.2.0: give both the same.',
    );
    expect(sentences[2]).to.equal(
      'CHANGELOG.md has changes under [Unreleased]: move them to the section of 1.2.0.',
    );
  });

  it('a version is made from the commit that its file names, and refused without the file, and at a commit with something else', async () => {
    await makeRepository();
    const commit = git('rev-parse', 'HEAD').trim();
    const made = async (): Promise<string> =>
      findFrozen(folder, await checkConditions(folder)).then(
        release => release.commit,
        (error: Error) => error.message,
      );

    expect(await made()).to.equal('The schema of 1.2.0 is not frozen: npm run -s freeze.');

    await mkdir(join(folder, 'migrations/released'), { recursive: true });
    await write('migrations/released/1.2.0.json', { version: '1.2.0', commit });
    git('add', '.');
    git('commit', '-qm', 'freeze');
    expect(await made()).to.equal(commit);

    await write('further.txt', 'further');
    git('add', '.');
    git('commit', '-qm', 'further');
    expect(await made()).to.equal(
      `This commit differs from ${commit.slice(0, 12)}, whose tree is 1.2.0: what is released goes on as a new version.`,
    );
  });

  it('the address of the repository loses its login', async () => {
    await makeRepository();
    git('remote', 'add', 'origin', 'https://someone:secret@git.example.com/sales/back-office.git');

    expect((await checkConditions(folder)).source).to.equal(
      'https://git.example.com/sales/back-office',
    );
  });

  it('a changelog without the version, without its date or without a text is refused', () => {
    const faultOf = (text: string): readonly string[] => releaseNotes(text, '1.2.0').faults;

    expect(faultOf('# Changelog\n')).to.deep.equal([
      'The newest section of CHANGELOG.md is missing, and package.json has version 1.2.0.',
    ]);
    expect(faultOf(changelog.replaceAll('1.2.0', '1.3.0'))).to.deep.equal([
      'The newest section of CHANGELOG.md is 1.3.0, and package.json has version 1.2.0.',
    ]);
    expect(faultOf(changelog.replace(' - 2026-11-30', ''))).to.deep.equal([
      'The section of 1.2.0 in CHANGELOG.md has no date: write "## [1.2.0] - YYYY-MM-DD".',
    ]);
    expect(faultOf('## [1.2.0] - 2026-11-30\n\n## [1.1.0] - 2026-10-01\n')).to.deep.equal([
      'The section of 1.2.0 in CHANGELOG.md is empty.',
    ]);
  });

  it('the SBOM has the packages that the service needs, whether or not development needs them too, and no others', async () => {
    const { dependencies, devDependencies } = JSON.parse(
      await readFile(join(root, 'package.json'), 'utf8'),
    );

    const { components } = JSON.parse(await makeSbom(root));

    const listed = listedPackages(components);
    const versions = Object.entries<string>(dependencies).map(
      ([name, version]) => `${name}@${version}`,
    );
    expect(listed).to.include.members(versions);
    expect(listed).to.not.include(`mocha@${devDependencies.mocha}`);
  });

  it('a file that was changed after its checksum was written, or that has none, is named', async () => {
    const workshop = { root, made: folder, work: folder, source: folder };
    await write('first.txt', 'first');
    await writeChecksums(workshop);
    await checkChecksums(workshop);
    const check = (): Promise<string> =>
      checkChecksums(workshop).then(
        () => 'holds',
        (error: Error) => error.message,
      );

    await write('second.txt', 'second');
    expect(await check()).to.equal('second.txt is not what SHA256SUMS says.');
    await rm(join(folder, 'second.txt'));
    await write('first.txt', 'changed');
    expect(await check()).to.equal('first.txt is not what SHA256SUMS says.');
  });
});

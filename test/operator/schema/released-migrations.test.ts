import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import type { ReleasedMigrations } from '../../../deploy/release/released-migrations.ts';
import { type CopiedBuild, copyBuild } from '../../support/next-build.ts';
import { useFolder } from '../../support/use.ts';

const run = promisify(execFile);

/** A migration whose SQL is made by helpers of `sql.ts`. */
const brands = `
import { Migration } from '@mikro-orm/migrations';
import { audit, grant } from './sql.ts';

export class Brands extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('create table brands (id integer primary key)');
    this.addSql(grant('select', 'brands'));
    this.addSql(audit('brands', 'Brand', 'id'));
  }

  override down(): void {
    this.addSql('drop table brands');
  }
}
`;

const page = 'migrations/tenant/0001-first-schema.sql';
const second = 'migrations/tenant/0002-brands.ts';

describe('released migrations', function () {
  this.timeout(120_000);
  const scratch = useFolder();
  let build: CopiedBuild;

  before(async () => {
    build = await copyBuild('src', 'migrations', 'scripts', 'deploy', '.ci');
    await writeFile(build.file(second), brands);
    await writeFile(build.file('.gitignore'), 'node_modules\n');
    await rm(build.file('migrations/released'), { recursive: true, force: true });
    await setVersion('0.2.0');
    await git('init', '--quiet', '--initial-branch', 'main');
    await commit();
    await freezeOn('frozen');
  });
  beforeEach(async () => {
    await git('checkout', '--quiet', '--force', 'main');
    await git('clean', '--quiet', '--force', '-d');
    const tags = (await git('tag')).split('\n').filter(Boolean);
    await git('tag', '--delete', ...tags);
  });
  after(() => build.remove());

  const git = async (...args: string[]): Promise<string> =>
    (await run('git', args, { cwd: build.file('.'), env: identity() })).stdout.trim();

  const commit = async (): Promise<void> => {
    await git('add', '--all');
    await git('commit', '--quiet', '--message', 'change');
  };

  /** Gives all packages a version, and the changelog its section. */
  const setVersion = async (version: string): Promise<void> => {
    const text = JSON.parse(await readFile(build.file('package.json'), 'utf8'));
    await writeFile(build.file('package.json'), JSON.stringify({ ...text, version }));
    await mkdir(build.file('clients/typescript'), { recursive: true });
    for (const path of [
      'package-lock.json',
      'clients/typescript/package.json',
      'clients/typescript/package-lock.json',
    ]) {
      await writeFile(build.file(path), JSON.stringify({ version }));
    }
    await writeFile(
      build.file('CHANGELOG.md'),
      `# Changelog\n\n## [${version}] - 2026-11-30\n\n- All.\n`,
    );
  };

  const freeze = () => attempt('deploy/release/freeze.ts');

  /** Runs a script of the copy, and returns what it prints. */
  const attempt = (script: string, ...args: string[]) =>
    run(process.execPath, [build.file(script), ...args], {
      cwd: build.file('.'),
      env: identity(),
    }).then(
      ({ stdout }) => ({ code: 0, stdout, stderr: '' }),
      ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
    );

  /** Returns what the check of CI says; empty: it accepts the build. */
  const check = (folder = build.file('.')): Promise<string> =>
    run(join(folder, '.ci/released-migrations'), { env: identity() }).then(
      () => '',
      ({ stderr }: { stderr: string }) => stderr,
    );

  const edit = async (path: string, before: string, after: string): Promise<void> => {
    const text = await readFile(build.file(path), 'utf8');
    expect(text).to.include(before);
    await writeFile(build.file(path), text.replace(before, after));
  };

  /** Freezes 0.2.0 on a new branch. */
  const freezeOn = async (branch: string): Promise<void> => {
    await git('checkout', '--quiet', '-B', branch);
    const { code, stdout, stderr } = await freeze();
    expect(code, stdout + stderr).to.equal(0);
  };

  /** Goes on with the build in which 0.2.0 is frozen. */
  const frozen = () => git('checkout', '--quiet', '--force', '-B', 'after', 'frozen');

  const yieldsOther = (name: string): string =>
    `migrations/${name} yields other SQL than in 0.2.0, which databases have: take the change back, and write another migration (migrations/README.md).\n`;

  it('before 0.2.0, no file is needed, and a first schema may be edited', async () => {
    await setVersion('0.1.9');
    await edit(page, 'create table', '-- edited\ncreate table');

    expect(await check()).to.equal('');
  });

  it('from 0.2.0 on, CI refuses a version without its file, and names the command that writes it', async () => {
    const sentence = (version: string): string =>
      `package.json has version ${version}, and migrations/released/${version}.json is missing: freeze its schema, by npm run -s freeze.\n`;

    expect(await check()).to.equal(sentence('0.2.0'));
    await frozen();
    expect(await check()).to.equal('');
    await setVersion('0.10.0');
    expect(await check()).to.equal(sentence('0.10.0'));
  });

  it('the freeze commits the file of the version alone, which names its parent, and sets a tag that nothing reads', async () => {
    const parent = await git('rev-parse', 'HEAD');

    await freezeOn('own');

    const released: ReleasedMigrations = JSON.parse(
      await readFile(build.file('migrations/released/0.2.0.json'), 'utf8'),
    );
    expect(released.version).to.equal('0.2.0');
    expect(released.commit).to.equal(parent);
    expect(released.control.map(({ name }) => name)).to.deep.equal(await namesIn('control'));
    expect(released.tenant.map(({ name }) => name)).to.deep.equal(await namesIn('tenant'));
    expect(await git('rev-parse', 'HEAD^')).to.equal(parent);
    expect(await git('diff', '--name-only', 'HEAD^')).to.equal('migrations/released/0.2.0.json');
    expect(await git('rev-parse', 'v0.2.0^{commit}')).to.equal(parent);

    await git('tag', '--delete', 'v0.2.0');
    expect(await check()).to.equal('');
  });

  it('a freeze goes on where no tag can be set, and is refused for changes that are not committed and for a version that has its file', async () => {
    await git('checkout', '--quiet', '-B', 'own');
    await writeFile(build.file('further.txt'), 'further');
    const dirty = await freeze();
    expect(dirty.code).to.equal(1);
    expect(dirty.stderr).to.include('The tree has changes that are not committed (further.txt)');
    await rm(build.file('further.txt'));

    await git('tag', 'v0.2.0');
    const { code, stdout } = await freeze();
    expect(code).to.equal(0);
    expect(stdout).to.include('No tag was set, which changes nothing: git tag -a v0.2.0');
    expect(await check()).to.equal('');

    const again = await freeze();
    expect(again.code).to.equal(1);
    expect(again.stderr).to.include('migrations/released/0.2.0.json exists');
  });

  it('a new migration after those of the release is accepted, and so is a comment of the code of one', async () => {
    await frozen();
    await writeFile(build.file('migrations/tenant/0003-sizes.ts'), brands);
    await edit(second, 'export class', '/** Brands. */\nexport class');

    expect(await check()).to.equal('');
  });

  for (const [change, make, refused] of [
    [
      'a word of a page',
      () => edit(page, 'create table', 'create  table'),
      'tenant/0001-first-schema',
    ],
    [
      'the page of the control database',
      () => edit('migrations/control/0001-first-schema.sql', 'create table', '\ncreate table'),
      'control/0001-first-schema',
    ],
    [
      'a helper that a migration calls',
      () => edit('migrations/tenant/sql.ts', 'for each row execute', 'for each row\n execute'),
      'tenant/0002-brands',
    ],
    [
      'the order of statements',
      () =>
        edit(
          second,
          `this.addSql(grant('select', 'brands'));\n    this.addSql(audit('brands', 'Brand', 'id'));`,
          `this.addSql(audit('brands', 'Brand', 'id'));\n    this.addSql(grant('select', 'brands'));`,
        ),
      'tenant/0002-brands',
    ],
    [
      'what undoes a migration',
      () => edit(second, 'drop table', 'drop  table'),
      'tenant/0002-brands',
    ],
    [
      'whether a migration is compatible',
      () => edit(second, 'compatible = true', 'compatible = false'),
      'tenant/0002-brands',
    ],
  ] as const) {
    it(`from the file on, CI refuses a change of ${change}`, async () => {
      await frozen();
      await make();

      expect(await check()).to.equal(yieldsOther(refused));
    });
  }

  it('from the file on, CI refuses another order of migrations, and a migration that is missing', async () => {
    await frozen();
    await writeFile(build.file('migrations/tenant/0002-a.ts'), brands);
    expect(await check()).to.equal(
      'migrations/tenant/0002-brands was number 2 in 0.2.0: a new migration gets the next number.\n',
    );

    await rm(build.file('migrations/tenant/0002-a.ts'));
    await rename(build.file(second), build.file('migrations/tenant/0003-brands.ts'));
    expect(await check()).to.equal(
      'migrations/tenant/0002-brands is missing, and databases of 0.2.0 have it.\n',
    );
  });

  it('CI refuses a file that was changed or moved to another history, and one that is not committed', async () => {
    await frozen();
    const added = await git('rev-parse', 'HEAD');
    const { commit: named } = JSON.parse(
      await readFile(build.file('migrations/released/0.2.0.json'), 'utf8'),
    );
    await edit('migrations/released/0.2.0.json', '"version": "0.2.0",', '"version":  "0.2.0",');
    expect(await check()).to.equal(
      `migrations/released/0.2.0.json was changed after ${added} has added it: take the change back.\n`,
    );
    await git('checkout', '--quiet', '.');

    await git('reset', '--quiet', '--soft', 'HEAD^');
    expect(await check()).to.equal(
      'migrations/released/0.2.0.json is not committed: npm run -s freeze commits it.\n',
    );

    await writeFile(build.file('further.txt'), 'further');
    await git('add', 'further.txt');
    await git('commit', '--quiet', '--message', 'further', '--', 'further.txt');
    await commit();
    const moved = await git('rev-parse', 'HEAD');
    expect(await check()).to.equal(
      `migrations/released/0.2.0.json names ${named}, and was added by ${moved}, which does not follow that commit: remove the file, and freeze the version anew.\n`,
    );

    await git('checkout', '--quiet', '--orphan', 'orphan');
    await commit();
    expect(await check()).to.equal(
      `migrations/released/0.2.0.json names ${named}, which is not in the history of HEAD.\n`,
    );
  });

  it('CI names the history that it needs, and fails in a shallow clone', async () => {
    await frozen();
    const named = await git('rev-parse', 'HEAD^');
    const shallow = join(scratch, 'shallow');
    await git('clone', '--quiet', '--depth', '2', `file://${build.file('.')}`, shallow);
    await run('cp', ['-a', build.file('node_modules'), shallow]);

    expect(await check(shallow)).to.equal(
      `The files of migrations/released are compared with the history back to ${named}, the commit of 0.2.0, and this clone is shallow: git fetch --unshallow, or fetch-depth: 0 for actions/checkout.\n`,
    );

    await run('git', ['fetch', '--quiet', '--unshallow'], { cwd: shallow });
    expect(await check(shallow)).to.equal('');
  });

  it('a second release is frozen from the commit of the first one, and both files stay', async () => {
    await frozen();
    await git('checkout', '--quiet', '-B', 'patch', 'HEAD^');
    await setVersion('0.2.1');
    await commit();
    const patch = await freeze();
    expect(patch.code, patch.stderr).to.equal(0);

    await frozen();
    await git('merge', '--quiet', '--no-edit', 'patch');
    expect(await readdir(build.file('migrations/released'))).to.deep.equal([
      '0.2.0.json',
      '0.2.1.json',
    ]);
    expect(await check()).to.equal('');
  });

  it('the build of a released version is made from the history, with its packages, and runs', async () => {
    await frozen();
    await writeFile(build.file('migrations/tenant/0003-sizes.ts'), brands);
    await commit();
    const former = join(scratch, 'former');
    const make = (...args: string[]) => attempt('deploy/release/make-former-build.ts', ...args);

    const made = await make('0.2.0', former);
    expect(made.code, made.stderr).to.equal(0);
    expect(made.stdout).to.include(`${former} has the build of 0.2.0 (`);
    const { stdout } = await run(process.execPath, [
      join(former, 'scripts/tenant.ts'),
      '--version',
    ]);
    expect(stdout).to.include('0.2.0').and.to.include('0002-brands');

    const unknown = await make('0.3.0', join(scratch, 'unknown'));
    expect(unknown.code).to.equal(1);
    expect(unknown.stderr).to.equal(
      '0.3.0 is no released version. migrations/released has: 0.2.0\n',
    );
    expect((await make()).stderr).to.match(
      /^Name a version and a new folder: npm run -s former-build/,
    );
  });

  const namesIn = async (folder: string): Promise<string[]> =>
    (await readdir(build.file(`migrations/${folder}`)))
      .filter(name => /^\d.*\.ts$/.test(name))
      .map(name => name.slice(0, -'.ts'.length))
      .sort();
});

/** The environment of git, with an author and without the settings of this machine. */
function identity(): Record<string, string> {
  return {
    PATH: process.env.PATH ?? '',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_AUTHOR_NAME: 'test',
    GIT_AUTHOR_EMAIL: 'test@example.test',
    GIT_COMMITTER_NAME: 'test',
    GIT_COMMITTER_EMAIL: 'test@example.test',
  };
}

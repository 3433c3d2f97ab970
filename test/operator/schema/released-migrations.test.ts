import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';

const script = fileURLToPath(new URL('../../../.ci/released-migrations', import.meta.url));
const run = promisify(execFile);

describe('released migrations', () => {
  let folder = '';
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-released-'));
    for (const kind of ['control', 'tenant']) {
      await mkdir(join(folder, 'migrations', kind), { recursive: true });
      await write(kind, '0001-first-schema.sql', 'select 1;');
    }
    await git('init', '--quiet');
    await commit();
  });
  afterEach(() => rm(folder, { recursive: true }));

  const write = (kind: string, name: string, text: string) =>
    writeFile(join(folder, 'migrations', kind, name), text);
  const git = (...args: string[]) =>
    run('git', ['-c', 'user.name=test', '-c', 'user.email=test@example.test', ...args], {
      cwd: folder,
    });
  const commit = async () => {
    await git('add', '.');
    await git('commit', '--quiet', '--message', 'change');
  };
  const check = () =>
    run(script, { cwd: folder }).then(
      () => '',
      ({ stderr }: { stderr: string }) => stderr,
    );

  it('before the first tag a first schema may be edited', async () => {
    await write('tenant', '0001-first-schema.sql', 'select 2;');
    expect(await check()).to.equal('');
  });

  it('from the tag on, CI refuses a changed or removed migration of it, and accepts a new one', async () => {
    await write('tenant', '0001-first-schema.sql', 'select 2;');
    await commit();
    await git('tag', '0.1.0');
    await write('tenant', '0002-brands.ts', 'export {};');
    await commit();
    expect(await check()).to.equal('');

    await write('tenant', '0001-first-schema.sql', 'select 3;');
    await rm(join(folder, 'migrations/control/0001-first-schema.sql'));
    expect(await check()).to.equal(
      'Changed since 0.1.0, which databases have: migrations/control/0001-first-schema.sql, ' +
        'migrations/tenant/0001-first-schema.sql. Write another migration: migrations/README.md\n',
    );
  });
});

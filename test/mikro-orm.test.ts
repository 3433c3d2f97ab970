import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { migrationNames } from '../src/lib/postgres/migration-names.ts';
import { startProgram } from './support/command-line.ts';
import { useWorld } from './support/world.ts';

describe('command line of MikroORM', () => {
  const world = useWorld();
  const contexts = () => [
    { name: 'default', folder: 'control', command: 'bin/backoffice control migrate' } as const,
    {
      name: `tenant:${world.acme.slug}`,
      folder: 'tenant',
      command: `bin/backoffice migrate ${world.acme.slug}`,
    } as const,
  ];

  /** Runs `npx mikro-orm` on a database. */
  function mikroOrm(context: string, ...args: string[]) {
    const words = ['node_modules/@mikro-orm/cli/cli.js', ...args, '--contextName', context];
    return startProgram(process.execPath, words, { ...world.environment, NO_COLOR: '1' }).ended;
  }

  it('debug finds the configuration of both databases, their connections and their entities', async () => {
    for (const { name } of contexts()) {
      const { code, stdout } = await mikroOrm(name, 'debug');
      expect({ code, stdout }).to.have.property('code', 0);
      expect(stdout)
        .to.match(/configuration found/)
        .and.match(/database connection successful/);
    }
  });

  it('migration:create writes a file under the next number of its folder', async () => {
    const path = await mkdtemp(join(tmpdir(), 'backoffice-migrations-'));

    for (const { name, folder } of contexts()) {
      const last = Number((await migrationNames(folder)).at(-1)?.slice(0, 4));

      const { code, stderr } = await mikroOrm(
        name,
        'migration:create',
        '--blank',
        '--name',
        'add brands',
        '--path',
        path,
      );

      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(await readdir(path)).to.include(`${String(last + 1).padStart(4, '0')}-add-brands.ts`);
    }

    await rm(path, { recursive: true });
  });

  it('commands that change a database are refused, and name the command that does so', async () => {
    const { command, name } = contexts()[0] ?? expect.fail();

    for (const args of [
      ['migration:up'],
      ['migration:down'],
      ['migration:fresh'],
      ['schema:update', '--run'],
    ]) {
      const { code, stdout, stderr } = await mikroOrm(name, ...args);
      expect(code, args.join(' ')).to.equal(1);
      expect(stdout + stderr).to.include(`Run: ${command}`);
    }
  });
});

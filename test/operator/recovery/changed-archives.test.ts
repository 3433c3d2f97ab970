import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { controlSql, createWorld, sql, type World } from '../../support/world.ts';

describe('restore from archives that were damaged or brought back', () => {
  let world: World;
  let folder: string;
  let environment: Record<string, string>;
  /** The newest archives. */
  let acme: { name: string; bytes: Buffer };
  let globex: { name: string; bytes: Buffer };

  const command = async (args: string[], extra: Record<string, string> = {}) => {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', [...args, '--json'], {
      ...environment,
      ...extra,
    });
    const { message = '', hint = '' } =
      code === 0 ? {} : JSON.parse(stderr.split('\n')[0] || '{}').error;
    return { code, stdout, message: `${message} ${hint ?? ''}` };
  };
  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, message } = await command(args);
    expect(code, `${args.join(' ')}: ${message}${stdout}`).to.equal(0);
    return stdout;
  };
  const newest = async (slug: string): Promise<{ name: string; bytes: Buffer }> => {
    const [{ name }] = JSON.parse(await run('backup', 'list', slug));
    return { name, bytes: await readFile(join(folder, name)) };
  };
  const write = async (name: string, bytes: Buffer): Promise<void> => {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), bytes);
  };
  const control = <Row extends object>(text: string): Promise<Row[]> => controlSql(world, text);

  /** Expects that a restore names the archive and the tenant, and makes no database. */
  async function expectRefused(slug: string, name: string, why: RegExp): Promise<void> {
    const { code, message } = await command(['restore', slug, '--archive', 'latest']);
    expect(code).to.equal(1);
    expect(message).to.include(`The archive ${name} of ${slug} cannot be restored: `);
    expect(message).to.match(why).and.include('Nothing was restored');
    const again = `bin/backoffice restore ${slug} --archive`;
    expect(message).to.include(`bin/backoffice backup list ${slug}`).and.include(again);
    expect(
      await control(`select from tenant_databases where state not in ('current', 'gone')`),
    ).to.deep.equal([]);
  }

  beforeEach(async () => {
    world = await createWorld();
    folder = await makeServerFolder('archives');
    environment = { ...world.environment, ...(await backupSettings(folder)) };
    await sql(world.acme, `insert into currencies (code, name) values ('EUR', 'Euro')`);
    await run('backup', 'init');
    await run('backup', 'run', '--all');
    await sql(world.acme, `insert into currencies (code, name) values ('CHF', 'Franc')`);
    await run('backup', 'run', '--all');
    [acme, globex] = [await newest('acme'), await newest('globex')];
  });
  afterEach(async () => {
    await world.close();
    await rm(folder, { recursive: true, force: true });
  });

  it('the refusal of a damaged archive names the command that restores an older one, beside the tenant or as a lost database', async () => {
    await write(acme.name, acme.bytes.subarray(0, -1));
    const expectNamed = async (options: string[], how: string): Promise<void> => {
      const { code, stdout, stderr } = await runCommand(
        'scripts/tenant.ts',
        ['restore', ...options],
        environment,
      );
      const named = `bin/backoffice backup list acme; bin/backoffice restore acme --archive <name>${how}\n`;
      expect(code, `${stdout}${stderr}`).to.equal(1);
      expect(`${stdout}${stderr}`).to.include(named);
    };

    await expectNamed(['acme', '--archive', 'latest'], '');
    const { database } = JSON.parse(await run('show', 'acme'));
    await sql(world.globex, `drop database "${database}" with (force)`);
    await expectNamed(['acme', '--lost'], ' --lost');
    await expectNamed(['--lost', '--all'], ' --lost');

    const [, { name }] = JSON.parse(await run('backup', 'list', 'acme'));
    await run('restore', 'acme', '--archive', name, '--lost');

    const { database: restored } = JSON.parse(await run('show', 'acme'));
    const adminUrl = databaseUrl(world.acme.adminUrl, restored);
    expect(await sql({ adminUrl }, 'select code from currencies')).to.deep.equal([{ code: 'EUR' }]);
  });

  it('an archive that was copied away before its tenant was purged is none of a new tenant with its slug', async () => {
    await run('delete', 'globex', '--yes');
    await run('purge', 'globex', '--yes');
    await world.provision('globex');
    await write(globex.name, globex.bytes);

    const none = await command(['restore', 'globex', '--archive', 'latest']);
    expect(
      [none.code, none.message.startsWith('There is no archive of globex.')],
      none.message,
    ).to.deep.equal([1, true]);

    await run('backup', 'run', '--all');
    const own = await newest('globex');
    await write(own.name, globex.bytes);
    await expectRefused(
      'globex',
      own.name,
      /it is an archive of tenant|it has more bytes than were recorded/,
    );
  });
});

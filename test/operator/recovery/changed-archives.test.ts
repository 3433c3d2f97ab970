import { randomBytes } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { controlSql, createWorld, sql, type World } from '../../support/world.ts';

describe('restore from archives that were changed, exchanged or brought back', () => {
  let world: World;
  let folder: string;
  let environment: Record<string, string>;
  /** The newest archives, and an older one of acme. */
  let acme: { file: string; bytes: Buffer };
  let globex: { file: string; bytes: Buffer };
  let older: Buffer;

  const command = async (args: string[], extra: Record<string, string> = {}) => {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', [...args, '--json'], {
      ...environment,
      ...extra,
    });
    const { message = '', hint = '' } = code === 0 ? {} : JSON.parse(stderr.split('\n')[0] || '{}').error;
    return { code, stdout, message: `${message} ${hint ?? ''}` };
  };
  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, message } = await command(args);
    expect(code, `${args.join(' ')}: ${message}${stdout}`).to.equal(0);
    return stdout;
  };
  const newest = async (slug: string): Promise<{ file: string; bytes: Buffer }> => {
    const [{ file }] = JSON.parse(await run('backup', 'list', slug));
    return { file, bytes: await readFile(join(folder, file)) };
  };
  const write = (file: string, bytes: Buffer): Promise<void> => writeFile(join(folder, file), bytes);
  const control = <Row extends object>(text: string): Promise<Row[]> => controlSql(world, text);

  /** Expects that a restore names the file and the tenant, and makes no database. */
  async function expectRefused(slug: string, file: string, why: RegExp, what: string): Promise<void> {
    const { code, message } = await command(['restore', slug, '--archive', 'latest']);
    expect(code, what).to.equal(1);
    expect(message, what).to.include(`The archive ${file} of ${slug} cannot be restored: `);
    expect(message, what).to.match(why).and.include('Nothing was restored');
    const again = `bin/backoffice restore ${slug} --archive <id>`;
    expect(message, what).to.include(`bin/backoffice backup list ${slug}`).and.include(again);
    expect(await control(`select from tenant_databases where state not in ('current', 'gone')`), what).to.deep.equal(
      [],
    );
  }

  before(async () => {
    world = await createWorld();
    folder = await makeServerFolder('archives');
    environment = { ...world.environment, BACKUP_TARGET: folder };
    await sql(world.acme, `insert into currencies (code, name) values ('EUR', 'Euro')`);
    await run('backup', 'init');
    await run('backup', 'run', '--all');
    older = (await newest('acme')).bytes;
    // The retention keeps the newest archive of each hour, and that of each day.
    await control(
      `update archives set snapshot_at = snapshot_at - interval '2 days'
        where tenant_guid = (select guid from tenants where slug = 'acme')`,
    );
    await sql(world.acme, `insert into currencies (code, name) values ('CHF', 'Franc')`);
    await run('backup', 'run', '--all');
    [acme, globex] = [await newest('acme'), await newest('globex')];
  });
  beforeEach(async () => {
    await write(acme.file, acme.bytes);
    await write(globex.file, globex.bytes);
  });
  after(async () => {
    await world.close();
    await rm(folder, { recursive: true, force: true });
  });

  it('the exchanged archives of two tenants, and an old archive under a newer name, are refused by name', async () => {
    await write(acme.file, globex.bytes);
    await write(globex.file, acme.bytes);
    await expectRefused('acme', acme.file, /another archive, or an archive of another tenant/, 'exchanged');
    await expectRefused('globex', globex.file, /another archive, or an archive of another tenant/, 'exchanged');
    await write(globex.file, globex.bytes);
    await write(acme.file, older);
    await expectRefused('acme', acme.file, /another archive/, 'an old one under a newer name');
  });

  // test/operator/archives/archive.test.ts flips every byte of an archive, and cuts it everywhere.
  it('a flipped byte of an archive, and a cut, are refused by name', async () => {
    const { file, bytes } = acme;
    const flipped = Buffer.from(bytes);
    flipped.writeUInt8(bytes.readUInt8(bytes.length >> 1) ^ 1, bytes.length >> 1);
    await write(file, flipped);
    await expectRefused('acme', file, /changed/, 'flipped');
    await write(file, bytes.subarray(0, -1));
    await expectRefused('acme', file, /too early|cut|ends/, 'cut');
  });

  it('the refusal of a damaged archive names the command that restores an older one, beside the tenant or as a lost database', async () => {
    await write(acme.file, acme.bytes.subarray(0, -1));
    const { database } = JSON.parse(await run('show', 'acme'));
    await sql(world.globex, `drop database "${database}" with (force)`);
    for (const options of [
      ['acme', '--archive', 'latest'],
      ['acme', '--lost'],
      ['--lost', '--all'],
    ]) {
      const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', ['restore', ...options], environment);
      const how = options.includes('--lost') ? ' --lost' : '';
      const named = `bin/backoffice backup list acme; bin/backoffice restore acme --archive <id>${how}\n`;
      expect([code, `${stdout}${stderr}`.includes(named)], `${stdout}${stderr}`).to.deep.equal([1, true]);
    }
    const [, { id }] = JSON.parse(await run('backup', 'list', 'acme'));
    await run('restore', 'acme', '--archive', id, '--lost');
    const { database: restored } = JSON.parse(await run('show', 'acme'));
    const adminUrl = databaseUrl(world.acme.adminUrl, restored);
    expect(await sql({ adminUrl }, 'select code from currencies')).to.deep.equal([{ code: 'EUR' }]);
    world.acme.adminUrl = adminUrl;
  });

  it('another master key, and the data key of another tenant, open no archive', async () => {
    const wrong = await command(['restore', 'acme', '--archive', 'latest'], {
      MASTER_KEY: randomBytes(32).toString('base64'),
    });
    expect([wrong.code, wrong.message.includes('MASTER_KEY')]).to.deep.equal([1, true]);
    const exchange = (from: string, to: string) =>
      control(
        `update backup_keys k set sealed = o.sealed
           from backup_keys o join tenants f on f.id = o.tenant_id, tenants t
          where t.slug = '${to}' and k.tenant_id = t.id and f.slug = '${from}'`,
      );
    const [own] = await control<{ sealed: string }>(
      `select encode(sealed, 'hex') as sealed from backup_keys k join tenants t on t.id = k.tenant_id where slug = 'acme'`,
    );
    await exchange('globex', 'acme');
    await expectRefused('acme', acme.file, /its key \w+ was sealed under another MASTER_KEY/, 'another data key');
    await control(
      `update backup_keys set sealed = decode('${own?.sealed}', 'hex')
        where tenant_id = (select id from tenants where slug = 'acme')`,
    );
  });

  it('an archive that was copied away before its tenant was purged cannot be restored under any name', async () => {
    await run('delete', 'globex', '--yes');
    await run('purge', 'globex', '--yes');
    await write(globex.file, globex.bytes);
    await write(acme.file, globex.bytes);
    await expectRefused('acme', acme.file, /an archive of another tenant/, 'under the name of another tenant');
    await write(acme.file, acme.bytes);
    await world.provision('globex');
    const { code, message } = await command(['restore', 'globex', '--archive', 'latest']);
    expect([code, message.startsWith('There is no archive of globex.')]).to.deep.equal([1, true]);
    await run('backup', 'run', '--all');
    const again = await newest('globex');
    await write(again.file, globex.bytes);
    await expectRefused('globex', again.file, /an archive of another tenant/, 'under the name of a new tenant');
    // Even with the entry that the ledger had: the key is destroyed.
    const [, guid, id] = /^tenants\/([0-9a-f-]{36})\/\w+-([0-9a-f-]{36})\.archive$/.exec(globex.file) ?? [];
    await control(`update tenants set guid = '${guid}' where slug = 'globex'`);
    await control(
      `update archives set id = '${id}', tenant_guid = '${guid}', file = '${globex.file}' where file = '${again.file}'`,
    );
    await write(globex.file, globex.bytes); // the retention has removed it
    await expectRefused('globex', globex.file, /its key \w+ was destroyed/, 'with its entry');
  });
});

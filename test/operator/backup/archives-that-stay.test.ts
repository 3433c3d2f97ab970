import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant } from '../../support/world.ts';

/** The objects without a row that one statement compares with the rows of missing archives. */
const atOnce = 1_000;
const keepNewest = { BACKUP_KEEP: '1m' };

describe('archives that stay the last ones', () => {
  const s3 = useEach(() => startS3Server('backups'));
  const world = useEach(async () =>
    createWorld({ ...s3.environment, ...(await backupSettings('s3://backups/office')) }),
  );
  const tenant = (args: string[], settings: Record<string, string> = {}) =>
    runCommand('scripts/tenant.ts', args, { ...world.environment, ...settings });
  const run = () => succeed(world.environment, 'tenant', ['backup', 'run', '--all']);
  const write = ({ slug }: TestTenant) =>
    sql(
      slug === 'acme' ? world.acme : world.globex,
      `insert into currencies (code, name) select 'X' || count(*), 'X' from currencies`,
    );
  const rowsOf = ({ guid }: TestTenant) =>
    controlSql<{ name: string; state: string; fault: string | null }>(
      world,
      'select name, state, fault from archives where tenant_guid = ? order by archived_at desc',
      [guid],
    );
  const keyOf = (name: string): string => `office/${name}`;
  const complete = async (of: TestTenant): Promise<string[]> =>
    (await rowsOf(of)).filter(({ state }) => state === 'complete').map(({ name }) => name);

  const lose = async ({ slug }: TestTenant): Promise<void> => {
    const [database] = await controlSql<{ name: string }>(
      world,
      'select database_name as name from tenants where slug = ?',
      [slug],
    );
    await withConnection(databaseUrl(postgresUrl(), 'postgres'), client =>
      client.query(`drop database "${database?.name}" with (force)`),
    );
  };

  beforeEach(async () => {
    await backUp(world.environment);
    for (const each of [world.acme, world.globex]) await write(each);
    await run();
  });

  it('a restore whose second reading the store finds to be damaged ends with a sentence, and restores nothing', async () => {
    const [name = ''] = await complete(world.acme);
    const { objects } = s3.store;
    const bytes = Buffer.from(objects.get(keyOf(name)) ?? '');
    const damaged = Buffer.from(bytes).fill(0, bytes.length - 1);
    let reads = 0;
    const read = objects.get.bind(objects);
    // The listing reads it once, and the restore twice.
    objects.get = key => (key === keyOf(name) && ++reads === 3 ? damaged : read(key));

    const { code, stderr } = await tenant(['restore', 'acme', '--archive', 'latest']);

    objects.get = read;
    expect(reads).to.equal(3);
    expect(code).to.equal(1);
    expect(stderr)
      .to.include(`The archive ${name} of acme cannot be restored: `)
      .and.include('sent bytes that differ from its own checksum of them')
      .and.include('Nothing was restored.');
  });

  it('archives that a listing lacks once count again after it, however many objects of others are listed before them', async () => {
    const before = await complete(world.globex);
    expect(before.length).to.be.above(1);
    const own = [...s3.store.objects].filter(([key]) => key.includes(`/${world.globex.guid}/`));
    for (const [key] of own) s3.store.objects.delete(key);
    await run();
    const [installation = ''] = (before[0] ?? '').split('/');
    for (let index = 0; index < atOnce; index++) {
      s3.store.objects.set(keyOf(`${installation}/a${index}`), Buffer.from('x'));
    }
    for (const [key, bytes] of own) s3.store.objects.set(key, bytes);

    await run();

    for (let index = 0; index < atOnce; index++) {
      s3.store.objects.delete(keyOf(`${installation}/a${index}`));
    }
    expect(await complete(world.globex)).to.include.members(before);
  });

  it('an archive that was recognised counts in later runs, although the store has got another checksum of it', async () => {
    const [name = ''] = await complete(world.globex);
    await controlSql(world, `update archives set store_checksum = 'of before' where name = ?`, [
      name,
    ]);
    await run();
    expect(await complete(world.globex)).not.to.include(name);

    await succeed(world.environment, 'tenant', ['backup', 'recognise', 'globex']);
    expect(await complete(world.globex)).to.include(name);
    await run();

    expect(await complete(world.globex)).to.include(name);
  });

  it('an archive whose bytes the store itself finds to be damaged is recorded as faulty and made again, and a control database is restored from the one before it', async () => {
    const rot = (name: string): void => {
      const bytes = s3.store.objects.get(keyOf(name)) ?? Buffer.alloc(0);
      const rotten = Buffer.from(bytes).fill(0, 300, 400);
      const [was, is] = [bytes, rotten].map(each => createHash('md5').update(each).digest('hex'));
      const { changeBody } = s3;
      s3.changeBody = body => changeBody(body).replaceAll(is ?? '', was ?? '');
      s3.store.objects.set(keyOf(name), rotten);
    };
    const [name = ''] = await complete(world.acme);
    const [control] = await controlSql<{ name: string }>(
      world,
      `select name from archives where tenant_guid is null and state = 'complete' order by archived_at desc limit 1`,
    );
    for (const each of [name, control?.name ?? '']) rot(each);

    expect((await tenant(['backup', 'verify', 'acme'])).code).to.equal(1);
    const faults = (await rowsOf(world.acme)).filter(({ fault }) => fault !== null);
    expect(faults.map(each => each.name)).to.deep.equal([name]);
    const elsewhere = databaseUrl(postgresUrl(), `restored_${Date.now()}`);
    const { stdout, stderr } = await runCommand('scripts/control.ts', ['restore', '--dry-run'], {
      ...world.environment,
      DATABASE_URL: elsewhere,
    });
    expect(stdout, stderr)
      .to.include(`The newer archive ${control?.name} cannot be used`)
      .and.include('The control database would be restored from');
    await run();
    expect((await complete(world.acme))[0]).not.to.equal(name);
  });

  it('a faulty archive takes the place of no other, and a lost tenant is restored from the one that opens', async () => {
    await controlSql(world, 'update archives set proved_at = null');
    await write(world.globex);
    await run();
    const [good = ''] = await complete(world.globex);
    await write(world.globex);
    await run();
    const [faulty = ''] = await complete(world.globex);
    expect(faulty).not.to.equal(good);
    const bytes = Buffer.from(s3.store.objects.get(keyOf(faulty)) ?? '').fill(0, 300, 400);
    const target = await openTarget(readConfig(world.environment).backup);
    await target.write(faulty, Readable.from([bytes]));
    await controlSql(world, 'update archives set store_checksum = null where name = ?', [faulty]);
    expect((await tenant(['backup', 'verify', 'globex'])).code).to.equal(1);
    await lose(world.globex);

    expect((await tenant(['backup', 'run', '--all'], keepNewest)).code).to.equal(1);
    await tenant(['backup', 'prune'], keepNewest);

    expect(await complete(world.globex)).to.deep.equal([faulty, good]);
    await succeed(world.environment, 'tenant', ['restore', 'globex', '--lost', '--archive', good]);
  });

  it('an unproved archive of a lost database stays until the target gets a later one, and the restore takes it', async () => {
    await write(world.acme);
    await tenant(['backup', 'run', '--all']);
    const [newest = '', former] = await complete(world.acme);
    expect(former).not.to.equal(undefined);
    await controlSql(
      world,
      `update archives set state = 'unproved', sha256 = null, unpacked_bytes = null where name = ?`,
      [newest],
    );
    await lose(world.acme);
    // The store has had all archives for longer than BACKUP_KEEP keeps any.
    s3.changeBody = body =>
      body.replace(
        /(\/\d{4}(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)\.(\d{3})Z[^<]*<\/Key><LastModified>)[^<]*/g,
        (_, key, ...[month, day, hour, minute, second, ms]) =>
          `${key}2020-${month}-${day}T${hour}:${minute}:${second}.${ms}Z`,
      );

    expect((await tenant(['backup', 'run', '--all'], keepNewest)).code).to.equal(1);

    expect(s3.store.objects.has(keyOf(newest))).to.equal(true);
    const { code, stdout, stderr } = await tenant(['restore', 'acme', '--lost']);
    expect(code, stderr).to.equal(0);
    expect(stdout).to.include(newest);
  });
});

import { truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { startScript } from '../../support/command-line.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, documentOf, succeed } from '../../support/succeed.ts';
import { quickSettings } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';

const megabyte = 1024 ** 2;
/** The smallest size that can be stated, and the part that every copy leaves free. */
const [diskMb, leastMb] = [1024, 103];

describe('room for copies of databases', () => {
  const server = use(createDedicatedServer);
  const second = use(() => startOwnServer('second', [...quickSettings, 'max_connections=60']));
  const archives = useServerFolder('archives');
  let environment: Record<string, string>;

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
  const document = async (...args: string[]) => documentOf(await run(...args, '--json'));
  const databases = () =>
    server.control<{ slug: string; state: string }>(
      `select slug, state from tenants t left join tenant_databases d on t.id = tenant_id and state <> 'gone'
        order by d.id`,
    );
  const physical = async () =>
    (await server.sql<{ name: string }>('select datname as name from pg_database order by 1')).map(
      ({ name }) => name,
    );

  /**
   * Lets a server have so many free megabytes of its stated disk: by an empty file of that size
   * among its own, which takes no room on this machine.
   */
  async function leaveFree(megabytes: number, url = server.url): Promise<void> {
    const read = (text: string) =>
      withConnection(url, async client => (await client.query(text)).rows[0]);
    const { folder } = await read(`select current_setting('data_directory') as folder`);
    const path = join(folder, 'base', 'filler');
    await writeFile(path, '');

    const { used } = await read(
      `select (pg_tablespace_size('pg_default') + pg_size_bytes(current_setting('max_wal_size')))::float8 as used`,
    );
    await truncate(path, (diskMb - megabytes) * megabyte - used);
  }

  before(async () => {
    environment = { ...server.environment, ...(await backupSettings(archives)) };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    await backUp(environment);
    await withConnection(second.url, async client => {
      await client.query(`create role operator login createdb createrole password 'secret'`);
      await client.query('create database operator owner operator');
    });
  });

  /** States the size of the disk of the server that has both tenants, or that it is not known. */
  const stateDisk = (gigabytes: '1' | '1000000' | 'none') =>
    succeed(environment, 'tenant', ['server', 'set', 'default', '--disk-gb', gigabytes]);

  beforeEach(async () => {
    await stateDisk('none');
    await leaveFree(500);
  });

  it('a server whose data folder is on this machine needs no statement: the plan has its free bytes', async () => {
    const { document: plan } = await document('clone', 'acme', 'acme-copy', '--dry-run');
    const { stdout } = await run('clone', 'acme', 'acme-copy', '--dry-run');

    expect(plan.room).to.include({ server: 'default', isEnough: true });
    expect(plan.room.freeBytes).to.be.above(plan.room.neededBytes);
    expect(stdout).to.match(
      /The copy needs [\d.]+ MiB on default, .* It has \S+ GiB of \S+ GiB free\./,
    );
  });

  it('a disk that is stated larger than the disk with the data folder counts as that one', async () => {
    const { document: before } = await document('clone', 'acme', 'acme-copy', '--dry-run');
    await stateDisk('1000000');

    const { document: plan } = await document('clone', 'acme', 'acme-copy', '--dry-run');

    expect(plan.room.diskBytes).to.equal(before.room.diskBytes);
    expect(plan.room.isStated).to.equal(false);
  });

  it('a clone, a restore and a drill that would leave less than a tenth of the stated disk are refused with both numbers, and nothing is changed', async () => {
    await stateDisk('1');
    await leaveFree(leastMb + 5);
    const before = [await databases(), await physical()];

    for (const args of [
      ['clone', 'acme', 'acme-copy'],
      ['restore', 'acme', '--archive', 'latest'],
    ]) {
      for (const options of [['--dry-run'], []]) {
        const { code, document: refused } = await document(...args, ...options);

        expect(code, args.join(' ')).to.equal(1);
        expect(refused.message, args.join(' ')).to.match(
          /^The copy of acme\S* needs [\d.]+ MiB on default, .* has 10[78]\.\d MiB of 1\.0 GiB free: less than a tenth would be left: the copy was not begun\.$/,
        );
        expect(refused.hint).to.match(/server set default --disk-gb <GiB>$/);
      }
    }
    const drill = await run('backup', 'drill');

    expect(drill.code).to.equal(1);
    expect(drill.stdout + drill.stderr).to.match(/acme: \S+: failed: The copy of acme needs/);
    expect(await physical()).to.deep.equal(before[1]);
    expect(await databases()).to.deep.equal(before[0]);
    const faulty = await server.control('select from archives where fault is not null');
    expect(faulty).to.deep.equal([]);
  });

  it('with enough room the same commands succeed, and their plans have both numbers', async () => {
    await stateDisk('1');

    const { stdout } = await run('restore', 'acme', '--archive', 'latest', '--dry-run');

    expect(stdout).to.match(/ It has 5\d\d\.\d MiB of 1\.0 GiB free\.\n$/);
    await succeed(environment, 'tenant', ['restore', 'acme', '--archive', 'latest']);
    await succeed(environment, 'tenant', ['clone', 'acme', 'acme-with-room']);
    await succeed(environment, 'tenant', ['backup', 'drill']);
  });

  it('two commands do not both take the last room: the second one is refused while the first one copies, and not after it was killed', async () => {
    await stateDisk('1');
    // Enough for one copy, also beside the database that a killed one leaves; not for two.
    await leaveFree(leastMb + 34);
    const holder = { release: () => {} };
    const holding = withConnection(
      databaseUrl(server.url, await server.databaseOf('acme')),
      async client => {
        await client.query('begin; lock table currencies in access exclusive mode');
        await new Promise<void>(resolve => {
          holder.release = resolve;
        });
      },
    );
    await eventually(async () => (await lockedTables()) === 1);

    const first = startScript('scripts/tenant.ts', ['clone', 'acme', 'acme-first'], environment);
    await eventually(async () => (await copies()) === 1, 30_000);
    const other = await document('clone', 'globex', 'globex-second');
    first.process.kill('SIGKILL');
    await first.ended;
    await eventually(async () => (await copies()) === 0);
    const again = await document('clone', 'globex', 'globex-second');
    holder.release();
    await holding;

    expect(other.code).to.equal(1);
    expect(other.document.message).to.include('less than a tenth would be left');
    expect(again.code, JSON.stringify(again.document)).to.equal(0);
  });

  it('a lost database comes back without the room, with a warning', async () => {
    await stateDisk('1');
    await leaveFree(leastMb + 5);
    await server.sql(`drop database "${await server.databaseOf('acme')}" with (force)`);
    const plan = await document('restore', 'acme', '--lost', '--dry-run');

    const { code, stderr } = await run('restore', '--lost', '--all');

    expect(plan.document.room ?? { isEnough: false }).to.include({ isEnough: false });
    expect(code, stderr).to.equal(0);
    expect(stderr).to.match(
      /The copy of acme needs [\d.]+ MiB on default, .* less than a tenth would be left\./,
    );
  });

  it('a move is compared with the room of the other server; where that is not known the plan says so and how it is stated', async () => {
    await server.provision('initech'); // while there is one server
    const url = databaseUrl(second.url, 'operator', { user: 'operator', password: 'secret' });
    await succeed(environment, 'tenant', ['server', 'add', 'second'], url);
    const unknown = await run('move', 'initech', '--to', 'second', '--dry-run');
    await succeed(environment, 'tenant', ['server', 'add', 'second', '--disk-gb', '1'], url);
    await leaveFree(leastMb + 5, second.url);

    const refused = await document('move', 'initech', '--to', 'second', '--dry-run');
    const move = await run('move', 'initech', '--to', 'second');
    await leaveFree(500, second.url);
    const moved = await run('move', 'initech', '--to', 'second');

    expect(unknown.stdout).to.include(
      'How much its disk has free is not known: state its size: bin/backoffice server set second --disk-gb <GiB>',
    );
    expect(refused.document.message).to.include('needs').and.include('on second');
    expect(move.code).to.equal(1);
    expect(move.stderr).to.include('less than a tenth would be left');
    expect(moved.code, moved.stderr).to.equal(0);
  });

  const lockedTables = async () =>
    (
      await server.sql(
        `select from pg_locks where locktype = 'relation' and mode = 'AccessExclusiveLock' and granted
            and relation = 'currencies'::regclass`,
        await server.databaseOf('acme'),
      )
    ).length;
  const copies = async () =>
    (
      await server.sql(
        `select from pg_locks where locktype = 'advisory' and classid between 800000 and 900000`,
      )
    ).length;
});

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { startScript } from '../../support/command-line.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { createWorld, sql } from '../../support/world.ts';

const counts = { countries: 249, currencies: 155, units: 113 };

describe('packs of reference data', () => {
  const world = useEach(() => createWorld());

  const tenant = (...args: string[]) =>
    runCommand('scripts/tenant.ts', [...args, '--json'], world.environment);

  async function packs(...args: string[]) {
    const { code, stdout, stderr } = await tenant('packs', ...args);
    expect([code, stderr]).to.deep.equal([0, '']);
    return JSON.parse(stdout);
  }

  it('a dry run of packs apply names each row that the tenant lacks, and adds none', async () => {
    const admin = await world.login(world.acme);

    const { rows } = await packs('apply', 'acme', '--packs', 'units', '--dry-run');

    expect(rows).to.have.length(counts.units);
    expect(rows).to.deep.include({ pack: 'units', code: 'KGM', state: 'missing', differences: {} });
    expect((await admin.get('/api/v1/UnitsOfMeasure')).status).to.equal(404);
  });

  it('packs apply adds what is missing, keeps what the tenant changed or deleted, and writes audit entries', async () => {
    const admin = await world.login(world.acme);
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Our euro', DecimalPlaces: 4 });
    const { body: dollar } = await admin.post('/api/v1/Currency', {
      Code: 'USD',
      Name: 'US Dollar',
    });
    await admin.delete(`/api/v1/Currency/${dollar.Id}`);
    const { body: kilo } = await admin.post('/api/v1/UnitsOfMeasure', {
      Code: 'kgm',
      Name: 'Kilo',
    });
    await admin.delete(`/api/v1/UnitsOfMeasure/${kilo.Id}`);
    const { body: metre } = await admin.post('/api/v1/UnitsOfMeasure', {
      Code: 'MTR',
      Name: 'Metre',
    });
    await admin.put(`/api/v1/UnitsOfMeasure/${metre.Id}`, { Code: 'M', Name: 'Metre' });
    // The empty list is cached, and must not be returned once the pack is applied.
    expect((await admin.get('/api/v1/Countries')).status).to.equal(404);

    const applied = await packs('apply', 'acme');
    expect(applied.map(({ edition, ...row }: { edition: string }) => row)).to.deep.equal([
      { pack: 'countries', added: 249, same: 0, changed: 0, deleted: 0 },
      { pack: 'currencies', added: 153, same: 0, changed: 1, deleted: 1 },
      { pack: 'units', added: 111, same: 0, changed: 0, deleted: 2 },
    ]);
    await eventually(
      async () => (await admin.get('/api/v1/Countries')).body.length === counts.countries,
      announcedMs,
    );
    const { body: currencies } = await admin.get('/api/v1/Currency');
    const euro = currencies.find(({ Code }: { Code: string }) => Code === 'EUR');
    expect(euro).to.include({ Name: 'Our euro', DecimalPlaces: 4 });
    expect(currencies.map(({ Code }: { Code: string }) => Code))
      .to.include('JPY')
      .and.not.include('USD');
    for (const code of ['KGM', 'MTR']) {
      expect((await admin.get(`/api/v1/UnitsOfMeasure/code/${code}`)).status, code).to.equal(404);
    }
    const [entry] = (await admin.get('/api/v1/AuditLog?resource=Country&key=CH')).body;
    expect(entry).to.include({ Action: 'create', UserId: null, Before: null });
    expect(entry.After).to.include({ CountryName: 'Switzerland' });

    const { rows: differing } = await packs('apply', 'acme', '--packs', 'currencies', '--dry-run');
    expect(
      differing.map(({ code, state }: Record<string, string>) => `${code} ${state}`),
    ).to.deep.equal(['EUR changed', 'USD deleted']);
    expect(differing[0].differences.DecimalPlaces).to.deep.equal({ pack: 2, tenant: 4 });
    const again = await packs('apply', 'acme', '--packs', 'units,currencies,countries');
    expect(again.map(({ added }: { added: number }) => added)).to.deep.equal([0, 0, 0]);
    const globex = await world.login(world.globex);
    expect((await globex.get('/api/v1/Countries')).status, 'another tenant').to.equal(404);
  });

  it('a run of packs apply that is killed in the middle has added nothing, and the next one adds everything', async () => {
    const countRows = async () => {
      const [row] = await sql<{ count: number }>(
        world.globex,
        'select (select count(*) from countries)::int + (select count(*) from units_of_measure)::int as count',
      );
      return row?.count;
    };

    const commandSessions = () =>
      sql(
        world.globex,
        `select from pg_stat_activity
          where datname = current_database() and application_name like 'backoffice-operator%'
            and pid <> pg_backend_pid()`,
      );

    await withConnection(world.globex.adminUrl, async client => {
      await client.query('begin; lock table units_of_measure in exclusive mode');

      const { process: child, ended } = startScript(
        'scripts/tenant.ts',
        ['packs', 'apply', 'globex'],
        world.environment,
      );
      await eventually(async () => (await readLockWaiters(client)).length > 0);

      child.kill('SIGKILL');
      expect((await ended).signal).to.equal('SIGKILL');
      await client.query('rollback');
    });

    await eventually(async () => (await commandSessions()).length === 0);
    expect(await countRows()).to.equal(0);

    await packs('apply', 'globex');
    expect(await countRows()).to.equal(counts.countries + counts.units);
  });

  it('packs apply that would exceed the maximum size of a table adds nothing, and says so', async () => {
    const tenant = await world.provision('small');
    await sql(tenant, `update table_sizes set max_rows = 50 where table_name = 'currencies'`);
    // A table of less than 256 KiB is not compared with its maximum.
    await sql(
      tenant,
      `insert into currencies (code, name, is_deleted, deleted_at)
        select 'X' || n, repeat(md5(n::text), 300), true, now() from generate_series(1, 40) n`,
    );

    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['packs', 'apply', 'small'],
      world.environment,
    );

    expect(code).to.equal(1);
    expect(stderr).to.match(/^The pack currencies has 155 rows .* Nothing was added\.\n$/);
    expect(await sql(tenant, 'select from countries')).to.have.length(0);
  });

  it('a tenant begins with the packs of its manifest or of --packs, and with none unless they are named', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-packs-'));
    const file = join(folder, 'packed.json');
    const manifest = {
      slug: 'packed',
      name: 'Packed',
      admin: { email: 'admin@packed.test' },
      packs: ['countries'],
    };
    await writeFile(file, JSON.stringify(manifest));

    for (const args of [
      ['--file', file],
      ['optioned', '--name', 'O', '--admin-email', 'admin@o.test', '--packs', 'units,currencies'],
    ]) {
      const { code, stdout, stderr } = await tenant('provision', ...args);
      expect(code, stderr).to.equal(0);
      expect(stderr).to.equal('');

      const adminUrl = databaseUrl(postgresUrl(), JSON.parse(stdout).database);
      const [row] = await sql<object>(
        { adminUrl },
        `select (select count(*)::int from countries) as countries, (select count(*)::int from currencies) as currencies,
                (select count(*)::int from units_of_measure) as units`,
      );

      const none = { countries: 0, currencies: 0, units: 0 };
      const { countries, ...others } = counts;
      expect(row).to.deep.equal(
        args[0] === '--file' ? { ...none, countries } : { ...none, ...others },
      );
    }

    await rm(folder, { recursive: true });
  });

  it('an unknown pack is wrong usage, the error names the packs, and the command ends at once', async () => {
    for (const args of [
      ['packs', 'apply', 'acme', '--packs', 'planets'],
      ['provision', 'never', '--name', 'N', '--admin-email', 'a@n.test', '--packs', 'planets'],
    ]) {
      const { code, stderr } = await runCommand('scripts/tenant.ts', args, world.environment);
      expect(code).to.equal(2);
      expect(stderr)
        .to.include('There is no pack "planets". The packs are countries, currencies, units')
        .and.not.match(/\bat .*\.ts/);
    }
  });
});

import { expect } from 'chai';
import { parse } from 'csv-parse/sync';
import type { TenantUsageSummary } from '../../../src/operator/registry/read-usage.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

const january = ['--from', '2025-01-01', '--to', '2025-02-01'];

describe('usage', () => {
  const world = useWorld();
  // A process of the service that stops removes hours that are older than 100 days.
  beforeEach(async () => {
    await controlSql(world, 'delete from tenant_usage');
    const rows = [
      [world.acme.id, '2025-01-01T00:00Z', 10, 1, 2, 1_000, 1_500.4, 8_000_000],
      [world.acme.id, '2025-01-01T23:00Z', 20, 0, 0, 2_000, 0.2, null],
      [world.acme.id, '2025-01-31T23:00Z', 5, 0, 0, 2 ** 40, 1, 9_000_000],
      [world.globex.id, '2025-01-31T23:00Z', 100, 100, 0, 0, 0, null],
      [world.acme.id, '2025-02-01T00:00Z', 7, 0, 0, 0, 0, null],
    ];
    for (const row of rows) {
      await controlSql(
        world,
        `insert into tenant_usage values (${row.map(() => '?').join(', ')})`,
        row as never,
      );
    }
  });

  const run = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/backoffice.ts', ['usage', ...args], world.environment);
  const read = async (...args: string[]): Promise<TenantUsageSummary[]> =>
    JSON.parse((await run(...args, '--json')).stdout);

  it('usage shows the sums of each tenant by month, the busiest first, and the last size of its database', async () => {
    expect(await read(...january)).to.deep.equal([
      {
        tenant: 'globex',
        guid: world.globex.guid,
        period: '2025-01',
        requests: 100,
        refused: 100,
        writes: 0,
        responseBytes: 0,
        databaseMs: 0,
        databaseBytes: null,
        databaseMeasuredAt: null,
      },
      {
        tenant: 'acme',
        guid: world.acme.guid,
        period: '2025-01',
        requests: 35,
        refused: 1,
        writes: 2,
        responseBytes: 2 ** 40 + 3_000,
        databaseMs: 1_502,
        databaseBytes: 9_000_000,
        databaseMeasuredAt: '2025-01-31T23:00:00.000Z',
      },
    ]);

    const { stdout } = await run(...january);
    expect(stdout).to.match(
      /^tenant +period +requests +refused +writes +sent +database time +database size +measured\n/,
    );
    expect(stdout).to.match(/acme +2025-01 +35 +1 +2 +1\.0 TiB +1\.5 s +8\.6 MiB +2025-01-31\n/);
  });

  it('usage of one tenant is by day, or by the requested period, in whole hours of UTC', async () => {
    const periods = async (...args: string[]): Promise<[string, number][]> =>
      (await read('acme', ...args)).map(({ period, requests }) => [period, requests]);

    expect(await periods(...january)).to.deep.equal([
      ['2025-01-01', 30],
      ['2025-01-31', 5],
    ]);

    expect(await periods(...january, '--by', 'hour')).to.deep.equal([
      ['2025-01-01T00:00Z', 10],
      ['2025-01-01T23:00Z', 20],
      ['2025-01-31T23:00Z', 5],
    ]);

    expect(
      await periods('--from', '2025-01-31T23:30Z', '--to', '2025-03-01', '--by', 'month'),
    ).to.deep.equal([
      ['2025-01', 5],
      ['2025-02', 7],
    ]);
  });

  it('usage until a moment ends before the hour of that moment, so that two periods in a row count no hour twice', async () => {
    const moment = '2025-01-31T23:30Z';
    const requests = async (from: string, to: string): Promise<number[]> =>
      (await read('acme', '--from', from, '--to', to, '--by', 'month')).map(each => each.requests);
    expect(await requests('2025-01-01', moment)).to.deep.equal([30]);
    expect(await requests(moment, '2025-02-01')).to.deep.equal([5]);
  });

  it('usage of a time that ends before it begins is refused', async () => {
    const { code, stderr } = await run('--from', '2025-02-01', '--to', '2025-01-01');
    expect([code, stderr]).to.deep.equal([2, 'Give a --to after --from.\n']);
  });

  it('usage as CSV has exact numbers, and no other text on stdout', async () => {
    const { stdout, stderr } = await run(...january, '--csv');
    expect(stderr).to.equal('');
    const [first, second, ...more] = parse(stdout, { columns: true }) as Record<string, string>[];
    expect(more).to.deep.equal([]);
    expect(first).to.include({ tenant: 'globex', refused: '100', database_bytes: '' });
    expect(second).to.include({
      tenant: 'acme',
      period: '2025-01',
      response_bytes: String(2 ** 40 + 3_000),
    });
    expect((await run(...january, '--csv', '--json')).code).to.equal(2);
  });

  it('doctor measures the databases, and usage shows the last size with its date', async () => {
    const today = new Date().toISOString().slice(0, 10);

    await runCommand('scripts/tenant.ts', ['doctor'], world.environment);

    const [row] = await read('acme', '--by', 'month');
    expect(row?.databaseBytes).to.be.above(5_000_000);
    expect(row?.databaseMeasuredAt).to.match(new RegExp(`^${today}T\\d\\d:00:00`));
    expect((await run('acme')).stdout).to.match(new RegExp(` MiB +${today}\\n$`));
  });

  it('usage of this month has what the service counted, and an unknown tenant is refused', async () => {
    const user = await world.login(world.acme);
    const { service, url } = await world.startAnotherServer();
    await user.at(url).get('/api/v1/EntityStatus');
    await service.stop();
    const [row, ...more] = await read('acme', '--by', 'month');
    expect(more).to.deep.equal([]);
    expect(row).to.include({ tenant: 'acme', requests: 1 });
    expect(await run('nobody')).to.deep.include({ code: 1, stdout: '' });
    expect((await run('nobody')).stderr).to.match(/There is no tenant nobody/);
  });
});

import { expect } from 'chai';
import { migrationNames } from '../../../src/lib/postgres/migration-names.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

describe('runs of migrations, and servers', () => {
  const world = useWorld();

  const run = (...args: string[]) => runCommand('scripts/backoffice.ts', args, world.environment);

  it('runs list, show and watch have the run with its tenants, and watch ends with it', async () => {
    expect((await run('runs', 'show')).stderr).to.equal(
      'There is no run yet. List them: bin/backoffice runs list\n',
    );

    await controlSql(world, `update tenants set schema_version = null where slug = 'acme'`);
    expect((await run('migrate', '--all')).code).to.equal(0);
    const head = (await migrationNames('tenant')).at(-1);

    const {
      items: [newest],
    } = JSON.parse((await run('runs', 'list', '--json')).stdout);
    expect(newest).to.deep.include({
      state: 'succeeded',
      head,
      tenants: 2,
      outcomes: { current: 1, migrated: 1 },
    });

    const shown = JSON.parse((await run('runs', 'show', String(newest.id), '--json')).stdout);
    expect(
      shown.tenants.map(({ slug, state }: Record<string, string>) => [slug, state]),
    ).to.deep.equal([
      ['acme', 'migrated'],
      ['globex', 'current'],
    ]);

    const watched = await run('runs', 'watch', '--json');
    expect(watched.code).to.equal(0);
    expect(JSON.parse(watched.stdout)).to.deep.include({
      id: newest.id,
      state: 'succeeded',
      failed: [],
    });
  });

  it('--watch without a terminal is refused as wrong usage, unless documents are printed', async () => {
    const { code, stdout, stderr } = await run('status', '--watch');
    expect([code, stdout]).to.deep.equal([2, '']);
    expect(stderr).to.match(/--watch needs a terminal/);
    const runs = await run('runs', 'watch');
    expect([runs.code, runs.stdout]).to.deep.equal([2, '']);
    expect(runs.stderr).to.match(/^Without a terminal, add --json/);
  });

  it('server set changes the capacity of a server, and refuses another name', async () => {
    const capacity = async () =>
      JSON.parse((await run('server', 'list', '--json')).stdout)[0].capacity;
    const set = ['server', 'set', 'default', '--capacity'];
    expect((await run(...set, '1', '--dry-run')).stdout).to.equal(
      'default would take 1 tenant. Now it takes any number of tenants.\n',
    );
    expect((await run(...set, '7')).stdout).to.equal('default takes 7 tenants.\n');
    expect(await capacity()).to.equal(7);
    expect((await run('server', 'set', 'default', '--capacity', 'none')).code).to.equal(0);
    expect(await capacity()).to.equal(null);
    expect((await run('server', 'set', 'elsewhere', '--capacity', '7')).code).to.equal(1);
    expect((await run('server', 'set', 'default')).code).to.equal(2);
  });

  it('server set states the size of a disk and says the former one, and none takes it away', async () => {
    const diskGb = async () => JSON.parse((await run('server', 'list', '--json')).stdout)[0].diskGb;
    const set = ['server', 'set', 'default', '--disk-gb'];

    expect((await run(...set, '200', '--dry-run')).stdout).to.equal(
      'The disk of default would have 200 GiB. Now it has no stated size.\n',
    );
    expect((await run(...set, '200')).stdout).to.equal('The disk of default has 200 GiB.\n');
    expect(await diskGb()).to.equal(200);
    expect((await run(...set, '0')).code).to.equal(2);
    expect((await run(...set, 'none')).code).to.equal(0);
    expect(await diskGb()).to.equal(null);
  });
});

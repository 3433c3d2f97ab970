import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { lockSpaces } from '../../../src/lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { ListedDatabase } from '../../../src/operator/databases/verbs/list-databases.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { stopCommand } from '../../support/stopped-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
const holdsNothing = { holds: [], onlyHere: [] };

describe('databases of tenants', () => {
  const archives = useServerFolder('archives');
  const world = useEach(async () =>
    createWorld({
      ACQUIRE_TIMEOUT_MS: '2000',
      ...(await backupSettings(await mkdtemp(join(archives, 'target-')))),
    }),
  );
  let acme: Client;
  let globex: Client;

  beforeEach(async () => {
    acme = await world.login(world.acme);
    globex = await world.login(world.globex);
    await acme.post(path, { Title: 'archived' });
    await run(['backup', 'init']);
    await run(['backup', 'run', '--all']);
    await acme.post(path, { Title: 'later' });
  });

  const command = (args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  async function run(args: string[]): Promise<string> {
    const { code, stdout, stderr } = await command(args);
    expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
    return stdout;
  }
  const list = async (...slug: string[]): Promise<ListedDatabase[]> =>
    JSON.parse(await run(['databases', ...slug, '--json']));
  const states = async (...slug: string[]): Promise<string[]> =>
    (await list(...slug)).map(({ slug: owner, state }) => `${owner} ${state}`);
  const nameOf = async (slug: string, state: string): Promise<string> =>
    (await list(slug)).find(each => each.state === state)?.database ?? `no ${state} database`;
  const prune = async (...args: string[]): Promise<object[]> =>
    JSON.parse(await run(['databases', 'prune', ...args, '--json']));
  const control = (text: string) => controlSql(world, text);
  const restore = (slug: string) => run(['restore', slug, '--archive', 'latest', '--json']);
  /** Returns how many databases and login roles with this name exist. */
  const remains = (name: string): Promise<number> =>
    withConnection(postgresUrl(), async client => {
      const found =
        'select from pg_database where datname = $1 union all select from pg_roles where rolname = $1';
      return (await client.query(found, [name])).rowCount ?? 0;
    });
  const titles = async (): Promise<string[]> =>
    (await acme.get(path, { 'Cache-Control': 'no-cache' })).body.map(
      ({ Title }: { Title: string }) => Title,
    );
  async function expectServed(Title: string): Promise<void> {
    for (const client of [acme, globex]) {
      expect((await client.post(path, { Title })).status).to.equal(201);
    }
    expect(await titles()).to.include.members(['archived', Title]);
  }

  it('a tenant with one database is listed only when it is named, and an unknown one is refused', async () => {
    expect(await run(['databases'])).to.equal('Every tenant has one database.\n');

    const [row, ...others] = await list('acme');
    expect(others).to.deep.equal([]);
    expect(row).to.include({
      slug: 'acme',
      database: world.acme.database,
      server: 'default',
      state: 'current',
    });
    expect(row?.why).to.equal('serves the tenant');

    expect(await run(['show', 'acme'])).not.to.include('other databases');
    expect(JSON.parse(await run(['show', 'acme', '--json'])).otherDatabases).to.deep.equal([]);

    for (const args of [
      ['databases', 'nobody'],
      ['databases', 'prune', 'nobody'],
    ]) {
      const { code, stderr } = await command(args);
      expect(code, stderr).to.equal(1);
      expect(stderr).to.equal('There is no tenant nobody. List the tenants: bin/backoffice list\n');
    }
  });

  it('a restored database is listed with what it is for, and dropped only when its tenant and name are confirmed', async () => {
    await restore('acme');
    await restore('globex');
    const name = await nameOf('acme', 'filled');
    expect(await run(['databases', '-o', 'name'])).to.equal(
      `${name}\n${await nameOf('globex', 'filled')}\n`,
    );
    const [row] = await list();
    expect(row).to.include({
      slug: 'acme',
      database: name,
      state: 'filled',
      keepUntil: null,
      error: null,
    });
    expect(row?.origin).to.include('archive');
    expect(row?.why).to.include('restore diff acme').and.include('restore swap acme');
    expect(await run(['databases', 'acme']))
      .to.include(name)
      .and.not.include('globex');
    expect(await prune()).to.deep.equal([]);

    const refusal = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await command(['databases', 'drop', ...args]);
      expect(code).to.be.above(0);
      return stderr;
    };
    for (const foreign of [
      'no_such_database',
      world.acme.database,
      await nameOf('globex', 'filled'),
    ]) {
      expect(await refusal('acme', foreign, '--yes')).to.equal(
        `acme has no database ${foreign} that can be dropped. List them: bin/backoffice databases acme\n`,
      );
    }
    expect(await refusal('nobody', name, '--yes')).to.include('There is no tenant nobody');
    expect(await refusal('acme', name)).to.include('Add --yes to confirm; nothing was changed');
    expect(await run(['databases', 'drop', 'acme', name, '--dry-run'])).to.include(
      `${name} of acme would be dropped`,
    );
    expect(await remains(name)).to.equal(2);

    const dropped = JSON.parse(await run(['databases', 'drop', 'acme', name, '--yes', '--json']));
    expect(dropped).to.deep.equal([
      {
        slug: 'acme',
        server: 'default',
        database: name,
        state: 'filled',
        action: 'drop',
        ...holdsNothing,
      },
    ]);
    expect(await remains(name)).to.equal(0);
    expect(await states()).to.deep.equal(['globex filled']);
    await expectServed('dropped');
  });

  it('the traces of a restore that was killed before it was complete are listed and pruned', async () => {
    await restore('acme');
    await restore('globex');
    const name = await nameOf('acme', 'filled');
    await control(`update tenant_databases set state = 'reserved' where database_name = '${name}'`);
    await withConnection(world.installation.controlUrl, async holder => {
      await holder.query('select pg_advisory_lock($1, $2)', [lockSpaces.tenant, world.acme.id]);
      expect((await list()).map(({ why }) => why)[0]).to.equal('a command works on it');
    });

    expect((await list())[0]?.why).to.equal(
      'a command has ended before it was complete: bin/backoffice databases prune acme',
    );
    const found = [
      {
        slug: 'acme',
        server: 'default',
        database: name,
        state: 'reserved',
        action: 'drop',
        ...holdsNothing,
      },
    ];
    expect(await prune('--dry-run')).to.deep.equal(found);
    expect(await prune('globex', '--dry-run')).to.deep.equal([]);
    expect((await command(['restore', 'swap', 'acme', '--database', name, '--yes'])).code).to.equal(
      1,
    );
    expect(await remains(name)).to.equal(2);
    expect(await prune()).to.deep.equal(found);
    expect(await remains(name)).to.equal(0);
    expect(await states()).to.deep.equal(['globex filled']);
    await expectServed('pruned');
  });

  it('a kept database is pruned when its time has passed, a condemned one always, and no others', async () => {
    await restore('acme');
    await restore('globex');
    for (const slug of ['acme', 'globex']) await run(['restore', 'swap', slug, '--yes']);
    expect(await titles())
      .to.include('archived')
      .and.not.include('later');
    await restore('acme');
    expect(await states()).to.deep.equal(['acme kept', 'acme filled', 'globex kept']);
    expect(await prune()).to.deep.equal([]);

    const [kept, condemned] = [await nameOf('acme', 'kept'), await nameOf('acme', 'filled')];
    await control(
      `update tenant_databases set keep_until = now() - interval '1 second' where database_name = '${kept}'`,
    );
    await control(
      `update tenant_databases set state = 'condemned' where database_name = '${condemned}'`,
    );
    expect((await list('acme')).map(({ state, why }) => [state, why])).to.deep.include.members([
      ['kept', 'its time has passed: bin/backoffice databases prune'],
      ['condemned', 'will be dropped: bin/backoffice databases prune acme'],
    ]);
    await control(`update tenants set purging_at = now() where slug = 'acme'`);
    expect((await list('acme')).map(({ why }) => why)).to.include(
      'will be dropped: bin/backoffice purge acme',
    );
    await control(`update tenants set purging_at = null where slug = 'acme'`);
    expect(JSON.parse(await run(['show', 'acme', '--json'])).otherDatabases).to.deep.equal([
      { database: kept, server: 'default', state: 'kept' },
      { database: condemned, server: 'default', state: 'condemned' },
    ]);
    expect(await run(['show', 'acme'])).to.match(
      /^other databases +1 kept, 1 condemned: bin\/backoffice databases acme$/m,
    );
    const planned = await prune('--dry-run');
    expect(planned).to.have.deep.members([
      {
        slug: 'acme',
        server: 'default',
        database: kept,
        state: 'kept',
        action: 'drop',
        ...holdsNothing,
      },
      {
        slug: 'acme',
        server: 'default',
        database: condemned,
        state: 'condemned',
        action: 'drop',
        ...holdsNothing,
      },
    ]);
    expect(await prune()).to.deep.equal(planned);
    expect([await remains(kept), await remains(condemned)]).to.deep.equal([0, 0]);
    expect(await states()).to.deep.equal(['globex kept']);
    expect((await command(['restore', 'back', 'acme', '--yes'])).stderr).to.include(
      'No swap of acme can be undone',
    );
    await run(['restore', 'back', 'globex', '--yes']);
    await expectServed('after the swaps');
  });

  // A drill kills commands at every step, and one that is process 1 of its container.
  it('a killed command has its fence lifted by its guard', async () => {
    await restore('globex');
    await expectServed('before the swap');
    const command = await stopCommand(world, ['restore', 'swap', 'globex', '--yes']);
    await command.killAlone();
    await eventually(async () => (await control('select from tenant_fences')).length === 0);
    await expectServed('served by the guard');
    const { body } = await globex.get(path, { 'Cache-Control': 'no-cache' });
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include('before the swap');
  });
});

import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { Agent } from '../../support/agent.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { eventually } from '../../support/eventually.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { useEach } from '../../support/use.ts';
import { sql } from '../../support/world.ts';

const session = /metrics-agent of login metrics \(pid \d+/;

describe('sessions of others in the database of a tenant', () => {
  const archives = useServerFolder('archives');
  let agent: Agent | undefined;
  let others: Promise<unknown> | undefined;
  const held: pg.Client[] = [];
  // before the servers of the test end
  afterEach(async () => {
    await agent?.stop();
    await others?.catch(() => {});
    agent = others = undefined;
    await Promise.all(held.splice(0).map(client => client.end().catch(() => {})));
  });
  const servers = useEach(async () =>
    TwoServers.start(await backupSettings(await mkdtemp(join(archives, 'target-')))),
  );

  /** Runs SQL on the second server, whose commands have the rights that a provider gives. */
  const second = (text: string, database = 'postgres'): Promise<pg.QueryResult> =>
    withConnection(databaseUrl(servers.second.url, database), client => client.query(text));
  const agentUrl = (): string =>
    databaseUrl(servers.second.url, 'postgres', { user: 'metrics', password: 'secret' });
  const databaseOf = async (slug: string): Promise<string> => {
    const current = (await servers.databases(slug)).find(({ state }) => state === 'current');
    return current?.database ?? '';
  };
  const provision = (slug: string) =>
    servers.runWell([
      'provision',
      slug,
      '--name',
      slug,
      '--admin-email',
      `a@${slug}.test`,
      '--server',
      'second',
    ]);

  beforeEach(async () => {
    await servers.runWell(['backup', 'init']);
    await second(`create role metrics login password 'secret'; grant pg_monitor to metrics;
                  grant connect on database postgres to metrics`);
  });

  it('a tenant is provisioned and cloned beside an agent that connects to each new database at once', async () => {
    agent = Agent.start(agentUrl());

    await provision('initech');
    await servers.runWell(['clone', 'initech', 'initech-copy']);

    await agent.isIn('operator');
    expect([...agent.connections.keys()].filter(name => name.startsWith('office'))).to.deep.equal(
      [],
    );
  });

  it('a purge names a session that its login may not end, and what to do; then it ends an agent that comes back', async () => {
    await provision('initech');
    await servers.runWell(['clone', 'initech', 'initech-copy']);
    const database = await databaseOf('initech-copy');
    await second(`grant connect on database "${database}" to metrics`);
    agent = Agent.start(agentUrl(), name => name === database);
    await agent.isIn(database);
    await servers.runWell(['delete', 'initech-copy', '--yes']);

    const plan = await servers.runWell(['purge', 'initech-copy', '--dry-run']);
    const refused = await servers.run(['purge', 'initech-copy', '--yes']);

    expect(plan).to.match(session);
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(session);
    expect(refused.stderr).to.include('login operator may not end their sessions');
    expect(refused.stderr).to.include('grant pg_signal_backend to "operator"');
    expect(refused.stderr).to.not.match(/DATABASE_URL|When (all servers|the server) works?/);

    await second('grant pg_signal_backend to operator');
    await servers.runWell(['purge', 'initech-copy', '--yes']);
    expect(
      (await second(`select from pg_database where datname = '${database}'`)).rowCount,
    ).to.equal(0);
  });

  it('a move that sessions of others make too long names them, and ends them with --end-sessions', async () => {
    await second('grant pg_signal_backend to operator');
    await provision('initech');
    const database = await databaseOf('initech');
    await second(`grant connect on database "${database}" to metrics`);
    agent = Agent.start(agentUrl(), name => name === database);
    await agent.isIn(database);

    const plan = await servers.runWell(['move', 'initech', '--to', 'default', '--dry-run']);
    expect(plan).to.match(session);

    const short = ['move', 'initech', '--to', 'default', '--pause', '0.001'];
    const refused = await servers.run(short);
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(session);
    expect(refused.stderr).to.include('--end-sessions');
    expect(await servers.serverOf('initech')).to.equal('second');

    const before = agent.connections.get(database) ?? 0;
    await servers.move('initech', '--to', 'default', '--end-sessions');
    expect(await servers.serverOf('initech')).to.equal('default');
    await eventually(() => (agent?.connections.get(database) ?? 0) > before);
  });

  it('a move that waits for the lock of a desktop tool names the tool, and ends it with --end-sessions', async () => {
    const url = await servers.currentUrl('acme');
    const held = Promise.withResolvers<void>();
    others = withConnection(url, async client => {
      await client.query(`set application_name = 'Desktop Tool'`);
      await client.query('begin');
      await client.query(`lock table countries in row exclusive mode`);
      held.resolve();
      await new Promise(resolve => client.once('end', resolve));
    });
    await held.promise;

    const refused = await servers.run(['move', 'acme', '--to', 'second', '--pause', '60']);
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(/Desktop Tool of login \w+ \(pid \d+, since 20/);
    expect(refused.stderr).to.include('--end-sessions');
    expect(refused.stderr).to.not.include('When all servers work');

    await servers.move('acme', '--to', 'second', '--end-sessions');
    expect(await servers.serverOf('acme')).to.equal('second');
    expect(await sql(servers.world.globex, 'select 1 as one')).to.deep.equal([{ one: 1 }]);
  });

  it('restore swap and back leave sessions of others in both databases, and end them with --end-sessions, those of other tenants never', async () => {
    await second('grant pg_signal_backend to operator');
    await servers.move('acme', '--to', 'second');
    await servers.runWell(['backup', 'run', 'acme']);
    await servers.runWell(['restore', 'acme', '--archive', 'latest']);
    const own = await databaseOf('acme');
    const beside =
      (await servers.databases('acme')).find(({ state }) => state === 'filled')?.database ?? '';
    await servers.move('globex', '--to', 'second');
    expect(await servers.serverOf('acme')).to.equal('second');
    const open = new Set<string>();
    const hold = async (name: string): Promise<void> => {
      await second(`grant connect on database "${name}" to metrics`);
      const login = { user: 'metrics', password: 'secret' };
      const client = new pg.Client({
        connectionString: databaseUrl(servers.second.url, name, login),
      });
      client.on('error', () => {}).once('end', () => open.delete(name));
      await client.connect();
      open.add(name);
      held.push(client);
    };
    const ofGlobex = await databaseOf('globex');
    for (const name of [own, beside, ofGlobex]) {
      await hold(name);
    }

    for (const kind of ['swap', 'back']) {
      await servers.runWell(['restore', kind, 'acme', '--yes']);
    }
    expect(await databaseOf('acme')).to.equal(own);
    expect([...open]).to.have.members([own, beside, ofGlobex]);

    await servers.runWell(['restore', 'swap', 'acme', '--yes', '--end-sessions']);
    await eventually(() => open.size === 1);
    expect([...open]).to.deep.equal([ofGlobex]);
    expect(await databaseOf('acme')).to.equal(beside);

    await hold(beside);
    await servers.runWell(['restore', 'back', 'acme', '--yes', '--end-sessions']);
    await eventually(() => open.size === 1);
    expect([...open]).to.deep.equal([ofGlobex]);
    expect(await databaseOf('acme')).to.equal(own);
  });
});

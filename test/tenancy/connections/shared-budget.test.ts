import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { createControlPool } from '../../../src/control/control-pool.ts';
import { openControlDatabase } from '../../../src/control/database.ts';
import { newProcess } from '../../../src/control/process-identity.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { runScript, startScript } from '../../support/command-line.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { createServiceProcesses, type ServiceProcess } from '../../support/service-processes.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';

/** Room for two processes. */
const budget = 12;
const list = '/api/v1/EntityStatus';
/** Longer than a request waits for a connection to the control database. */
const longerThanRequestsMs = 4_000;
const uncached = { 'Cache-Control': 'no-cache' };
const settings = {
  CONNECTION_BUDGET: String(budget),
  ACQUIRE_TIMEOUT_MS: '8000',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

interface ListedProcess {
  readonly pid: number;
  readonly isRunning: boolean;
  readonly share: number | null;
}

/**
 * Two processes of the service, one of which is this one. A drill samples their connections
 * while processes fail.
 */
describe('connection budget of several processes', () => {
  let world: World;
  const { start, killAll } = createServiceProcesses();
  let other: ServiceProcess;
  let clients: Client[];

  before(async () => {
    world = await createWorld(settings);
    clients = [await world.login(world.acme), await world.login(world.globex)];
  });
  after(async () => {
    await killAll();
    await world.close();
  });

  const sql = (text: string, values: unknown[] = []) =>
    withConnection(postgresUrl(), client => client.query(text, values));

  /** Services only: the command that lists them is a process, too. */
  async function listServices(): Promise<ListedProcess[]> {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['processes', '--json'],
      world.environment,
    );
    const processes: (ListedProcess & { kind: string })[] = JSON.parse(stdout);
    return processes.filter(({ kind }) => kind === 'service');
  }

  const limitOfWorld = () =>
    Math.max(...[...world.service.databases.budgets.all.values()].map(({ max }) => max));

  it('a process alone has the budget less the reserve, one that joins has its share when it listens, a third is refused, and the share of a killed one is in use again within ten seconds', async () => {
    await clients[0]?.get(list, uncached);
    expect(limitOfWorld()).to.equal(3);

    other = await start(world.environment);

    for (const client of clients) {
      const { status } = await client.at(other.url).get(list, uncached);
      expect(status).to.equal(200);
    }
    await eventually(() => limitOfWorld() === 1);
    const services = await listServices();
    expect(services.map(({ pid }) => pid)).to.have.members([process.pid, other.process.pid]);
    expect(services.map(({ share }) => share)).to.deep.equal([3, 3]);

    const { code, stderr } = await runScript('src/main.ts', [], { ...world.environment });

    expect(code).to.equal(1);
    expect(stderr).to.equal(
      'CONNECTION_BUDGET (12) has room for 2 processes of the service, and this is number 3. ' +
        'Raise it in all processes, or end some of them (bin/backoffice processes shows them).\n',
    );

    const startedAt = performance.now();
    other.process.kill('SIGKILL');
    await other.ended;

    await eventually(() => limitOfWorld() === 3);

    // A busy machine takes longer; a row that nobody takes as silent stays for a minute.
    expect(performance.now() - startedAt).to.be.below(announcedMs);
    const silent = (await listServices()).find(({ pid }) => pid === other.process.pid);
    expect(silent?.isRunning).to.equal(false);
  });

  it('requests wait while the server refuses connections, which are counted and tried again', async () => {
    const tenant = clients[1] ?? expect.fail();
    await sql(`alter role "${world.globex.database}" connection limit 0`);
    await sql('select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1', [
      world.globex.database,
    ]);
    const refused = () =>
      [...world.service.databases.budgets.all.values()].reduce(
        (sum, { counts }) => sum + counts.serverFull,
        0,
      );

    const response = tenant.get(list, uncached);
    await eventually(() => refused() > 2);
    await sql(`alter role "${world.globex.database}" connection limit -1`);

    expect((await response).status).to.equal(200);
  });
});

describe('commands on a server that has no connection left', () => {
  let world: World;
  /** Without the rights of a superuser, to whom no limit applies. */
  const login = {
    user: `full_${randomBytes(4).toString('hex')}`,
    password: randomBytes(12).toString('base64url'),
  };
  let environment: Record<string, string>;

  before(async () => {
    world = await createWorld();
    await world.service.stop();
    await sql(`create role ${login.user} login createdb createrole password '${login.password}'
                 in role postgres connection limit 1`);
    const url = databaseUrl(
      postgresUrl(),
      new URL(world.installation.controlUrl).pathname.slice(1),
      login,
    );
    environment = { ...world.environment, DATABASE_URL: url };
  });
  after(async () => {
    await sql(`drop role ${login.user}`);
    await world.close();
  });

  const sql = (text: string) => withConnection(postgresUrl(), client => client.query(text));
  const run = (...args: string[]) => runScript('scripts/tenant.ts', args, environment);

  for (const args of [
    ['processes'],
    ['suspend', 'acme', '--yes'],
    ['resume', 'acme'],
    ['session', 'list', 'acme'],
  ]) {
    it(`${args[0]} ${args[1] ?? ''} needs one connection to the control database`, async () => {
      const { code, stderr } = await run(...args);

      expect(stderr).to.equal('');
      expect(code).to.equal(0);
    });
  }

  it('user disable and key disable need one connection to the control database', async () => {
    const user = await run('user', 'disable', 'acme', world.acme.admin.email, '--yes');
    const key = await run('key', 'disable', 'acme', 'no-such-key', '--yes');

    // The last administrator stays, and there is no such key: the commands have looked that up.
    expect(user.stderr).to.include('nothing was changed');
    expect(key.stderr).to.not.include('no connection left');
  });

  it('a command waits as long for a connection of its entity manager', async () => {
    let refusals = 0;
    const member = {
      process: newProcess('command'),
      maxControl: () => 1,
      onControlRefused: () => void refusals++,
    };
    const url = environment.DATABASE_URL ?? '';
    const control = openControlDatabase(url, createControlPool(url, 1, member));
    try {
      const rows = await withConnection(environment.DATABASE_URL ?? '', async () => {
        const pending = control.em.execute<object[]>('select 1');
        pending.catch(() => {}); // it is awaited below
        await eventually(() => refusals > 1);
        await sleep(longerThanRequestsMs);
        return { pending };
      });

      expect(await rows.pending).to.have.length(1);
    } finally {
      await control.close(true);
    }
  });

  it('a command goes on when a connection becomes free within ten seconds, and else says how to keep some', async () => {
    await withConnection(environment.DATABASE_URL ?? '', async () => {
      const { code, stderr } = await run('processes');

      expect(code).to.equal(1);
      expect(stderr).to.include('it has no connection left');
      expect(stderr).to.include('set reserved_connections on the server');
    });

    const waiting = await withConnection(environment.DATABASE_URL ?? '', async client => {
      const command = startScript('scripts/tenant.ts', ['processes'], environment);
      const { rows } = await client.query<{ name: string }>('select current_user as name');
      expect(rows[0]?.name).to.equal(login.user);
      return command;
    });
    expect((await waiting.ended).code).to.equal(0);
  });
});

import { type ChildProcess, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { createRunner, type Runner, runBinary } from '../../src/lib/embedded/binaries.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { type Receiver, startReceiver } from '../sales/webhooks/receiver.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder, removeServerFolder } from '../support/server-folder.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

/**
 * `POSTGRES_BINS=older:newer` has the folders of the programs of two major versions of
 * PostgreSQL, `pg_upgrade` and `pg_dump` among them, which npm does not have.
 */
const [older = '', newer = ''] = (process.env.POSTGRES_BINS ?? '').split(delimiter);
const programs = ['initdb', 'postgres', 'psql'];
/** The programs of the newer version that bring the data there. */
const newerPrograms = ['pg_upgrade', 'pg_dumpall', 'pg_dump', 'pg_restore'];

const path = '/api/v1/EntityStatus';
/** Transaction ids that the older cluster has used, and the younger one has not. */
const usedIds = 20_000;

describe('drill: a server that is brought to another version of PostgreSQL', () => {
  let world: World;
  let receiver: Receiver;
  let folder: string;
  let runner: Runner;
  let secret: string;
  let admin: Client;
  let globex: Client;
  const running = new Set<Cluster>();
  /** Of the superuser of each cluster: an upgrade brings that of the former one. */
  const password = randomBytes(12).toString('hex');

  before(async function () {
    const missing = (bin: string, names: string[]) =>
      names.filter(name => spawnSync(join(bin, name), ['--version']).status !== 0);
    const lacking = [
      ...missing(older, programs),
      ...missing(newer, [...programs, ...newerPrograms]),
    ];
    if (!older || !newer || lacking.length > 0) {
      console.log(
        `POSTGRES_BINS names no two folders with ${[...new Set(lacking)].join(', ')}: the drill is skipped`,
      );
      return this.skip();
    }

    receiver = await startReceiver();
    world = await createWorld({
      ACQUIRE_TIMEOUT_MS: '9000',
      WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted,
    });
    folder = await makeServerFolder('upgraded');
    runner = await createRunner(folder);
    if (runner.uid !== undefined) await chown(folder, runner.uid, runner.uid);
    secret = join(folder, 'password');
    await writeFile(secret, password);
    if (runner.uid !== undefined) await chown(secret, runner.uid, runner.uid);
    [admin, globex] = [await world.login(world.acme), await world.login(world.globex)];
    const hook = { Url: receiver.url('/hook'), Resources: ['EntityStatus'] };
    expect((await admin.post('/api/v1/Webhooks', hook)).status).to.equal(201);
  });
  after(async () => {
    await world?.close();
    await Promise.all([...running].map(cluster => cluster.stop()));
    await receiver?.close();
    if (folder) await removeServerFolder(folder);
  });

  it('pg_upgrade keeps cursors, webhooks go on without a gap, and so do moves before and after', async () => {
    const former = await Cluster.make('former', older);
    await former.start();
    await command(['server', 'add', 'upgraded'], former.url);
    const atFirst = await now(admin);
    await move('upgraded');
    await useIds(former, usedIds);
    const first = await create(admin, 'before pg_upgrade');
    await create(globex, 'of globex');
    const cursor = await now(globex);
    await eventually(() => keys().includes(first));

    await world.service.stop();
    const opened = await openClosedDatabases(former);
    await former.stop();
    const upgraded = await Cluster.make('upgraded', newer, former.port);
    await runProgram(newer, 'pg_upgrade', [
      `--old-bindir=${older}`,
      `--new-bindir=${newer}`,
      `--old-datadir=${former.data}`,
      `--new-datadir=${upgraded.data}`,
      `--socketdir=${folder}`,
      '--username=postgres',
    ]);
    await upgraded.start();
    for (const name of opened) {
      await upgraded.query(`alter database "${name}" allow_connections false`);
    }
    await serve();

    const second = await create(admin, 'after pg_upgrade');
    await eventually(() => keys().includes(second));
    await expectChanges(admin, atFirst, [first, second]);
    await expectChanges(globex, cursor, []);
    expect(gaps()).to.have.length(0);

    await command(['server', 'add', 'upgraded'], upgraded.url);
    expect(await tenantFindings()).to.deep.equal([]);
    await move('default');
    const third = await create(admin, 'after a move');
    await eventually(() => keys().includes(third));
    await expectChanges(admin, atFirst, [first, second, third]);
    expect(keys().filter(key => key === first)).to.have.length(1);
    expect(gaps()).to.have.length(0);
  });

  for (const [program, bring] of [
    ['pg_dumpall', dumpServer],
    ['pg_dump', dumpTenants],
  ] as const) {
    it(`${program} into a younger server expires cursors, a webhook gets one gap and no earlier change again`, async () => {
      const name = program.replace('_', '-');
      const former = await Cluster.make(`${name}-former`, older);
      await former.start();
      await command(['server', 'add', name], former.url);
      const before = await now(admin);
      await move(name);
      await useIds(former, usedIds);
      const first = await create(admin, 'before the dump');
      await eventually(() => keys().includes(first));
      await expectChanges(admin, before, [first]);
      await create(globex, 'of globex before the dump');
      const [cursor, other] = [await now(admin), await now(globex)];
      const [messages, gapsBefore] = [receiver.at('/hook').length, gaps().length];

      await world.service.stop();
      const younger = await Cluster.make(`${name}-younger`, newer);
      await younger.start();
      await bring(former, younger);
      await former.stop();
      await younger.moveTo(former.port);
      // Databases of other tests on the first server are findings, too: doctor ends with exit 1.
      await runCommand('scripts/tenant.ts', ['doctor', '--fix'], world.environment);
      await serve();

      for (const [client, of] of [
        [admin, cursor],
        [globex, other],
        [admin, before],
      ] as const) {
        const { status, body } = await eventually(async () => {
          const response = await client.get(`/api/v1/Changes?after=${of}`);
          return response.status !== 503 && response;
        });
        expect(status, JSON.stringify(body)).to.equal(410);
        expect(body.code).to.equal('cursor_expired');
      }
      const later = await now(admin);
      const second = await create(admin, 'after the dump');
      await eventually(() => keys().includes(second));
      await expectChanges(admin, later, [second]);
      expect(
        receiver
          .at('/hook')
          .slice(messages)
          .map(({ body }) => body.type),
      ).to.deep.equal(['webhook.gap', 'entity_status.created']);

      await move('default');
      const third = await create(admin, 'after the move');
      await eventually(() => keys().includes(third));
      await expectChanges(admin, later, [second, third]);
      expect((await admin.get(`/api/v1/Changes?after=${cursor}`)).status).to.equal(410);
      expect(gaps()).to.have.length(gapsBefore + 1);
      expect(await tenantFindings()).to.deep.equal([]);
    });
  }

  const now = async (client: Client): Promise<string> =>
    (await client.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';
  const keys = () => receiver.at('/hook').map(({ body }) => body.data.Key);
  const gaps = () => receiver.at('/hook').filter(({ body }) => body.type === 'webhook.gap');

  async function create(client: Client, Title: string): Promise<string> {
    const { status, body } = await client.post(path, { Title });
    expect(status, JSON.stringify(body)).to.equal(201);

    return String(body.Id);
  }

  /** Waits until a cursor has as many changes as expected, and compares their keys. */
  async function expectChanges(client: Client, cursor: string, keys: string[]): Promise<void> {
    const read = async (): Promise<string[]> => {
      const { status, body } = await client.get(`/api/v1/Changes?after=${cursor}`);
      expect(status, JSON.stringify(body)).to.equal(200);
      return body.map(({ Key }: { Key: string }) => Key);
    };

    await eventually(async () => (await read()).length >= keys.length);

    expect(await read()).to.deep.equal(keys);
  }

  async function command(words: string[], input = ''): Promise<string> {
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      words,
      world.environment,
      input,
    );
    expect(code, stderr + stdout).to.equal(0);

    return stdout;
  }

  async function move(server: string): Promise<void> {
    for (const slug of ['acme', 'globex']) {
      await command(['move', slug, '--to', server, '--pause', '60']);
    }
  }

  async function tenantFindings(): Promise<string[]> {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json'],
      world.environment,
    );

    return JSON.parse(stdout)
      .findings.filter(({ tenant }: { tenant: string | null }) => tenant !== null)
      .map(({ problem }: { problem: string }) => problem);
  }

  /** Starts the service again, and waits until both tenants are served. */
  async function serve(): Promise<void> {
    const { url } = await world.startAnotherServer();
    [admin, globex] = [admin.at(url), globex.at(url)];
    for (const client of [admin, globex]) {
      await eventually(async () => (await client.get(path)).status === 200, 60_000);
    }
  }

  function useIds(cluster: Cluster, count: number): Promise<unknown> {
    return cluster.query(
      `do $$ begin for n in 1..${count} loop perform pg_current_xact_id(); commit; end loop; end $$`,
    );
  }

  /** Opens the databases that `pg_upgrade` would refuse; returns their names. */
  async function openClosedDatabases(cluster: Cluster): Promise<string[]> {
    const { rows } = await cluster.query<{ name: string }>(
      `select datname as name from pg_database where not datallowconn and datname <> 'template0'`,
    );
    for (const { name } of rows) {
      await cluster.query(`alter database "${name}" allow_connections true`);
    }

    return rows.map(({ name }) => name);
  }

  /** Brings a whole server, with its roles and databases, to another one. */
  async function dumpServer(from: Cluster, to: Cluster): Promise<void> {
    const dump = join(folder, 'dump.sql');
    await runProgram(newer, 'pg_dumpall', ['--dbname', from.socketUrl(), '--file', dump]);
    await runProgram(newer, 'psql', ['--quiet', '--file', dump, to.socketUrl()]);
  }

  /** Brings one database after the other, as the handbook restores a tenant from a dump. */
  async function dumpTenants(from: Cluster, to: Cluster): Promise<void> {
    const roles = join(folder, 'roles.sql');
    await runProgram(newer, 'pg_dumpall', [
      '--roles-only',
      '--dbname',
      from.socketUrl(),
      '--file',
      roles,
    ]);
    await runProgram(newer, 'psql', ['--quiet', '--file', roles, to.socketUrl()]);

    const tenants = await controlSql<{ name: string }>(
      world,
      'select database_name as name from tenants',
    );
    for (const { name } of tenants) {
      const dump = join(folder, `${name}.dump`);
      await runProgram(newer, 'pg_dump', ['-Fc', '--dbname', from.socketUrl(name), '--file', dump]);
      await to.query(
        `create database "${name}" template template0 encoding UTF8 locale_provider builtin
           builtin_locale "C.UTF-8" locale "C"`,
      );
      await runProgram(newer, 'pg_restore', ['--no-owner', '--dbname', to.socketUrl(name), dump]);
    }
  }

  /** Runs a program of PostgreSQL in the folder of the drill. */
  async function runProgram(bin: string, name: string, args: string[]): Promise<void> {
    await ended(runBinary('env', [`--chdir=${folder}`, join(bin, name), ...args], runner, 'pipe'));
  }

  async function ended(child: ChildProcess): Promise<void> {
    const output = Promise.all([child.stdout, child.stderr].map(stream => stream && text(stream)));
    const code = await new Promise(resolve => child.once('exit', resolve));
    expect(code, (await output).join('')).to.equal(0);
  }

  /** A cluster of one version of PostgreSQL. */
  class Cluster {
    readonly data: string;
    port: number;
    readonly #bin: string;
    #server: ChildProcess | undefined;

    private constructor(data: string, bin: string, port: number) {
      this.data = data;
      this.port = port;
      this.#bin = bin;
    }

    /** Makes a cluster, which has used no more transaction ids than `initdb` does. */
    static async make(name: string, bin: string, port?: number): Promise<Cluster> {
      const data = join(folder, name);
      await runProgram(bin, 'initdb', [
        `--pgdata=${data}`,
        '--username=postgres',
        `--pwfile=${secret}`,
        '--encoding=UTF8',
        '--locale=C',
        '--auth-local=trust',
        '--auth-host=scram-sha-256',
        '--data-checksums',
        '--no-sync',
      ]);

      return new Cluster(data, bin, port ?? (await freePort()));
    }

    /** The superuser's URL. */
    get url(): string {
      return `postgresql://postgres:${password}@127.0.0.1:${this.port}/postgres`;
    }

    /** The address by the Unix socket, where nobody is asked for a password. */
    socketUrl(database = 'postgres'): string {
      return `host=${folder} port=${this.port} user=postgres dbname=${database}`;
    }

    async start(): Promise<void> {
      const settings = ['listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`];
      settings.push('fsync=off', 'max_connections=80');
      const server = runBinary(
        join(this.#bin, 'postgres'),
        ['-D', this.data, '-p', String(this.port), ...settings.flatMap(each => ['-c', each])],
        runner,
        'pipe',
      );
      let output = '';
      for (const stream of [server.stdout, server.stderr]) {
        stream?.on('data', part => (output += part));
      }
      this.#server = server;
      running.add(this);
      await eventually(
        () => output.includes('ready to accept connections') || server.exitCode !== null,
        60_000,
      );
      expect(server.exitCode, output).to.equal(null);
    }

    /** Starts on another port, which is free by now. */
    async moveTo(port: number): Promise<void> {
      await this.stop();
      this.port = port;
      await this.start();
    }

    async stop(): Promise<void> {
      const server = this.#server;
      if (server?.exitCode !== null) return;
      const exit = new Promise(resolve => server.once('exit', resolve));
      server.kill('SIGINT');
      await exit;
      running.delete(this);
    }

    query<Row extends object>(statement: string) {
      return withConnection(this.url, client => client.query<Row>(statement));
    }
  }
});

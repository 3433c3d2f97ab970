import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { parsePostgresUrl } from '../../src/lib/config/postgres-url.ts';
import { Client } from '../support/client.ts';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { createPlainServer } from '../support/plain-server.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

describe('drill: PgBouncer between the service and PostgreSQL', function () {
  let world: World;
  let folder: string;
  let pooler: ChildProcess | undefined;

  before(async () => {
    if (spawnSync('pgbouncer', ['--version']).error) {
      console.log('pgbouncer is not installed: this drill is skipped');
      this.ctx.skip();
    }
    world = await createWorld();
    folder = await mkdtemp(join(tmpdir(), 'backoffice-drill-'));
  });
  afterEach(() => pooler?.kill('SIGKILL'));
  after(async () => {
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  /**
   * Starts PgBouncer in front of the server.
   * @returns a URL with the port of PgBouncer in place of that of the server
   */
  async function startPooler(
    mode: 'transaction' | 'session',
    settings = '',
    [superuserUrl, ...others]: [string, ...string[]] = [postgresUrl()],
  ): Promise<(url: string) => string> {
    const port = await freePort();
    const { hostname, port: serverPort, username } = new URL(superuserUrl);
    const [file, users] = ['ini', 'users'].map(name => join(folder, `${mode}.${name}`)) as [
      string,
      string,
    ];
    const logins = [superuserUrl, ...others].map(url => {
      const { user, password: secret } = parsePostgresUrl(url);
      return `"${user}" "${secret}"\n`;
    });

    await writeFile(users, logins.join(''), { mode: 0o644 });
    await writeFile(
      file,
      `[databases]
* = host=${hostname} port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
auth_user = ${username}
pool_mode = ${mode}
${settings.includes('default_pool_size') ? '' : 'default_pool_size = 20'}
${settings}`,
      { mode: 0o644 },
    );

    const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
    spawnSync('chmod', ['755', folder]);
    pooler = spawn('pgbouncer', [...user, file], { stdio: 'ignore' });

    const through = (url: string) => Object.assign(new URL(url), { port: String(port) }).href;
    await eventually(() => accepts(port), 10_000);
    return through;
  }

  for (const settings of ['', 'server_round_robin = 1', 'default_pool_size = 1']) {
    it(`a pooler in transaction mode${settings && ` with ${settings}`} is refused with one line by the service, the command line and server add`, async () => {
      const through = await startPooler('transaction', settings);
      const environment = {
        ...world.environment,
        DATABASE_URL: through(world.installation.controlUrl),
      };

      for (const [script, args] of [
        ['src/main.ts', []],
        ['scripts/tenant.ts', ['list']],
      ] as const) {
        const { code, stderr } = await runScript(script, [...args], environment);
        expect(code, stderr).to.equal(1);
        expect(stderr).to.match(
          /^The control database cannot be used: .*pooler in transaction mode.*\n$/,
        );
      }

      const added = await runScript(
        'scripts/tenant.ts',
        ['server', 'add', 'pooled'],
        world.environment,
        through(postgresUrl()),
      );
      expect(added.code).to.equal(1);
      expect(added.stderr).to.match(
        /^The server pooled cannot be used: .*pooler in transaction mode.*\n$/,
      );
    });
  }

  it('doctor names a server that is reached through a pooler in transaction mode, and accepts session mode', async () => {
    for (const [mode, expected] of [
      ['transaction', true],
      ['session', false],
    ] as const) {
      const through = await startPooler(mode);
      const url = world.installation.secrets
        .seal(through(postgresUrl()), 'server_url:pooled')
        .toString('hex');

      const control = (text: string) => controlSql(world, text);
      await control(
        `insert into servers (name, prefix, admin_url) values ('pooled', 'pooled', decode('${url}', 'hex'))`,
      );
      try {
        const { stdout } = await runScript(
          'scripts/tenant.ts',
          ['doctor', '--json'],
          world.environment,
        );
        const found = JSON.parse(stdout).findings.map(
          (each: Record<string, string>) => `${each.check} ${each.server}`,
        );
        expect(found.includes('shared_sessions pooled'), stdout).to.equal(expected);
      } finally {
        await control(`delete from servers where name = 'pooled'`);
        pooler?.kill('SIGKILL');
      }
    }
  });

  it('a pooler in session mode, with an auth_query for tenants and no setting for us, carries the whole life of a tenant, and a lock of its database', async () => {
    const server = await createPlainServer('createdb createrole');
    let service: RunningScript | undefined;
    try {
      // A pooler remembers that a database was missing.
      await server.sql('create database backoffice owner operator');

      const through = await startPooler('session', '', [
        server.superuserUrl('postgres'),
        server.url('postgres'),
      ]);

      const environment = {
        DATABASE_URL: through(server.url('backoffice')),
        MASTER_KEY: randomBytes(32).toString('hex'),
      };

      const run = async (...args: string[]): Promise<string> => {
        const { code, stdout, stderr } = await runScript(
          'scripts/backoffice.ts',
          args,
          environment,
        );
        expect(code, args.join(' ') + stderr).to.equal(0);
        return stdout;
      };

      await run('control', 'migrate');
      const provisioned = await run(
        'provision',
        'acme',
        '--name',
        'Acme',
        '--admin-email',
        'a@acme.test',
        '--json',
      );
      const { guid, admin } = JSON.parse(provisioned);

      const ports = { PORT: '0', MANAGEMENT_PORT: '0', SHUTDOWN_DELAY: '0s' };
      service = startScript('src/main.ts', [], { ...environment, ...ports });
      const { output, process: child } = service;
      await eventually(
        () => output.stdout.includes('"event":"listening"') || child.exitCode !== null,
        60_000,
      );
      expect(child.exitCode, output.stderr).to.equal(null);

      const url = `http://127.0.0.1:${/"event":"listening","port":(\d+)/.exec(output.stdout)?.[1]}`;
      const login = await new Client(url).post('/api/v1/auth/login', admin, { 'X-Tenant': guid });
      const client = new Client(url, login.body);

      expect(
        (await client.post('/api/v1/EntityStatus', { Title: 'Through a pooler' })).status,
      ).to.equal(201);
      expect((await client.get('/api/v1/EntityStatus')).status).to.equal(200);

      const [row] = await server.sql<{ name: string }>(
        `select datname as name from pg_database where datname like 'backoffice_tenant_%'`,
      );
      const lock = `alter database "${row?.name}"`;
      const endSessions = () =>
        server.sql(
          `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${row?.name}'`,
        );
      const change = async (): Promise<number> =>
        (await client.post('/api/v1/EntityStatus', { Title: randomBytes(4).toString('hex') }))
          .status;
      const readOnly = 'default_transaction_read_only';
      await server.sql(`${lock} set ${readOnly} = on`);
      await endSessions();
      expect(await change()).to.equal(503);
      expect(await run('doctor')).to.include(`is on for database ${row?.name}`);
      await server.sql(`${lock} reset ${readOnly}`);
      await endSessions();
      expect(await change()).to.equal(201);

      await run('clone', 'acme', 'copy');
      expect(JSON.parse(await run('doctor', '--json')).findings.filter(isError)).to.deep.equal([]);
    } finally {
      service?.process.kill('SIGTERM');
      await service?.ended;
      pooler?.kill('SIGKILL');
      await server.close();
    }
  });

  it('doctor names why the server behind a pooler refuses the login of a tenant, and its repair ends it', async () => {
    const server = await createPlainServer('createdb createrole');
    const sql = `create database backoffice owner operator template template0 encoding 'UTF8' locale_provider builtin`;
    await server.sql(`${sql} builtin_locale 'C.UTF-8' locale 'C'`);
    const through = await startPooler('session', 'server_login_retry = 0', [
      server.superuserUrl('postgres'),
      server.url('postgres'),
    ]);
    const environment = {
      DATABASE_URL: through(server.url('backoffice')),
      MASTER_KEY: randomBytes(32).toString('hex'),
    };
    const run = (...args: string[]) => runScript('scripts/backoffice.ts', args, environment);
    expect((await run('control', 'migrate')).code).to.equal(0);
    const provision = ['provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test'];
    expect((await run(...provision)).code).to.equal(0);
    const [row] = await server.sql<{ role: string }>(
      `select rolname as role from pg_roles where rolname like 'backoffice_tenant_%' and rolcanlogin`,
    );

    for (const [attribute, problem] of [
      [`valid until 'yesterday'`, /the password of role \S+ was valid until/],
      [`password 'another'`, /the service cannot log in to database/],
    ] as const) {
      await server.sql(`alter role "${row?.role}" ${attribute}`);
      await server.sql(
        `select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = '${row?.role}'`,
      );

      const { stdout } = await run('doctor', '--fix', '--json');
      const [found] = JSON.parse(stdout).findings.filter(isError);

      expect(found, stdout).to.include({ check: 'login_fails', tenant: 'acme', fixed: true });
      expect(found.problem).to.match(problem);
    }
    pooler?.kill('SIGKILL');
    await server.close();
  });
});

function isError({ severity }: { severity: string }): boolean {
  return severity === 'error';
}

function accepts(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

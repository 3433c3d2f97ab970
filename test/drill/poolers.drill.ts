import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { Client } from '../support/client.ts';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { type PgBouncer, pgBouncerVersion, startPgBouncer } from '../support/pgbouncer.ts';
import { createPlainServer } from '../support/plain-server.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

describe('drill: PgBouncer between the service and PostgreSQL', function () {
  let world: World;
  let pooler: PgBouncer | undefined;

  before(async () => {
    if (pgBouncerVersion() === undefined) {
      console.log('pgbouncer is not installed: this drill is skipped');
      this.ctx.skip();
    }
    world = await createWorld();
  });
  afterEach(() => pooler?.close());
  after(() => world?.close());

  /**
   * Starts PgBouncer in front of the server.
   * @returns a function that puts its port into a URL
   */
  async function startPooler(
    mode: 'transaction' | 'session',
    settings = '',
    urls: [string, ...string[]] = [postgresUrl()],
  ): Promise<(url: string) => string> {
    pooler = await startPgBouncer({ mode, settings, urls });
    return pooler.through;
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
        await pooler?.close();
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
      await pooler?.close();
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
    await pooler?.close();
    await server.close();
  });
});

function isError({ severity }: { severity: string }): boolean {
  return severity === 'error';
}

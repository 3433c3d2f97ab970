import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
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
   * Starts PgBouncer in front of the server. @returns a URL with the port of PgBouncer in place of that of the server
   */
  async function startPooler(mode: 'transaction' | 'session', settings = ''): Promise<(url: string) => string> {
    const port = await freePort();
    const { hostname, port: serverPort, username, password } = new URL(postgresUrl());
    const file = join(folder, `${mode}.ini`);
    const login = `user=${decodeURIComponent(username)} password=${decodeURIComponent(password)}`;
    await writeFile(
      file,
      `[databases]
* = host=${hostname} port=${serverPort} ${login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = ${mode}
${settings.includes('default_pool_size') ? '' : 'default_pool_size = 20'}
ignore_startup_parameters = statement_timeout,lock_timeout,idle_in_transaction_session_timeout,options
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

  for (const settings of ['', 'server_round_robin = 1', 'default_pool_size = 1'])
    it(`a pooler in transaction mode${settings && ` with ${settings}`} is refused with one line by the service, the command line and server add`, async () => {
      const through = await startPooler('transaction', settings);
      const environment = { ...world.environment, DATABASE_URL: through(world.installation.controlUrl) };
      for (const [script, args] of [
        ['src/main.ts', []],
        ['scripts/tenant.ts', ['list']],
      ] as const) {
        const { code, stderr } = await runScript(script, [...args], environment);
        expect(code, stderr).to.equal(1);
        expect(stderr).to.match(/^The control database cannot be used: .*pooler in transaction mode.*\n$/);
      }
      const added = await runScript(
        'scripts/tenant.ts',
        ['server', 'add', 'pooled'],
        world.environment,
        through(postgresUrl()),
      );
      expect(added.code).to.equal(1);
      expect(added.stderr).to.match(/^The server pooled cannot be used: .*pooler in transaction mode.*\n$/);
    });

  it('doctor names a server that is reached through a pooler in transaction mode, and accepts session mode', async () => {
    for (const [mode, expected] of [
      ['transaction', true],
      ['session', false],
    ] as const) {
      const through = await startPooler(mode);
      const url = world.installation.secrets.seal(through(postgresUrl()), 'server_url:pooled').toString('hex');
      const control = (text: string) => controlSql(world, text);
      await control(
        `insert into servers (name, prefix, admin_url) values ('pooled', 'pooled', decode('${url}', 'hex'))`,
      );
      try {
        const { stdout } = await runScript('scripts/tenant.ts', ['doctor', '--json'], world.environment);
        const found = JSON.parse(stdout).findings.map((each: Record<string, string>) => `${each.check} ${each.server}`);
        expect(found.includes('shared_sessions pooled'), stdout).to.equal(expected);
      } finally {
        await control(`delete from servers where name = 'pooled'`);
        pooler?.kill('SIGKILL');
      }
    }
  });

  it('a pooler in session mode serves the control database and the tenants', async () => {
    const through = await startPooler('session');
    const port = await freePort();
    const environment = {
      ...world.environment,
      DATABASE_URL: through(world.installation.controlUrl),
      PORT: String(port),
      MANAGEMENT_PORT: String(await freePort()),
    };
    const running = startScript('src/main.ts', [], environment);
    try {
      const client = (await world.login(world.acme)).at(`http://127.0.0.1:${port}`);
      await eventually(
        async () => (await client.get('/api/v1/EntityStatus').catch(() => undefined))?.status === 200,
        20_000,
      );
      expect((await client.post('/api/v1/EntityStatus', { Title: 'Through a pooler' })).status).to.equal(201);
    } finally {
      running.process.kill('SIGTERM');
      await running.ended;
    }
  });
});

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

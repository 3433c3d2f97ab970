import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { Client } from './support/client.ts';
import { type RunningScript, runScript, type ScriptResult, startScript } from './support/command-line.ts';
import { eventually } from './support/eventually.ts';
import { rawRequest, sendRaw } from './support/raw-http.ts';
import { postgresUrl } from './support/test-server.ts';

const statuses = '/api/v1/EntityStatus';
const startMs = 30_000; // the first one makes a database cluster

/** A process of the service, and what it told whoever started it. */
interface Started extends RunningScript {
  url: string;
  managementUrl: string;
  tenant: string;
  user: string;
  /** Undefined when it was not shown. */
  password: string | undefined;
}

describe('npm start', function () {
  this.timeout(60_000);
  let folder: string;
  let environment: Record<string, string>;
  const processes: RunningScript[] = [];
  let credentials: { email: string; password: string };

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-start-'));
    environment = { DATA_DIR: folder, PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
  });
  after(async () => {
    for (const { process: child } of processes) child.kill('SIGKILL');
    const left = await postmaster(folder);
    if (left) process.kill(left, 'SIGQUIT');
    await eventually(async () => !(await postmaster(folder)), 10_000);
    await rm(folder, { recursive: true, force: true });
  });

  function launch(settings: Record<string, string> = {}): RunningScript {
    const running = startScript('src/main.ts', [], { ...environment, ...settings });
    processes.push(running);
    return running;
  }

  /** Waits until a process has said that it is there. */
  async function ready(running: RunningScript): Promise<Started> {
    const { output, process: child } = running;
    await eventually(() => /curl -s .*\n/.test(output.stdout) || child.exitCode !== null, startMs);
    const { stdout, stderr } = output;
    expect({ exitCode: child.exitCode, stderr }).to.deep.equal({ exitCode: null, stderr: '' });
    const told = (pattern: RegExp): string | undefined => pattern.exec(stdout)?.[1];
    return {
      ...running,
      url: told(/^ +Sales back office +(http:\S+)$/m) ?? '',
      managementUrl: new URL(told(/^ +Health +(http:\S+)$/m) ?? '').origin,
      tenant: told(/^ +Demo tenant +([0-9a-f-]{36})$/m) ?? '',
      user: told(/^ +Demo user +(\S+@\S+)$/m) ?? '',
      password: told(/^ +Password +(\S{16,})/m),
    };
  }

  async function end({ process: child, ended }: RunningScript, signal: NodeJS.Signals): Promise<ScriptResult> {
    child.kill(signal);
    return ended;
  }

  async function logIn({ url, tenant }: Started): Promise<Client> {
    const answer = await new Client(url).post('/api/v1/auth/login', credentials, { 'X-Tenant': tenant });
    expect(answer.status).to.equal(200);
    return new Client(url, answer.body);
  }

  async function expectServing(started: Started): Promise<void> {
    const { status, body } = await (await logIn(started)).get(statuses);
    expect(status).to.equal(200);
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include.members(['Prospect', 'Active', 'Inactive']);
  }

  function expectOneLine({ code, stdout, stderr }: ScriptResult, naming: RegExp): void {
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr.trimEnd()).to.match(naming).and.not.include('\n');
    expect(stderr).not.to.match(/\bat .*\.ts|secret-word/);
  }

  it('on an empty folder prints address, tenant, user and password, and a curl line that logs in', async () => {
    const started = await ready(launch());
    expect(started.url).to.equal(`http://127.0.0.1:${environment.PORT}`);
    expect(started.password).to.be.a('string');
    credentials = { email: started.user, password: started.password ?? '' };
    await expectServing(started);

    const curl = /^ +curl -s (\S+) -H '([^']+)' -H '([^']+)' -d '([^']+)'$/m.exec(started.output.stdout);
    const [, url = '', tenant = '', type = '', body = ''] = curl ?? [];
    const headers = Object.fromEntries([tenant, type].map(header => header.split(': ')));
    const answer = await fetch(url, { method: 'POST', headers, body });
    expect(answer.status).to.equal(200);
    expect(await answer.json()).to.have.all.keys('accessToken', 'refreshToken', 'entityType');
    for (const path of ['live', 'ready'])
      expect((await fetch(`${started.managementUrl}/health/${path}`)).status).to.equal(200);
    expect((await fetch(`${started.url}/health/ready`)).status, 'never on the public port').not.to.equal(200);
    expect((await postmaster(folder)) ?? 0).to.be.greaterThan(0);
  });

  it('beside which the command line works', async () => {
    const listed = await runScript('scripts/tenant.ts', ['list', '--json'], environment);
    expect([listed.code, listed.stderr]).to.deep.equal([0, '']);
    expect(JSON.parse(listed.stdout).map(({ slug }: { slug: string }) => slug)).to.deep.equal(['demo']);
    const made = await runScript(
      'scripts/tenant.ts',
      ['provision', 'beside', '--name', 'Beside', '--admin-email', 'admin@beside.test', '--json'],
      environment,
    );
    expect(made.code).to.equal(0);
    const { guid, admin } = JSON.parse(made.stdout);
    const client = new Client(`http://127.0.0.1:${environment.PORT}`);
    expect((await client.post('/api/v1/auth/login', admin, { 'X-Tenant': guid })).status).to.equal(200);
  });

  it('a second time on the same port ends with one line, and the first goes on', async () => {
    const second = await launch().ended;
    expectOneLine(second, new RegExp(`${environment.PORT}.*PORT`));
    expectOneLine(await launch({ PORT: String(await freePort()) }).ended, /MANAGEMENT_PORT/);
    const first = processes[0] as RunningScript;
    expect(first.process.exitCode).to.equal(null);
    await expectServing(await ready(first));
  });

  it('ended by SIGTERM finishes the request that runs, ends idle connections, and exits with 0', async () => {
    const started = await ready(processes[0] as RunningScript);
    const { tokens } = await logIn(started);
    const body = '{"Title":"Finished"}';
    const head = rawRequest(`POST ${statuses}`, [
      `Authorization: Bearer ${tokens?.accessToken}`,
      'Content-Type: application/json',
      `Content-Length: ${body.length}`,
    ]);
    const idle = sendRaw(started.url, rawRequest('GET /'), { withinMs: 10_000 });
    let sendRest = (_: string): void => {};
    const running = sendRaw(started.url, head, { withinMs: 10_000, exposeWrite: write => (sendRest = write) });
    const isReady = async (): Promise<boolean> => (await fetch(`${started.managementUrl}/health/ready`)).status === 200;
    expect(await isReady()).to.equal(true);

    started.process.kill('SIGTERM');
    await eventually(async () => !(await isReady()));
    expect((await idle).closed).to.equal(true);
    const refused = await fetch(`${started.url}/`).then(
      () => false,
      () => true,
    );
    expect(refused, 'no new connection').to.equal(true);
    expect((await fetch(`${started.managementUrl}/health/live`)).status).to.equal(200);
    sendRest(body);
    const answer = await running;
    expect(answer.statuses).to.deep.equal([201]);
    expect(answer.text)
      .to.match(/^Connection: close\r$/im)
      .and.match(/"Title":"Finished"/);
    const { code, signal, stderr } = await started.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    expect(await postmaster(folder), 'its PostgreSQL is gone').to.equal(undefined);
  });

  it('without which the command line works as well, and leaves nothing running', async () => {
    const { code, stdout, stderr } = await runScript('scripts/tenant.ts', ['list', '--json'], environment);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(JSON.parse(stdout).map(({ slug }: { slug: string }) => slug)).to.deep.equal(['beside', 'demo']);
    expect(await postmaster(folder)).to.equal(undefined);
  });

  it('again has the data that was there, and does not show the password a second time', async () => {
    const started = await ready(launch());
    expect(started.password).to.equal(undefined);
    expect(started.output.stdout).not.to.include(credentials.password);
    expect(started.output.stdout).to.match(/user password demo/);
    const { body } = await (await logIn(started)).get(statuses);
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include('Finished');
    expect((await end(started, 'SIGINT')).code).to.equal(0);
    expect(await postmaster(folder)).to.equal(undefined);
  });

  it('after a process that was killed joins the PostgreSQL that was left', async () => {
    const killed = await ready(launch());
    expect((await end(killed, 'SIGKILL')).signal).to.equal('SIGKILL');
    const left = await postmaster(folder);
    expect(left ?? 0).to.be.greaterThan(0);
    const started = await ready(launch());
    expect(await postmaster(folder)).to.equal(left);
    await expectServing(started);

    // Killed once more, and its PostgreSQL with it: the pid file stays.
    await end(started, 'SIGKILL');
    process.kill(left ?? 0, 'SIGKILL');
    await eventually(async () => !(await isAlive(left ?? 0)));
    expect(await readdir(join(folder, 'postgres'))).to.include('postmaster.pid');
  });

  it('after a power cut starts over the pid file that was left, also when its number is another process’s now', async () => {
    const path = join(folder, 'postgres', 'postmaster.pid');
    const lines = (await readFile(path, 'utf8')).split('\n');
    await writeFile(path, [process.pid, ...lines.slice(1)].join('\n'));
    const started = await ready(launch());
    await expectServing(started);
    expect(await postmaster(folder)).not.to.equal(process.pid);

    // Asked twice, it does not wait for the request that runs.
    const { tokens } = await logIn(started);
    const running = request(`${started.url}${statuses}`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${tokens?.accessToken}`,
        'Content-Type': 'application/json',
        'Content-Length': 9,
        Expect: '100-continue',
      },
    });
    const answered = new Promise(resolve => running.once('response', resolve).once('error', () => resolve('cut off')));
    running.flushHeaders();
    await once(running, 'continue'); // it runs
    started.process.kill('SIGTERM');
    await eventually(() => started.output.stdout.includes('"event":"stopping"'));
    started.process.kill('SIGTERM');
    expect((await started.ended).code).to.equal(1);
    expect(await answered).to.equal('cut off');
  });

  it('with settings that are wrong names each in one line, and never their values', async () => {
    const wrong: [Record<string, string>, RegExp][] = [
      [
        { PORT: 'secret-word', LOG_LEVEL: 'secret-word', TRUSTED_PROXIES: 'secret-word' },
        /PORT.*TRUSTED_PROXIES.*LOG_LEVEL/,
      ],
      [{ MANAGEMENT_PORT: '65536', PUBLIC_URL: 'secret-word' }, /MANAGEMENT_PORT.*PUBLIC_URL/],
      [{ DATABASE_URL: postgresUrl() }, /MASTER_KEY/],
      [{ DATABASE_URL: 'secret-word', MASTER_KEY: 'secret-word' }, /DATABASE_URL.*MASTER_KEY/],
      [{ DATABASE_URL: 'postgresql://u:secret-word@127.0.0.1:1/x', MASTER_KEY: 'ab'.repeat(32) }, /DATABASE_URL/],
    ];
    const ended = await Promise.all(wrong.map(([settings]) => launch(settings).ended));
    for (const [index, each] of ended.entries()) expectOneLine(each, wrong[index]?.[1] ?? /never/);
  });

  it('on a configured control database without a schema tells the command that makes it, and serves after that', async () => {
    const name = `start_${randomBytes(5).toString('hex')}`;
    await withConnection(postgresUrl(), client => client.query(`create database ${name}`));
    const configured = {
      DATABASE_URL: databaseUrl(postgresUrl(), name),
      MASTER_KEY: randomBytes(32).toString('base64'),
    };
    expectOneLine(await launch(configured).ended, /npm run control -- migrate/);

    const all = { ...environment, ...configured };
    const migrated = await runScript('scripts/control.ts', ['migrate'], all);
    expect([migrated.code, migrated.stderr]).to.deep.equal([0, '']);
    const running = launch(configured);
    await eventually(
      () => running.output.stdout.includes('"event":"listening"') || running.process.exitCode !== null,
      startMs,
    );
    expect((await fetch(`http://127.0.0.1:${environment.MANAGEMENT_PORT}/health/ready`)).status).to.equal(200);
    const answer = await new Client(`http://127.0.0.1:${environment.PORT}`).get(statuses);
    expect([answer.status, answer.body.code]).to.deep.equal([403, 'tenant_required']);
    const { code, stdout } = await end(running, 'SIGTERM');
    expect(code).to.equal(0);
    expect(stdout, 'no demo tenant where nobody asked for one').not.to.match(/demo/i);
    await withConnection(postgresUrl(), client => client.query(`drop database ${name} with (force)`));
  });
});

/** The PostgreSQL that serves a data folder, if one does. */
async function postmaster(folder: string): Promise<number | undefined> {
  const data = join(folder, 'postgres');
  const pid = Number((await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0]);
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return command.split('\0').includes(data) ? pid : undefined;
}

async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return status !== '' && !/\) Z /.test(status);
}

async function freePort(): Promise<number> {
  const server: Server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise(resolve => server.close(resolve));
  return typeof address === 'object' && address ? address.port : 0;
}

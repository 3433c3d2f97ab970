import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { Client } from './support/client.ts';
import {
  type RunningScript,
  runScript,
  type ScriptResult,
  startNpm,
  startProgram,
  startScript,
} from './support/command-line.ts';
import { eventually } from './support/eventually.ts';
import { rawRequest, sendRaw } from './support/raw-http.ts';
import { postgresUrl } from './support/test-server.ts';

const statuses = '/api/v1/EntityStatus';
/** The first start creates a database cluster. */
const startMs = 30_000;

/** A process of the service, and what its welcome text says. */
interface Service extends RunningScript {
  url: string;
  managementUrl: string;
  tenant: string;
  user: string;
  /** Undefined unless the password was shown. */
  password: string | undefined;
}

interface PendingRequest {
  sendBody(): void;
  responded: Promise<IncomingMessage | 'cut off'>;
}

describe('npm start', function () {
  this.timeout(60_000);
  let folder: string;
  let environment: Record<string, string>;
  const processes: RunningScript[] = [];
  /** The service that started last. It may have ended. */
  let current: Service;
  let credentials: { email: string; password: string };
  const tenants = ['demo'];

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-start-'));
    environment = {
      DATA_DIR: folder,
      PORT: String(await freePort()),
      MANAGEMENT_PORT: String(await freePort()),
      SHUTDOWN_DELAY: '0s',
      RATE_LIMIT_LOGIN: '100/15m', // the tests log in more often than a user may
    };
    const { user, password } = await start();
    credentials = { email: user, password: password ?? '' };
    expect((await (await logIn(current)).post(statuses, { Title: 'Stored' })).status).to.equal(201);
  });
  after(async () => {
    for (const { process: child } of processes) child.kill('SIGKILL');
    await eventually(async () => {
      const left = await processesUsing(folder);
      for (const pid of left) kill(pid, 'SIGQUIT');
      return left.length === 0;
    }, 30_000);
    await rm(folder, { recursive: true, force: true });
  });

  function launch(settings: Record<string, string> = {}): RunningScript {
    const running = startScript('src/main.ts', [], { ...environment, ...settings });
    processes.push(running);
    return running;
  }

  function launchNpm(...args: string[]): RunningScript {
    const running = startNpm(args, environment);
    processes.push(running);
    return running;
  }

  /** Waits for the welcome text of a process. */
  async function ready(running: RunningScript): Promise<Service> {
    const { output, process: child } = running;
    await eventually(() => /curl -s .*\n/.test(output.stdout) || child.exitCode !== null, startMs);
    const { stdout, stderr } = output;
    expect({ exitCode: child.exitCode, stderr }).to.deep.equal({ exitCode: null, stderr: '' });
    const printed = (pattern: RegExp): string | undefined => pattern.exec(stdout)?.[1];
    return {
      ...running,
      url: printed(/^ +Sales back office +(http:\S+)$/m) ?? '',
      managementUrl: new URL(printed(/^ +Health +(http:\S+)$/m) ?? '').origin,
      tenant: printed(/^ +Demo tenant +([0-9a-f-]{36})$/m) ?? '',
      user: printed(/^ +Demo user +(\S+@\S+)$/m) ?? '',
      password: printed(/^ +Password +(\S{16,})/m),
    };
  }

  /** Starts the service and waits until it is ready. */
  async function start(settings: Record<string, string> = {}): Promise<Service> {
    current = await ready(launch(settings));
    return current;
  }

  /** Returns the running service; starts it if none is running. */
  async function running(): Promise<Service> {
    return isRunning(current) ? current : start();
  }

  /** Ends the running service, if there is one, and its PostgreSQL. */
  async function stopped(): Promise<void> {
    if (!isRunning(current)) return;
    await end(current, 'SIGINT');
    await eventually(async () => (await postmaster(folder)) === undefined, 30_000);
  }

  const isRunning = ({ process: child }: Service): boolean => child.exitCode === null && child.signalCode === null;

  async function end({ process: child, ended }: RunningScript, signal: NodeJS.Signals): Promise<ScriptResult> {
    child.kill(signal);
    return ended;
  }

  async function logIn({ url, tenant }: Service): Promise<Client> {
    const response = await new Client(url).post('/api/v1/auth/login', credentials, { 'X-Tenant': tenant });
    expect(response.status).to.equal(200);
    return new Client(url, response.body);
  }

  async function expectServing(service: Service): Promise<void> {
    const { status, body } = await (await logIn(service)).get(statuses);
    expect(status).to.equal(200);
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include.members(['Prospect', 'Active', 'Inactive']);
  }

  /** Begins a request that creates a status. The service has received the head, and waits for `body` to be sent. */
  async function beginRequest(service: Service, title: string): Promise<PendingRequest> {
    const { tokens } = await logIn(service);
    const body = JSON.stringify({ Title: title });
    const sent = request(`${service.url}${statuses}`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${tokens?.accessToken}`,
        'Content-Type': 'application/json',
        'Content-Length': body.length,
        Expect: '100-continue',
      },
    });
    const responded = new Promise<IncomingMessage | 'cut off'>(resolve =>
      sent.once('response', resolve).once('error', () => resolve('cut off')),
    );
    sent.flushHeaders();
    await once(sent, 'continue');
    return { sendBody: () => sent.end(body), responded };
  }

  async function expectCreated({ sendBody, responded }: PendingRequest): Promise<void> {
    sendBody();
    const response = await responded;
    if (response === 'cut off') throw new Error('the request was cut off');
    expect([response.statusCode, response.headers.connection]).to.deep.equal([201, 'close']);
    expect(await text(response)).to.match(/"Title":"Finished/);
  }

  const isReady = async ({ managementUrl }: Service): Promise<boolean> =>
    (await fetch(`${managementUrl}/health/ready`)).status === 200;

  function expectOneLine({ code, stdout, stderr }: ScriptResult, naming: RegExp): void {
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr.trimEnd()).to.match(naming).and.not.include('\n');
    expect(stderr).not.to.match(/\bat .*\.ts|secret-word/);
  }

  it('a start on an empty folder prints address, tenant, user and password, and a curl line that logs in', async () => {
    const service = current;
    expect(service.url).to.equal(`http://127.0.0.1:${environment.PORT}`);
    expect(service.password).to.be.a('string');
    await expectServing(service);

    const curl = /^ +curl -s (\S+) -H '([^']+)' -H '([^']+)' -d '([^']+)'$/m.exec(service.output.stdout);
    const [, url = '', tenant = '', type = '', body = ''] = curl ?? [];
    const headers = Object.fromEntries([tenant, type].map(header => header.split(': ')));
    const response = await fetch(url, { method: 'POST', headers, body });
    expect(response.status).to.equal(200);
    expect(await response.json()).to.have.all.keys('accessToken', 'refreshToken', 'entityType');
    for (const path of ['live', 'ready'])
      expect((await fetch(`${service.managementUrl}/health/${path}`)).status).to.equal(200);
    expect((await fetch(`${service.url}/health/ready`)).status, 'never on the public port').not.to.equal(200);
    expect((await postmaster(folder)) ?? 0).to.be.greaterThan(0);
  });

  it('the printed lines, pasted into a shell, list the countries and entities of the demo tenant', async () => {
    const { output } = await running();
    const lines = /^ +TOKEN=\$\((.+\n)+/m.exec(`${output.stdout}\n`)?.[0] ?? '';
    const { code, stdout } = await startProgram('bash', ['-c', lines], {}).ended;
    expect(code).to.equal(0);
    const [countries, entities] = stdout
      .replace('][', ']\n[')
      .split('\n')
      .map(text => JSON.parse(text));
    expect(countries).to.have.length(249);
    expect(entities.map(({ EntityType }: { EntityType: string }) => EntityType)).to.include.members([
      'customer',
      'supplier',
    ]);
  });

  it('no list of the demo tenant is empty at the first start', async () => {
    const client = await logIn(await running());
    const lists = 'Countries Currency UnitsOfMeasure OrderStatuses TaxCodes SystemOptions Promotions Entities Activity';
    for (const list of lists.split(' ')) {
      const { status, body } = await client.get(`/api/v1/${list}`);
      expect([status, body.length > 1], list).to.deep.equal([200, true]);
    }
  });

  it('the command line works while the service runs', async () => {
    await running();
    const listed = await runScript('scripts/tenant.ts', ['list', '--json'], environment);
    expect([listed.code, listed.stderr]).to.deep.equal([0, '']);
    expect(JSON.parse(listed.stdout).map(({ slug }: { slug: string }) => slug)).to.deep.equal(['demo']);
    const made = await runScript(
      'scripts/tenant.ts',
      ['provision', 'beside', '--name', 'Beside', '--admin-email', 'admin@beside.test', '--json'],
      environment,
    );
    expect(made.code).to.equal(0);
    tenants.push('beside');
    const { guid, admin } = JSON.parse(made.stdout);
    const client = new Client(`http://127.0.0.1:${environment.PORT}`);
    expect((await client.post('/api/v1/auth/login', admin, { 'X-Tenant': guid })).status).to.equal(200);
  });

  it('a second start on a used port fails with one line that names the setting', async () => {
    const first = await running();
    const second = await launch().ended;
    expectOneLine(second, new RegExp(`${environment.PORT}.*PORT`));
    expectOneLine(await launch({ PORT: String(await freePort()) }).ended, /MANAGEMENT_PORT/);
    expect(first.process.exitCode).to.equal(null);
    await expectServing(first);
  });

  it('after SIGTERM the service finishes the running request, closes idle connections and exits with 0', async () => {
    const service = await running();
    const idle = sendRaw(service.url, rawRequest('GET /'), { withinMs: 10_000 });
    const pending = await beginRequest(service, 'Finished');
    expect(await isReady(service)).to.equal(true);

    service.process.kill('SIGTERM');
    await eventually(async () => !(await isReady(service)));
    expect((await idle).closed).to.equal(true);
    const refused = await fetch(`${service.url}/`).then(
      () => false,
      () => true,
    );
    expect(refused, 'no new connection').to.equal(true);
    expect((await fetch(`${service.managementUrl}/health/live`)).status).to.equal(200);
    await expectCreated(pending);
    const { code, signal, stderr } = await service.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    expect(await postmaster(folder), 'the embedded PostgreSQL has stopped').to.equal(undefined);
  });

  it('after SIGTERM the service serves new connections for SHUTDOWN_DELAY while it is not ready', async () => {
    await stopped();
    const service = await start({ SHUTDOWN_DELAY: '2s' });
    service.process.kill('SIGTERM');
    await eventually(async () => !(await isReady(service)));
    await expectServing(service);
    expect((await service.ended).code).to.equal(0);
  });

  it('an error that nothing handled ends the service with exit code 1, also after SIGTERM', async () => {
    const fault = "process.once('SIGUSR2',()=>{throw(new(Error)('unhandled'))})";
    await stopped();
    const service = await start({
      SHUTDOWN_DELAY: '2s',
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(fault)}`,
    });
    service.process.kill('SIGTERM');
    await eventually(async () => !(await isReady(service)));
    service.process.kill('SIGUSR2');
    const { code, stdout } = await service.ended;
    expect(stdout).to.include('"event":"fault"');
    expect(code).to.equal(1);
  });

  it('a signal during the start ends the process at once with the exit code of the signal', async () => {
    await stopped();
    const starting = launch();
    await eventually(async () => (await postmaster(folder)) !== undefined);
    expect((await end(starting, 'SIGINT')).code).to.equal(130);
    await eventually(async () => (await postmaster(folder)) === undefined, 30_000);
  });

  it('the command line works without the service, and leaves no PostgreSQL running', async () => {
    await stopped();
    const { code, stdout, stderr } = await runScript('scripts/tenant.ts', ['list', '--json'], environment);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(JSON.parse(stdout).map(({ slug }: { slug: string }) => slug)).to.deep.equal([...tenants].sort());
    expect(await postmaster(folder)).to.equal(undefined);
  });

  it('a later start serves the stored data, and does not print the password again', async () => {
    await stopped();
    const service = await start();
    expect(service.password).to.equal(undefined);
    expect(service.output.stdout).not.to.include(credentials.password);
    expect(service.output.stdout).to.match(/user password demo/);
    const { body } = await (await logIn(service)).get(statuses);
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include('Stored');
    expect((await end(service, 'SIGINT')).code).to.equal(0);
    expect(await postmaster(folder)).to.equal(undefined);
  });

  it('a start after a killed service joins the PostgreSQL that the service left running', async () => {
    await stopped();
    const killed = await start();
    expect((await end(killed, 'SIGKILL')).signal).to.equal('SIGKILL');
    const left = await postmaster(folder);
    expect(left ?? 0).to.be.greaterThan(0);
    const service = await start();
    expect(await postmaster(folder)).to.equal(left);
    await expectServing(service);
  });

  it('a stale pid file does not prevent a start, and a second signal ends the service at once', async () => {
    const killed = await running();
    const left = (await postmaster(folder)) ?? 0;
    await end(killed, 'SIGKILL');
    process.kill(left, 'SIGKILL');
    await eventually(async () => !(await isAlive(left)));
    const path = join(folder, 'postgres', 'postmaster.pid');
    const lines = (await readFile(path, 'utf8')).split('\n');
    await writeFile(path, [process.pid, ...lines.slice(1)].join('\n'));
    const service = await start();
    await expectServing(service);
    expect(await postmaster(folder)).not.to.equal(process.pid);

    const { responded } = await beginRequest(service, 'Cut off');
    service.process.kill('SIGTERM');
    await eventually(() => service.output.stdout.includes('"event":"stopping"'));
    // Signals within 1 s of the first one count as its repetition; the first later one ends the process.
    await eventually(() => {
      service.process.kill('SIGTERM');
      return service.process.exitCode !== null;
    });
    expect((await service.ended).code).to.equal(1);
    expect(await responded).to.equal('cut off');
  });

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    it(`after ${signal} to npm alone, the request finishes, npm exits with 0 and no process remains`, async () => {
      await stopped();
      const npm = await ready(launchNpm('start'));
      const pending = await beginRequest(npm, `Finished after ${signal}`);
      npm.process.kill(signal);
      await eventually(async () => !(await isReady(npm)));
      await expectCreated(pending);
      const result = await npm.ended;
      expect([result.code, result.signal]).to.deep.equal([0, null]);
      expect(await processesUsing(folder)).to.deep.equal([]);
    });
  }

  // `dev` names .env only if it exists: node --watch aborts on a signal when an --env-file-if-exists is missing
  // (https://github.com/nodejs/node/issues/64819).
  for (const script of ['start', 'dev']) {
    it(`the two signals of Ctrl-C under npm run ${script} let the running request finish`, async () => {
      await stopped();
      const npm = await ready(launchNpm('run', script));
      const pending = await beginRequest(npm, `Finished by ${script}`);
      process.kill(-(npm.process.pid ?? 0), 'SIGINT'); // the whole process group, like a terminal
      await eventually(async () => !(await isReady(npm)));
      await expectCreated(pending);
      const result = await npm.ended;
      expect([result.code, result.signal]).to.deep.equal([0, null]);
      expect(await processesUsing(folder)).to.deep.equal([]);
    });
  }

  it('every npm script that runs one program replaces its shell by it, so signals to npm reach it', async () => {
    const { scripts } = JSON.parse(await readFile(new URL('../package.json', import.meta.url), 'utf8'));
    const withShell = Object.keys(scripts).filter(name => !scripts[name].startsWith('exec '));
    expect(withShell).to.deep.equal(['openapi:types', 'lint:openapi', 'check']); // pipelines and sequences of short programs
  });

  it('wrong settings are named in one line each, and their values are never printed', async () => {
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

  it('a start on a control database without a schema fails with the command that migrates it', async () => {
    await stopped();
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
    const configuredService = launch(configured);
    await eventually(
      () =>
        configuredService.output.stdout.includes('"event":"listening"') || configuredService.process.exitCode !== null,
      startMs,
    );
    expect((await fetch(`http://127.0.0.1:${environment.MANAGEMENT_PORT}/health/ready`)).status).to.equal(200);
    const response = await new Client(`http://127.0.0.1:${environment.PORT}`).get(statuses);
    expect([response.status, response.body.code]).to.deep.equal([403, 'tenant_required']);
    const { code, stdout } = await end(configuredService, 'SIGTERM');
    expect(code).to.equal(0);
    expect(stdout, 'only an embedded PostgreSQL gets a demo tenant').not.to.match(/demo/i);
    await withConnection(postgresUrl(), client => client.query(`drop database ${name} with (force)`));
  });
});

/** The pid of the PostgreSQL that serves a data folder, if one does. */
async function postmaster(folder: string): Promise<number | undefined> {
  const data = join(folder, 'postgres');
  const pid = Number((await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0]);
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return command.split('\0').includes(data) ? pid : undefined;
}

/** The pids of all processes that were started with this data folder or that work in it. */
async function processesUsing(folder: string): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter(pid => pid > 0);
  const used = await Promise.all(
    pids.map(async pid => {
      const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
      const workingFolder = await readlink(`/proc/${pid}/cwd`).catch(() => '');
      return environment.includes(`DATA_DIR=${folder}\0`) || workingFolder.startsWith(folder);
    }),
  );
  return pids.filter((_, index) => used[index]);
}

/** Sends a signal to a process, unless the process has ended. */
function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
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

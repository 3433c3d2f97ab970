import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Client } from '../support/client.ts';
import { type RunningScript, startNpm, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { isAlive } from '../support/processes.ts';
import { createWorld, type World } from '../support/world.ts';

const list = '/api/v1/EntityStatus';
const startMs = 120_000;

type Line = Record<string, unknown>;

/** The lines of the log. Throws if one is not whole. */
const logLines = ({ output }: RunningScript): Line[] =>
  output.stdout
    .split('\n')
    .filter(line => line.startsWith('{'))
    .map(line => JSON.parse(line));
const countOf = (running: RunningScript, event: string): number =>
  logLines(running).filter(line => line.event === event).length;

async function untilListening(running: RunningScript): Promise<void> {
  const isEnded = () => running.process.exitCode !== null;
  await eventually(() => countOf(running, 'listening') > 0 || isEnded(), startMs);
  expect([isEnded(), running.output.stderr]).to.deep.equal([false, '']);
}

describe('drill: start and stop of worker processes on the embedded PostgreSQL', () => {
  let folder: string;
  let environment: Record<string, string>;
  let url: string;
  let credentials: { email: string; password: string };
  let tenant: string;
  const started: RunningScript[] = [];

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-workers-'));
    const [port, managementPort] = [await freePort(), await freePort()];
    url = `http://127.0.0.1:${port}`;
    environment = {
      DATA_DIR: folder,
      PROCESSES: '2',
      PORT: String(port),
      MANAGEMENT_PORT: String(managementPort),
      SHUTDOWN_DELAY: '0s',
    };
  });
  after(async () => {
    for (const { process: child } of started) signalGroup(child.pid, 'SIGKILL');
    for (const pid of await processesUsing(folder)) process.kill(pid, 'SIGKILL');
    await rm(folder, { recursive: true, force: true });
  });

  function start(): RunningScript {
    const running = startNpm(['start'], environment);
    started.push(running);
    return running;
  }

  /** Begins a request that creates a status; a worker has received its head, and waits for the body. */
  async function beginRequest(title: string): Promise<{ finish(): Promise<IncomingMessage> }> {
    const login = await new Client(url).post('/api/v1/auth/login', credentials, { 'X-Tenant': tenant });
    expect(login.status).to.equal(200);
    const body = JSON.stringify({ Title: title });
    const sent = request(`${url}${list}`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${login.body.accessToken}`,
        'Content-Type': 'application/json',
        'Content-Length': body.length,
        Expect: '100-continue',
      },
    });
    const responded = new Promise<IncomingMessage>((resolve, reject) =>
      sent.once('response', resolve).once('error', reject),
    );
    sent.flushHeaders();
    await new Promise(resolve => sent.once('continue', resolve));
    return {
      finish: () => {
        sent.end(body);
        return responded;
      },
    };
  }

  async function expectEnd(running: RunningScript, title: string, stop: () => void): Promise<void> {
    const pending = await beginRequest(title);
    stop();
    await eventually(() => countOf(running, 'stopping') === 1);
    const response = await pending.finish();
    expect([response.statusCode, response.headers.connection]).to.deep.equal([201, 'close']);
    const { code, signal, stderr } = await running.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    expect(await processesUsing(folder)).to.deep.equal([]);
  }

  it('npm start on an empty folder prints the welcome once, and Ctrl-C lets the running request finish', async () => {
    const running = start();
    await untilListening(running);
    await eventually(() => /curl -s .*\n/.test(running.output.stdout));
    const { stdout } = running.output;
    expect(stdout.match(/Sales back office/g)).to.have.length(1);
    const printed = (pattern: RegExp): string => pattern.exec(stdout)?.[1] ?? '';
    tenant = printed(/^ +Demo tenant +([0-9a-f-]{36})$/m);
    credentials = {
      email: printed(/^ +Demo user +(\S+@\S+)$/m),
      password: printed(/^ +Password +(\S{16,})/m),
    };
    await expectEnd(running, 'Ctrl-C', () => signalGroup(running.process.pid, 'SIGINT'));
  });

  it('SIGTERM to npm alone lets the running request finish, and leaves no process', async () => {
    const running = start();
    await untilListening(running);
    await expectEnd(running, 'SIGTERM', () => running.process.kill('SIGTERM'));
  });

  it('Ctrl-C while the workers start ends all processes with the exit code of the signal, and prints nothing', async () => {
    const running = startScript('src/main.ts', [], environment);
    started.push(running);
    await eventually(async () => (await childrenOf(running.process.pid ?? 0)).length === 2, startMs);
    const workers = await childrenOf(running.process.pid ?? 0);
    for (const pid of [...workers, running.process.pid ?? 0]) process.kill(pid, 'SIGINT');
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stdout, stderr }).to.deep.equal({ code: 130, stdout: '', stderr: '' });
    await eventually(async () => (await processesUsing(folder)).length === 0);
  });
});

describe('drill: faults of worker processes', () => {
  let world: World;
  let folder: string;
  let keyFile: string;
  let environment: Record<string, string>;
  let service: RunningScript;
  let url: string;

  before(async () => {
    world = await createWorld();
    folder = await mkdtemp(join(tmpdir(), 'backoffice-workers-'));
    keyFile = join(folder, 'master-key');
    await writeFile(keyFile, world.environment.MASTER_KEY ?? '', { mode: 0o600 });
    const [port, managementPort] = [await freePort(), await freePort()];
    url = `http://127.0.0.1:${port}`;
    const fault = "process.once('SIGUSR2',()=>{throw(new(Error)('unhandled'))})";
    environment = {
      ...world.environment,
      MASTER_KEY: '',
      MASTER_KEY_FILE: keyFile,
      PROCESSES: '2',
      PORT: String(port),
      MANAGEMENT_PORT: String(managementPort),
      SHUTDOWN_DELAY: '0s',
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(fault)}`,
    };
    service = startScript('src/main.ts', [], environment);
    await untilListening(service);
  });
  after(async () => {
    service?.process.kill('SIGKILL');
    await service?.ended;
    await world?.close();
    await rm(folder, { recursive: true, force: true });
  });

  const workers = (): number[] =>
    logLines(service).flatMap(({ event, worker }) => (event === 'worker_started' ? [Number(worker)] : []));
  const isServing = async (): Promise<boolean> => (await fetch(`${url}/docs`)).status === 200;

  it('a port or management port in use fails the start with the line of a single process', async () => {
    for (const [name, free] of [
      ['PORT', 'MANAGEMENT_PORT'],
      ['MANAGEMENT_PORT', 'PORT'],
    ] as const) {
      const settings = { ...environment, LOG_LEVEL: 'error', [free]: String(await freePort()) };
      const { code, stderr } = await startScript('src/main.ts', [], settings).ended;
      const line = `port ${environment[name]} on 127.0.0.1 is in use by another process: set ${name} to another one.\n`;
      expect([code, stderr]).to.deep.equal([1, line]);
    }
  });

  it('a worker with an error that nothing handled is replaced, while the other one serves', async () => {
    const [victim = 0] = workers();
    process.kill(victim, 'SIGUSR2');
    await eventually(() => countOf(service, 'worker_started') === 3, startMs);
    expect(await isServing()).to.equal(true);
    expect(logLines(service).find(({ event }) => event === 'fault')?.pid).to.equal(victim);
    expect(logLines(service).find(({ event }) => event === 'worker_died')?.worker).to.equal(victim);
  });

  it('a restart whose new worker cannot start leaves the old ones in service, and a later one succeeds', async () => {
    const key = await readFile(keyFile, 'utf8');
    await writeFile(keyFile, Buffer.alloc(32, 7).toString('base64'));
    service.process.kill('SIGHUP');
    await eventually(() => countOf(service, 'restart_failed') === 1, startMs);
    expect(logLines(service).find(({ event }) => event === 'restart_failed')?.reason).to.match(/^MASTER_KEY is not/);
    expect(await isServing()).to.equal(true);
    expect(countOf(service, 'worker_started')).to.equal(3);

    await writeFile(keyFile, key);
    service.process.kill('SIGHUP');
    service.process.kill('SIGHUP'); // one signal, or a second one that is queued
    await eventually(() => countOf(service, 'restarted') > countOf(service, 'restart_queued'), startMs);
    expect(await isServing()).to.equal(true);
    expect(countOf(service, 'worker_died')).to.equal(1);
  });

  it('a second SIGTERM ends the service at once, although a request is running', async () => {
    const headers = { 'Content-Type': 'application/json', 'Content-Length': 10, Expect: '100-continue' };
    const sent = request(`${url}/api/v1/auth/login`, { method: 'POST', headers });
    sent.on('error', () => {});
    sent.flushHeaders();
    await new Promise(resolve => sent.once('continue', resolve));
    service.process.kill('SIGTERM');
    await eventually(() => countOf(service, 'stopping') === 1);
    await sleep(1_100); // an earlier signal counts as a repetition of the first one
    service.process.kill('SIGTERM');
    expect((await service.ended).code).to.equal(1);
    await eventually(() => workers().every(pid => !isAlive(pid)));
  });
});

function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  try {
    process.kill(-(leader ?? 0), signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** The pids of all processes that were started with this data folder. */
async function processesUsing(folder: string): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter(pid => pid > 0);
  const used = await Promise.all(
    pids.map(async pid => {
      const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
      return environment.includes(`DATA_DIR=${folder}\0`);
    }),
  );
  return pids.filter((_, index) => used[index]);
}

/** The pids of the Node processes that a process has started. */
async function childrenOf(parent: number): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter(pid => pid > 0);
  const found = await Promise.all(
    pids.map(async pid => {
      const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      return Number(status.split(') ')[1]?.split(' ')[1]) === parent && command.includes('main.ts');
    }),
  );
  return pids.filter((_, index) => found[index]);
}

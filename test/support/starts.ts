import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { Client } from './client.ts';
import { type RunningScript, type ScriptResult, startNpm, startScript } from './command-line.ts';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';
import { endProcesses, type SeenProcess, seeProcesses } from './processes.ts';
import { makeServerFolder } from './server-folder.ts';

export const statuses = '/api/v1/EntityStatus';
/**
 * The first start creates a database cluster, which takes 5 s on a machine that does nothing
 * else.
 */
export const startMs = 120_000;

/** A process of the service, and what its welcome text says. */
export interface StartedService extends RunningScript {
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

/**
 * Starts a service before the tests of a `describe`, on a folder of its own with the embedded
 * PostgreSQL, the demo tenant and an entity status `Stored`. Ends all processes after them.
 * @param settings environment variables of each start
 */
export function useStarts(settings: Record<string, string> = {}) {
  let folder = '';
  let environment: Record<string, string> = {};
  const processes: RunningScript[] = [];
  /** The service that started last. It may have ended. */
  let current: StartedService;
  /** The service that started on the empty folder, on the ports of all others. */
  let first: StartedService;
  let credentials: { email: string; password: string };

  before(async () => {
    folder = await makeServerFolder('start');
    environment = {
      DATA_DIR: folder,
      PORT: String(await freePort()),
      MANAGEMENT_PORT: String(await freePort()),
      SHUTDOWN_DELAY: '0s',
      ...settings,
    };
    first = await start();
    credentials = { email: first.user, password: first.password ?? '' };
    expect((await (await logIn(current)).post(statuses, { Title: 'Stored' })).status).to.equal(201);
  });
  after(async () => {
    for (const { process: child } of processes) child.kill('SIGKILL');
    await endProcesses(usesFolder);
    await rm(folder, { recursive: true, force: true });
  });

  /** True for a process that was started with this data folder or that works in it. */
  function usesFolder({ environment: variables, workingFolder }: SeenProcess): boolean {
    return variables.includes(`DATA_DIR=${folder}\0`) || workingFolder.startsWith(folder);
  }

  function launch(more: Record<string, string> = {}): RunningScript {
    const running = startScript('src/main.ts', [], { ...environment, ...more });
    processes.push(running);
    return running;
  }

  function launchNpm(...args: string[]): RunningScript {
    const running = startNpm(args, environment);
    processes.push(running);
    return running;
  }

  /** Waits for the welcome text of a process. */
  async function ready(running: RunningScript): Promise<StartedService> {
    const { output, process: child } = running;
    await eventually(() => /curl -sS .*\n/.test(output.stdout) || child.exitCode !== null, startMs);
    const { stdout, stderr } = output;
    expect({ exitCode: child.exitCode, stderr }).to.deep.equal({ exitCode: null, stderr: '' });
    expect(stdout.match(/Sales back office/g)).to.have.length(1);
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
  async function start(more: Record<string, string> = {}): Promise<StartedService> {
    current = await ready(launch(more));
    return current;
  }

  /** Returns the running service; starts it if none is running. */
  async function running(): Promise<StartedService> {
    return isRunning(current) ? current : start();
  }

  /**
   * Ends the running service, if there is one, and its PostgreSQL, also one that a killed
   * service has left.
   */
  async function stopped(): Promise<void> {
    if (!isRunning(current)) {
      if ((await postmaster()) === undefined) return;
      await start();
    }
    expect((await end(current, 'SIGINT')).code).to.equal(0);
    await eventually(async () => (await postmaster()) === undefined, 30_000);
  }

  const isRunning = ({ process: child }: StartedService): boolean =>
    child.exitCode === null && child.signalCode === null;

  async function end(
    { process: child, ended }: RunningScript,
    signal: NodeJS.Signals,
  ): Promise<ScriptResult> {
    child.kill(signal);
    return ended;
  }

  async function logIn({ url, tenant }: StartedService): Promise<Client> {
    const response = await new Client(url).post('/api/v1/auth/login', credentials, {
      'X-Tenant': tenant,
    });
    expect(response.status).to.equal(200);
    return new Client(url, response.body);
  }

  async function expectServing(service: StartedService): Promise<void> {
    const { status, body } = await (await logIn(service)).get(statuses);
    expect(status, JSON.stringify(body)).to.equal(200);
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include.members([
      'Prospect',
      'Active',
      'Inactive',
    ]);
  }

  /**
   * Begins a request that creates a status. The service has received the head, and waits for
   * `body` to be sent.
   */
  async function beginRequest(service: StartedService, title: string): Promise<PendingRequest> {
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
    expect(response.statusCode).to.equal(201);
    expect(response.headers.connection).to.equal('close');
    expect(await text(response)).to.match(/"Title":"Finished/);
  }

  const isReady = async ({ managementUrl }: StartedService): Promise<boolean> =>
    (await fetch(`${managementUrl}/health/ready`)).status === 200;

  /** The pid of the PostgreSQL that serves the data folder, if one does. */
  async function postmaster(): Promise<number | undefined> {
    const data = join(folder, 'postgres');
    const pid = Number(
      (await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0],
    );
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    return command.split('\0').includes(data) ? pid : undefined;
  }

  /**
   * Starts the service with npm, begins a request, and sends a signal. Expects that the request
   * finishes, that npm exits with 0 and that no process remains.
   */
  async function expectNpmToFinish(
    args: string[],
    title: string,
    signal: (npmPid: number) => void,
  ): Promise<void> {
    await stopped();
    const npm = await ready(launchNpm(...args));
    const pending = await beginRequest(npm, title);
    signal(npm.process.pid ?? expect.fail('npm has not started'));
    await eventually(async () => !(await isReady(npm)));
    await expectCreated(pending);
    const result = await npm.ended;
    expect(result.code).to.equal(0);
    expect(result.signal).to.equal(null);
    expect((await seeProcesses()).filter(usesFolder)).to.deep.equal([]);
  }

  return {
    get folder() {
      return folder;
    },
    get environment() {
      return environment;
    },
    get first() {
      return first;
    },
    get credentials() {
      return credentials;
    },
    launch,
    start,
    running,
    stopped,
    end,
    logIn,
    expectServing,
    beginRequest,
    expectCreated,
    isReady,
    postmaster,
    expectNpmToFinish,
  };
}

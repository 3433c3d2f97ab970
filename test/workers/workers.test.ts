import { Agent, request } from 'node:http';
import { expect } from 'chai';
import { type RunningScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { runCommand } from '../support/run-command.ts';
import { createWorld, type World } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const startMs = 60_000;

describe('PROCESSES', () => {
  let world: World;
  let ports: { PORT: string; MANAGEMENT_PORT: string };
  let service: RunningScript;
  let url: string;
  let managementUrl: string;

  before(async () => {
    world = await createWorld();
    ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
    url = `http://127.0.0.1:${ports.PORT}`;
    managementUrl = `http://127.0.0.1:${ports.MANAGEMENT_PORT}`;
    service = start({ RATE_LIMIT_GLOBAL: '30/1h' });
    await eventually(() => service.output.stdout.includes('"listening"') || service.process.exitCode !== null, startMs);
  });
  after(async () => {
    service.process.kill('SIGKILL');
    await service.ended;
    await world.close();
  });

  function start(settings: Record<string, string>): RunningScript {
    const environment = { ...world.environment, ...ports, PROCESSES: '2', SHUTDOWN_DELAY: '0s', LOG_LEVEL: 'info' };
    return startScript('src/main.ts', [], { ...environment, ...settings });
  }

  const lines = (): Record<string, unknown>[] =>
    service.output.stdout
      .split('\n')
      .filter(Boolean)
      .map(line => JSON.parse(line));
  const workerPids = (): number[] =>
    lines().flatMap(({ event, worker }) => (event === 'worker_started' ? [Number(worker)] : []));

  async function readMetrics(): Promise<Map<string, number>> {
    const text = await (await fetch(`${managementUrl}/metrics`)).text();
    return new Map(
      [...text.matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm)].map(([, name = '', value]) => [name, Number(value)]),
    );
  }

  it('the processes of one start serve on one port, and one port says that all of them are ready', async () => {
    expect(workerPids()).to.have.length(2);
    expect((await fetch(`${managementUrl}/health/ready`)).status).to.equal(200);
    const listening = lines().find(({ event }) => event === 'listening');
    expect(listening).to.include({ pid: service.process.pid, port: Number(ports.PORT), processes: 2 });
  });

  it('a limit counts the requests of all workers together, without Redis', async () => {
    const results = await Promise.all(Array.from({ length: 40 }, () => getOnce(url)));
    const allowed = results.filter(({ status }) => status !== 429);
    expect(allowed).to.have.length(30);
    for (const { headers } of allowed) expect(Number(headers['ratelimit-remaining'])).to.be.within(0, 29);
    await eventually(() => new Set(requestPids()).size === 2);
    expect(new Set(requestPids())).to.deep.equal(new Set(workerPids()));
  });

  /** The processes that logged a request. */
  const requestPids = (): number[] => lines().flatMap(({ pid, traceId }) => (traceId ? [Number(pid)] : []));

  it('one scrape has the sums of all workers', async () => {
    const metrics = await readMetrics();
    const requests = [...metrics].filter(([name]) => name.startsWith('http_requests_total'));
    const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
    expect(sum(requests.map(([, value]) => value))).to.equal(40);
    const count = [...metrics].filter(([name]) => name.startsWith('http_request_duration_seconds_count'));
    expect(sum(count.map(([, value]) => value))).to.equal(40);
    const one = ['workers_died_total', 'change_feed_current', 'rate_limits_own'].map(name => metrics.get(name));
    expect(one).to.deep.equal([0, 1, 0]);
    expect(metrics.get('workers')).to.equal(2);
    expect([...metrics].filter(([name]) => name.startsWith('build_info')).map(([, value]) => value)).to.deep.equal([1]);
  });

  it('the command line lists each worker as a process', async () => {
    const { stdout } = await runCommand('scripts/tenant.ts', ['processes', '--json'], world.environment);
    const pids = JSON.parse(stdout).map(({ pid }: { pid: number }) => pid);
    expect(pids).to.include.members(workerPids());
  });

  it('a port in use fails the start with the line of a single process', async () => {
    const { code, stderr } = await start({ LOG_LEVEL: 'error' }).ended;
    expect({ code, stderr }).to.deep.equal({
      code: 1,
      stderr: `port ${ports.PORT} on 127.0.0.1 is in use by another process: set PORT to another one.\n`,
    });
  });

  it('a start is ready while one of its workers serves, and a worker that hangs is killed and replaced', async () => {
    const [hung = 0, other = 0] = workerPids();
    const states = new Set<number>();
    process.kill(hung, 'SIGSTOP');
    try {
      await eventually(async () => {
        states.add((await fetch(`${managementUrl}/health/ready`)).status);
        return lines().some(({ event, worker }) => event === 'worker_hung' && worker === hung);
      }, 60_000);
    } finally {
      if (!lines().some(({ event }) => event === 'worker_hung')) process.kill(hung, 'SIGCONT');
    }
    expect([...states]).to.deep.equal([200]);
    await eventually(() => workerPids().length === 3, startMs);
    const died = lines().find(({ event }) => event === 'worker_died');
    expect(died).to.include({ worker: hung, signal: 'SIGKILL', delayMs: 0 });
    expect(() => process.kill(hung, 0)).to.throw(/ESRCH/);
    expect(() => process.kill(other, 0)).not.to.throw();
    expect((await fetch(`${managementUrl}/health/ready`)).status).to.equal(200);
  });

  it('after SIGTERM all workers end with the service, whose exit code is 0', async () => {
    service.process.kill('SIGTERM');
    const { code, signal, stderr } = await service.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    for (const pid of workerPids()) expect(() => process.kill(pid, 0)).to.throw(/ESRCH/);
  });

  it('more processes than the connection budget has room for are refused', async () => {
    const settings = { PROCESSES: '8', CONNECTION_BUDGET: '40', CONTROL_CONNECTIONS: '4' };
    const { code, stderr } = await start(settings).ended;
    expect([code, stderr]).to.deep.equal([
      1,
      'Correct the configuration: CONNECTION_BUDGET must be more than PROCESSES × (CONTROL_CONNECTIONS + 1), ' +
        'so that tenants have connections too.\n',
    ]);
  });
});

/** Sends a request on a connection of its own. */
function getOnce(url: string): Promise<{ status: number; headers: Record<string, unknown> }> {
  return new Promise((resolve, reject) => {
    request(`${url}${statuses}`, { agent: new Agent({ keepAlive: false }) }, response => {
      response.resume();
      resolve({ status: response.statusCode ?? 0, headers: response.headers });
    })
      .on('error', reject)
      .end();
  });
}

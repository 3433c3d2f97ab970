import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { createWorld, type World } from '../support/world.ts';
import { getStatuses, type StartedWorkers, startMs, startTwoWorkers, startWith } from './started-workers.ts';

describe('PROCESSES', () => {
  let world: World;
  let service: StartedWorkers;

  before(async () => {
    world = await createWorld();
    service = await startTwoWorkers(world);
  });
  after(async () => {
    service?.process.kill('SIGKILL');
    await service?.ended;
    await world?.close();
  });

  const ready = async (): Promise<number> => (await fetch(`${service.managementUrl}/health/ready`)).status;

  async function readMetrics(): Promise<Map<string, number>> {
    const text = await (await fetch(`${service.managementUrl}/metrics`)).text();
    return new Map(
      [...text.matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm)].map(([, name = '', value]) => [name, Number(value)]),
    );
  }

  it('the workers of one start serve on one port, and one management port reports when all of them are ready', async () => {
    expect(service.workerPids()).to.have.length(2);
    expect(await ready()).to.equal(200);
    const listening = service.lines().find(({ event }) => event === 'listening');
    expect(listening).to.include({ pid: service.process.pid, port: Number(service.ports.PORT), processes: 2 });
  });

  it('one scrape has the sums of all workers', async () => {
    await Promise.all(Array.from({ length: 40 }, () => getStatuses(service.url)));
    await eventually(() => service.requestPids().size === 2);
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
    expect(pids).to.include.members(service.workerPids());
  });

  it('a port in use fails the start with the line of a single process', async () => {
    const { code, stderr } = await startWith(world, { ...service.ports, LOG_LEVEL: 'error' }).ended;
    expect({ code, stderr }).to.deep.equal({
      code: 1,
      stderr: `port ${service.ports.PORT} on 127.0.0.1 is in use by another process: set PORT to another one.\n`,
    });
  });

  it('a start is ready while one of its workers serves, and a worker that hangs is killed and replaced', async () => {
    const [hung = 0, other = 0] = service.workerPids();
    const states = new Set<number>();
    process.kill(hung, 'SIGSTOP');
    try {
      await eventually(async () => {
        states.add(await ready());
        return service.lines().some(({ event, worker }) => event === 'worker_hung' && worker === hung);
      }, 60_000);
    } finally {
      if (!service.lines().some(({ event }) => event === 'worker_hung')) process.kill(hung, 'SIGCONT');
    }
    expect([...states]).to.deep.equal([200]);
    await eventually(() => service.workerPids().length === 3, startMs);
    const died = service.lines().find(({ event }) => event === 'worker_died');
    expect(died).to.include({ worker: hung, signal: 'SIGKILL', delayMs: 0 });
    expect(() => process.kill(hung, 0)).to.throw(/ESRCH/);
    expect(() => process.kill(other, 0)).not.to.throw();
    expect(await ready()).to.equal(200);
  });

  it('after SIGTERM all workers end with the service, whose exit code is 0', async () => {
    service.process.kill('SIGTERM');
    const { code, signal, stderr } = await service.ended;
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    for (const pid of service.workerPids()) expect(() => process.kill(pid, 0)).to.throw(/ESRCH/);
  });

  it('more processes than the connection budget has room for are refused', async () => {
    const settings = { PROCESSES: '8', CONNECTION_BUDGET: '40', CONTROL_CONNECTIONS: '4' };
    const { code, stderr } = await startWith(world, settings).ended;
    expect([code, stderr]).to.deep.equal([
      1,
      'Correct the configuration: CONNECTION_BUDGET must be more than PROCESSES × (CONTROL_CONNECTIONS + 1), ' +
        'so that tenants have connections too.\n',
    ]);
  });
});

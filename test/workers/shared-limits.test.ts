import { Agent } from 'node:http';
import { expect } from 'chai';
import { eventually } from '../support/eventually.ts';
import { createWorld, type World } from '../support/world.ts';
import { type Answer, getStatuses, type StartedWorkers, startMs, startTwoWorkers } from './started-workers.ts';

const max = 30;

describe('rate limits over worker processes, without Redis', function () {
  this.slow(20_000);
  let world: World;
  let service: StartedWorkers;

  before(async () => {
    world = await createWorld();
    service = await startTwoWorkers(world, {
      RATE_LIMIT_GLOBAL: `${max}/1h`,
      TRUSTED_PROXIES: '127.0.0.1',
    });
    expect(service.workerPids(), service.output.stderr).to.have.length(2);
  });
  after(async () => {
    service?.process.kill('SIGKILL');
    await service?.ended;
    await world?.close();
  });

  /** Sends requests of one client, each on a connection of its own, which the workers get in turn. */
  const send = (address: string, requests: number): Promise<Answer[]> =>
    Promise.all(Array.from({ length: requests }, () => getStatuses(service.url, { 'X-Forwarded-For': address })));
  const allowedOf = (answers: Answer[]): Answer[] => answers.filter(({ status }) => status !== 429);
  const remainingOf = ({ headers }: Answer): number => Number(headers['ratelimit-remaining']);
  const falling = (from: number): number[] => Array.from({ length: from }, (_, index) => from - 1 - index);
  const countOf = (event: string): number => service.lines().filter(line => line.event === event).length;

  it('of requests that arrive together at two workers, exactly as many as the limit are allowed', async () => {
    const allowed = allowedOf(await send('198.51.100.1', max + 10));
    expect(allowed.map(remainingOf).sort((a, b) => b - a)).to.deep.equal(falling(max));
    await eventually(() => service.requestPids().size === 2);
    expect([...service.requestPids()]).to.have.members(service.workerPids());
  });

  it('from each response to the next, whichever worker sends it, RateLimit-Remaining falls by one', async () => {
    const answers: Answer[] = [];
    for (let i = 0; i < max + 3; i++) answers.push(...(await send('198.51.100.2', 1)));
    expect(answers.map(remainingOf)).to.deep.equal([...falling(max), 0, 0, 0]);
    expect(allowedOf(answers)).to.have.length(max);
  });

  it('a client above its limit uses up nothing of the limit of a client of another tenant', async () => {
    const { tokens } = await world.login(world.globex);
    await send('198.51.100.3', max);
    const headers = { 'X-Forwarded-For': '198.51.100.4', Authorization: `Bearer ${tokens?.accessToken}` };
    for (let i = 0; i < max; i++) {
      const [[refused], other] = await Promise.all([send('198.51.100.3', 1), getStatuses(service.url, headers)]);
      expect([refused?.status, other.status, remainingOf(other)]).to.deep.equal([429, 200, max - 1 - i]);
    }
  });

  it('after kill -9 of a worker, its requests still count', async () => {
    await send('198.51.100.5', 20);
    process.kill(service.workerPids()[0] ?? 0, 'SIGKILL');
    await eventually(() => service.workerPids().length === 3, startMs);
    expect(allowedOf(await send('198.51.100.5', max))).to.have.length(max - 20);
  });

  it('after a restart of all workers by SIGHUP, the requests before it still count', async () => {
    await send('198.51.100.6', 20);
    service.process.kill('SIGHUP');
    await eventually(() => countOf('restarted') === 1, startMs);
    expect(allowedOf(await send('198.51.100.6', max))).to.have.length(max - 20);
  });

  it('while the primary process does not reply, each worker allows the limit by itself, and no request fails', async () => {
    const headers = { 'X-Forwarded-For': '198.51.100.7' };
    // Two connections that stay open, one to each worker: a stopped primary process accepts no further one.
    const agents = [1, 2].map(() => new Agent({ keepAlive: true, maxSockets: 1 }));
    for (const agent of agents) await getStatuses(service.url, {}, agent);
    for (const pid of service.workerPids().slice(-2)) process.kill(pid, 'SIGUSR2');
    await eventually(() => countOf('patience_ended') === 2);
    service.process.kill('SIGSTOP');
    try {
      for (const agent of agents) {
        const answers: Answer[] = [];
        for (let i = 0; i < max + 10; i++) answers.push(await getStatuses(service.url, headers, agent));
        expect(answers.map(({ status }) => status)).to.deep.equal([...Array(max).fill(403), ...Array(10).fill(429)]);
      }
    } finally {
      service.process.kill('SIGCONT');
      for (const agent of agents) agent.destroy();
    }
    await eventually(() => countOf('rate_limits_own') >= 2 && countOf('rate_limits_shared') >= 2);
  });
});

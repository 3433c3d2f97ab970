import { readFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { availableParallelism } from 'node:os';
import { expect } from 'chai';
import { startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { freePort } from '../../support/free-port.ts';
import { runCommand } from '../../support/run-command.ts';
import { startMs } from '../../support/starts.ts';
import { useWorld } from '../../support/world.ts';
import { type Answer, getStatuses, useWorkers } from './started-workers.ts';

const processes = 4;
const max = 15;

describe('PROCESSES', () => {
  const world = useWorld();
  const service = useWorkers(world, {
    PROCESSES: String(processes),
    RATE_LIMIT_GLOBAL: `${max}/1h`,
    TRUSTED_PROXIES: '127.0.0.1',
  });
  /** The answers to the first requests, which arrive together. */
  let together: Answer[];
  /** The metrics after these requests. */
  let metrics: Awaited<ReturnType<typeof service.readMetrics>>;

  before(async () => {
    expect(service.workerPids(), service.output.stderr).to.have.length(processes);
    together = await send('198.51.100.1', max + 10);
    await eventually(() => service.requestPids().size === processes);
    metrics = await service.readMetrics();
  });

  /**
   * Sends requests of one client, each on a connection of its own, which the workers get in
   * turn.
   */
  const send = (address: string, requests: number): Promise<Answer[]> =>
    Promise.all(
      Array.from({ length: requests }, () =>
        getStatuses(service.url, { 'X-Forwarded-For': address }),
      ),
    );
  const allowedOf = (answers: Answer[]): Answer[] => answers.filter(({ status }) => status !== 429);
  const remainingOf = ({ headers }: Answer): number => Number(headers['ratelimit-remaining']);
  const falling = (from: number): number[] =>
    Array.from({ length: from }, (_, index) => from - 1 - index);

  it('one scrape has the sums of all workers', () => {
    const requests = [...metrics].filter(([name]) => name.startsWith('http_requests_total'));
    const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
    expect(sum(requests.map(([, value]) => value))).to.equal(together.length);

    const count = [...metrics].filter(([name]) =>
      name.startsWith('http_request_duration_seconds_count'),
    );
    expect(sum(count.map(([, value]) => value))).to.equal(together.length);

    const one = ['workers_died_total', 'change_feed_current', 'rate_limits_own'].map(name =>
      metrics.get(name),
    );
    expect(one).to.deep.equal([0, 1, 0]);

    expect(metrics.get('workers')).to.equal(processes);
    expect(
      [...metrics].filter(([name]) => name.startsWith('build_info')).map(([, value]) => value),
    ).to.deep.equal([1]);
  });

  it('the workers of one start serve on one port, and one management port reports when all of them are ready', async () => {
    expect([...service.requestPids()]).to.have.members(service.workerPids());
    expect(await service.isReady()).to.equal(true);
    const listening = service.lines().find(({ event }) => event === 'listening');
    expect(listening).to.include({
      pid: service.process.pid,
      port: Number(service.ports.PORT),
      processes,
    });
  });

  it('the command line lists each worker as a process', async () => {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['processes', '--json'],
      world.environment,
    );
    const pids = JSON.parse(stdout).map(({ pid }: { pid: number }) => pid);
    expect(pids).to.include.members(service.workerPids());
  });

  it('of requests that arrive together at four workers, exactly as many as the limit are allowed', () => {
    const remaining = allowedOf(together).map(remainingOf);
    expect(remaining.sort((a, b) => b - a)).to.deep.equal(falling(max));
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
    const headers = {
      'X-Forwarded-For': '198.51.100.4',
      Authorization: `Bearer ${tokens?.accessToken}`,
    };

    for (let i = 0; i < max; i++) {
      const [[refused], other] = await Promise.all([
        send('198.51.100.3', 1),
        getStatuses(service.url, headers),
      ]);

      expect(refused?.status).to.equal(429);
      expect(other.status).to.equal(200);
      expect(remainingOf(other)).to.equal(max - 1 - i);
    }
  });

  it('while Redis does not reply, each worker allows the limit by itself, and no request fails', async () => {
    const headers = { 'X-Forwarded-For': '198.51.100.7' };
    // Connections that stay open, one to each worker.
    const agents = Array.from(
      { length: processes },
      () => new Agent({ keepAlive: true, maxSockets: 1 }),
    );

    for (const agent of agents) await getStatuses(service.url, {}, agent);
    for (const pid of service.workerPids()) process.kill(pid, 'SIGUSR2');
    await eventually(() => service.countOf('patience_ended') === processes);

    service.redis.signal('SIGSTOP');
    try {
      for (const agent of agents) {
        const answers: Answer[] = [];
        for (let i = 0; i < max + 10; i++) {
          answers.push(await getStatuses(service.url, headers, agent));
        }
        expect(answers.map(({ status }) => status)).to.deep.equal([
          ...Array(max).fill(403),
          ...Array(10).fill(429),
        ]);
      }
    } finally {
      service.redis.signal('SIGCONT');
      for (const agent of agents) agent.destroy();
    }

    await eventually(() => service.countOf('rate_limits_own') >= processes);
    await eventually(() => service.countOf('rate_limits_shared') >= processes);
  });

  it('several processes without Redis are refused, with both ways out', async () => {
    const { code, stderr } = await runCommand('src/main.ts', [], {
      ...world.environment,
      PROCESSES: '2',
    });

    expect(code).to.equal(1);
    expect(stderr).to.equal(
      'Correct the configuration: PROCESSES above 1 needs REDIS_URL, in which the processes count the limits of ' +
        'requests together: set REDIS_URL, or set PROCESSES to 1.\n',
    );
  });

  it('auto without Redis is one process, which says so in a line of the log', async () => {
    const ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
    const settings = { PROCESSES: 'auto', SHUTDOWN_DELAY: '0s', LOG_LEVEL: 'info', ...ports };
    const started = startScript('src/main.ts', [], { ...world.environment, ...settings });
    await eventually(() => started.output.stdout.includes('"listening"'), startMs);

    started.process.kill('SIGTERM');
    const { code, stdout } = await started.ended;

    expect(code).to.equal(0);
    expect(stdout).not.to.include('"worker_started"');
    if (availableParallelism() > 1) {
      expect(stdout).to.match(/"event":"processes".*because REDIS_URL is not set/);
    }
  });

  it('SIGHUP during the start does not end the service, and its workers are restarted once they serve', async () => {
    const ports = { PORT: String(await freePort()), MANAGEMENT_PORT: String(await freePort()) };
    const settings = {
      PROCESSES: '2',
      SHUTDOWN_DELAY: '0s',
      LOG_LEVEL: 'info',
      REDIS_URL: service.redis.url,
      ...ports,
    };
    const started = startScript('src/main.ts', [], { ...world.environment, ...settings });
    const { pid } = started.process;
    const children = () => readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
    await eventually(async () => (await children()) !== '', startMs);
    expect(started.output.stdout).not.to.include('"listening"');

    started.process.kill('SIGHUP');

    const hasEnded = () => started.process.exitCode !== null || started.process.signalCode !== null;
    await eventually(
      () => hasEnded() || started.output.stdout.includes('"event":"restarted"'),
      startMs,
    );
    expect(hasEnded()).to.equal(false);
    expect(started.output.stdout).to.include('"event":"restart_queued"');
    started.process.kill('SIGTERM');
    expect((await started.ended).code).to.equal(0);
  });

  it('more processes than the connection budget has room for are refused', async () => {
    const settings = { PROCESSES: '8', CONNECTION_BUDGET: '39', REDIS_URL: 'redis://127.0.0.1:1' };

    const { code, stderr } = await runCommand('src/main.ts', [], {
      ...world.environment,
      ...settings,
    });

    expect(code).to.equal(1);
    expect(stderr).to.equal(
      'Correct the configuration: CONNECTION_BUDGET must be at least 8, and with PROCESSES above 1 at least ' +
        '4 × (PROCESSES + 2): each process needs 4 connections, also the one that starts before another one ends.\n',
    );
  });

  describe('the end of the service', () => {
    const service = useWorkers(world, { PROCESSES: String(processes) });

    it('after SIGTERM all workers end with the service, whose exit code is 0', async () => {
      service.process.kill('SIGTERM');
      const { code, signal, stderr } = await service.ended;
      expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
      for (const pid of service.workerPids()) expect(() => process.kill(pid, 0)).to.throw(/ESRCH/);
    });
  });
});

import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { startWorkers, useWorkers } from '../service/workers/started-workers.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { startMs } from '../support/starts.ts';
import { sendSteadily } from '../support/steady-load.ts';
import { controlSql, useWorld } from '../support/world.ts';

const list = '/api/v1/EntityStatus';
const requestsPerSecond = 200;
const connections = 16;
const max = 100;

/** The status of a response, or the code of the error that a client got in its place. */
type Outcome = number | string;

describe('drill: worker processes', () => {
  const world = useWorld();
  const service = useWorkers(world, {
    SHUTDOWN_DELAY: '',
    TRUSTED_PROXIES: '127.0.0.1',
    RATE_LIMIT_ACCOUNT: `${max}/1h`,
  });
  let clients: Client[];
  /** The service that gets the requests. */
  let url: string;
  const agent = new Agent({ keepAlive: true, maxSockets: connections });

  before(async () => {
    url = service.url;
    clients = await Promise.all([world.login(world.acme), world.login(world.globex)]);
  });
  after(() => agent.destroy());

  /** The workers, from the list of processes of the control database. */
  async function workers(): Promise<number[]> {
    const rows = await controlSql<{ pid: number }>(
      world,
      `select pid from processes where kind = 'service' and pid <> ?`,
      [process.pid],
    );
    return rows.map(({ pid }) => pid).filter(isAlive);
  }

  function send(
    index: number,
    method = 'GET',
    path = list,
    body = '',
    headers = {},
  ): Promise<Outcome> {
    const token = clients[index % clients.length]?.tokens?.accessToken;

    return new Promise(resolve => {
      const sent = request(`${url}${path}`, {
        agent,
        method,
        timeout: 15_000,
        headers: {
          Authorization: `Bearer ${token}`,
          'Content-Type': 'application/json',
          ...headers,
        },
      });

      sent.on('response', response => {
        response.resume();
        response.on('end', () => resolve(response.statusCode ?? 0));
        response.on('error', (error: NodeJS.ErrnoException) => resolve(`cut: ${error.code}`));
      });

      sent.on('timeout', () => sent.destroy(new Error('no response')));
      sent.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));

      sent.end(body);
    });
  }

  /** Sends requests of one client, which only a rate limit refuses with 429. */
  function confirmAtOnce(address: string, requests: number): Promise<Outcome[]> {
    const headers = { 'X-Forwarded-For': address, 'X-Tenant': world.acme.guid };
    const confirm = (_: unknown, index: number) =>
      send(index, 'POST', '/api/v1/auth/confirm', '{}', headers);
    return Promise.all(Array.from({ length: requests }, confirm));
  }

  /** Sends reads and changes of two tenants until `until` resolves. */
  async function load(until: Promise<unknown>): Promise<Outcome[]> {
    const startedAt = performance.now();
    const served = await sendSteadily(requestsPerSecond, until, number => {
      const body = JSON.stringify({ Title: `Status ${startedAt} ${number}` });
      return number % 20 === 0 ? send(number / 20, 'POST', list, body) : send(number);
    });
    return served.map(({ status }) => status);
  }

  /**
   * Samples the counters until `until` resolves.
   * @returns those that fell, and what they fell from and to
   */
  async function fallingCounters(until: Promise<unknown>): Promise<string[]> {
    const fallen: string[] = [];
    let isOver = false;
    void until.finally(() => {
      isOver = true;
    });
    let last = new Map<string, number>();
    while (!isOver) {
      const metrics = await service.readMetrics();
      for (const [name, value] of last) {
        if (/_(total|count|bucket|sum)(\{|$)/.test(name) && (metrics.get(name) ?? 0) < value) {
          fallen.push(`${name}: ${value} → ${metrics.get(name)}`);
        }
      }
      last = metrics;
      await sleep(200);
    }
    return fallen;
  }

  it('a pause of all processes of a start, as of a suspended machine, makes it replace no worker', async () => {
    const before = (await workers()).sort();
    const all = [service.process.pid ?? 0, ...before];
    for (const pid of all) process.kill(pid, 'SIGSTOP');
    await sleep(15_000);
    for (const pid of all) process.kill(pid, 'SIGCONT');
    await sleep(3_000); // three pings
    expect((await workers()).sort()).to.deep.equal(before);
    expect((await service.readMetrics()).get('workers_died_total')).to.equal(0);
  });

  it('a restart by SIGHUP under load fails no request, resets no connection, and limits stay exact', async () => {
    const first = await confirmAtOnce('198.51.100.6', max / 2);
    expect(first).not.to.include(429);
    const before = await workers();
    expect(before).to.have.length(2);

    let readyMeanwhile = true;
    const restart = (async (): Promise<void> => {
      await sleep(3_000);
      service.process.kill('SIGHUP');
      await eventually(async () => {
        readyMeanwhile &&= await service.isReady();
        const now = await workers();
        return now.length === 2 && now.every(pid => !before.includes(pid));
      }, startMs);
      await sleep(2_000);
    })();

    const [outcomes, fallen] = await Promise.all([load(restart), fallingCounters(restart)]);
    console.log(`${outcomes.length} requests: ${JSON.stringify(countsOf(outcomes))}`);

    expect(Object.keys(countsOf(outcomes)).sort()).to.deep.equal(['200', '201']);
    expect(fallen).to.deep.equal([]);
    expect(readyMeanwhile, 'the service is ready all the time').to.equal(true);
    expect((await service.readMetrics()).get('workers_died_total')).to.equal(0);

    const all = [...first, ...(await confirmAtOnce('198.51.100.6', max))];
    expect(all.filter(outcome => outcome !== 429)).to.have.length(max);
  });

  it('after kill -9 of a worker under load the other one serves, a new one starts, and limits stay exact', async () => {
    const first = await confirmAtOnce('198.51.100.7', max / 2);
    expect(first).not.to.include(429);

    const before = await workers();
    const [victim = 0] = before;
    let readyMeanwhile = true;
    const replaced = (async (): Promise<void> => {
      await sleep(2_000);
      process.kill(victim, 'SIGKILL');
      await eventually(async () => {
        readyMeanwhile &&= await service.isReady();
        return (await workers()).filter(pid => !before.includes(pid)).length === 1;
      }, startMs);
      await sleep(2_000);
    })();

    const [outcomes, fallen] = await Promise.all([load(replaced), fallingCounters(replaced)]);
    const counts = countsOf(outcomes);
    console.log(`${outcomes.length} requests: ${JSON.stringify(counts)}`);

    const failed = outcomes.filter(outcome => outcome !== 200 && outcome !== 201);
    expect(failed.length, 'only requests on connections of the dead worker').to.be.at.most(
      connections,
    );
    expect(fallen).to.deep.equal([]);
    expect(readyMeanwhile, 'the other worker keeps the service ready').to.equal(true);

    const metrics = await service.readMetrics();
    expect(metrics.get('workers')).to.equal(2);
    expect(metrics.get('workers_died_total')).to.equal(1);
    expect(service.output.stdout).to.include('"event":"worker_died"');

    const all = [...first, ...(await confirmAtOnce('198.51.100.7', max))];
    expect(all.filter(outcome => outcome !== 429)).to.have.length(max);
  });

  it('a start is ready while one of its workers serves; one that hangs is replaced, and its requests still count', async () => {
    const first = await confirmAtOnce('198.51.100.5', max / 2);
    const [hung = 0, other = 0] = await workers();

    const isReported = (event: string): boolean =>
      service.output.stdout
        .split('\n')
        .some(line => line.includes(`"event":"${event}"`) && line.includes(`"worker":${hung},`));

    const states = new Set<boolean>();
    process.kill(hung, 'SIGSTOP');
    await eventually(async () => {
      states.add(await service.isReady());
      return isReported('worker_hung');
    });
    expect([...states]).to.deep.equal([true]);

    await eventually(
      async () => (await workers()).filter(pid => ![hung, other].includes(pid)).length === 1,
      startMs,
    );
    expect(isReported('worker_died')).to.equal(true);
    expect(isAlive(hung)).to.equal(false);
    expect(isAlive(other)).to.equal(true);
    expect(await service.isReady()).to.equal(true);

    const all = [...first, ...(await confirmAtOnce('198.51.100.5', max))];
    expect(all.filter(outcome => outcome !== 429)).to.have.length(max);
  });

  it('a primary process that is killed takes its workers with it', async () => {
    const before = await workers();
    service.process.kill('SIGKILL');
    await eventually(() => before.every(pid => !isAlive(pid)), 10_000);
  });

  it('a stop by SIGTERM under load refuses no request while a balancer still finds out that it is not ready', async () => {
    const stopped = await startWorkers(world, { REDIS_URL: service.redis.url, SHUTDOWN_DELAY: '' });
    url = stopped.url;
    const noticed = (async (): Promise<void> => {
      await sleep(3_000);
      stopped.process.kill('SIGTERM');
      await eventually(async () => !(await stopped.isReady()));
      await sleep(2_000); // and the balancer believes the third answer
    })();

    const outcomes = await load(noticed);
    const { code } = await stopped.ended;

    console.log(`${outcomes.length} requests: ${JSON.stringify(countsOf(outcomes))}`);
    expect(Object.keys(countsOf(outcomes)).sort()).to.deep.equal(['200', '201']);
    expect(code).to.equal(0);
  });
});

function countsOf(outcomes: Outcome[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const outcome of outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}

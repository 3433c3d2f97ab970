import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect } from 'chai';
import { rawRequest } from '../support/raw-http.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { type Served, sendSteadily } from '../support/steady-load.ts';
import { sql, useWorld } from '../support/world.ts';

/** The time for which the others are served in the calm, and from the begin of an attack on. */
const measuredMs = 10_000;
const perSecond = 50;
/** Memory above that before an attack, in MiB: at its worst moment, and 15 s after it. */
const [maxGrowth, maxRemaining] = [100, 40];

/**
 * Opens connections from an address that is no trusted proxy, in a thread of its own, and sends
 * on each the same pipeline at once. With `again`, it opens each again when it is closed.
 * Reports the numbers of connections and responses.
 */
const attack = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { connect } = require('node:net');
  const { port, connections, pipeline, again, ms } = workerData;
  const end = performance.now() + ms;
  const counts = { opened: 0, responses: 0 };
  let open = 0;
  function run() {
    open++;
    counts.opened++;
    const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' });
    socket.on('data', text => (counts.responses += text.toString('latin1').split('HTTP/1.1 ').length - 1));
    socket.on('error', () => {});
    socket.on('close', () => {
      open--;
      if (again && performance.now() < end) run();
    });
    socket.write(pipeline);
  }
  for (let i = 0; i < connections; i++) run();
  const timer = setInterval(() => {
    if (performance.now() < end && open > 0) return;
    clearInterval(timer);
    parentPort.postMessage(counts);
  }, 20);
`;

describe('drill: pipelines of a client without a login', () => {
  const world = useWorld();
  const processes = createServiceProcesses();
  let service: ServiceProcess;

  before(async () => {
    await sql(
      world.globex,
      `insert into order_statuses (name) select 'Status ' || i from generate_series(1, 20) i`,
    );
  });
  beforeEach(async () => {
    // The limits of requests are those by default, not the high ones of the tests.
    const settings = { RATE_LIMIT_GLOBAL: '', TRUSTED_PROXIES: '127.0.0.1' };
    service = await processes.start({ ...world.environment, ...settings });
  });
  afterEach(() => processes.killAll());

  /** Another tenant reads a cached list, from many addresses. */
  function others(token: string, until: Promise<unknown>): Promise<Served[]> {
    return sendSteadily(perSecond, until, async number => {
      const address = `198.51.100.${number % 200}`;
      const response = await fetch(`${service.url}/api/v1/OrderStatuses`, {
        headers: { Authorization: `Bearer ${token}`, 'X-Forwarded-For': address },
      });
      await response.arrayBuffer();
      return response.status === 200 ? 200 : `status ${response.status}`;
    });
  }

  async function residentMebibytes(): Promise<number> {
    const status = await readFile(`/proc/${service.process.pid}/status`, 'utf8');
    return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
  }

  const usual = rawRequest('GET /api/v1/Entities', ['A: 123456']);
  const shortest = 'GET / HTTP/1.1\r\nHost:\r\n\r\n';
  const attacks = {
    '30 connections with 2,000 requests each': {
      connections: 30,
      pipeline: usual.repeat(2_000),
      again: false,
    },
    'one connection with 10,000 requests': {
      connections: 1,
      pipeline: usual.repeat(10_000),
      again: false,
    },
    '30 connections, opened again and again, with 10,000 of the shortest requests each': {
      connections: 30,
      pipeline: shortest.repeat(10_000),
      again: true,
    },
  };
  for (const [name, workload] of Object.entries(attacks)) {
    it(`beside ${name}, another tenant is served as well as alone, and the memory is freed afterwards`, async () => {
      const token = (await world.login(world.globex)).tokens?.accessToken ?? '';
      await others(token, sleep(3_000));
      const calm = percentiles(await others(token, sleep(measuredMs)));

      const before = await residentMebibytes();
      let max = before;
      const probe = setInterval(async () => (max = Math.max(max, await residentMebibytes())), 50);

      const startedAt = performance.now();
      const worker = new Worker(attack, {
        eval: true,
        workerData: { ...workload, port: service.port, ms: measuredMs },
      });
      const ended = once(worker, 'message').then(([counts]) => ({
        counts,
        ms: performance.now() - startedAt,
      }));

      const served = await others(token, Promise.all([ended, sleep(measuredMs)]));
      const { counts, ms } = await ended;

      await worker.terminate();
      await sleep(15_000);
      clearInterval(probe);

      const after = await residentMebibytes();
      const busy = percentiles(served);
      console.log(
        JSON.stringify({ ...counts, attackMs: Math.round(ms), calm, busy, before, max, after }),
      );

      expect(served.filter(({ status }) => status !== 200)).to.deep.equal([]);

      // The cost of accepting connections and of reading bytes, pipelines or not: only printed.
      if (workload.again) return;

      expect(max - before).to.be.below(maxGrowth);
      expect(after - before).to.be.below(maxRemaining);

      // The times of two calm minutes differ by a few milliseconds.
      expect(busy.p95).to.be.below(1.5 * calm.p95 + 5);
    });
  }
});

function percentiles(served: readonly Served[]): { p50: number; p95: number; max: number } {
  const times = served.map(({ ms }) => ms).sort((a, b) => a - b);
  const at = (share: number): number =>
    Math.round((times[Math.floor((times.length - 1) * share)] ?? 0) * 10) / 10;
  return { p50: at(0.5), p95: at(0.95), max: at(1) };
}

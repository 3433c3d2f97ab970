import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect } from 'chai';
import { useServiceProcesses } from '../support/service-processes.ts';
import { type TestTenant, useWorld } from '../support/world.ts';

const loginsPerSecond = 400;
const floodMs = 20_000;
const networks = 256;

/**
 * Sends logins with wrong passwords at a fixed rate, in a thread of its own, and reports how
 * many got which status.
 */
const flood = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { url, tenant, loginsPerSecond, networks, floodMs } = workerData;
  const counts = {};
  async function login(i) {
    const response = await fetch(url + '/api/v1/auth/login', {
      method: 'POST',
      headers: {
        'X-Tenant': tenant,
        'X-Forwarded-For': '203.0.113.' + (i % networks),
        'Content-Type': 'application/json',
      },
      body: JSON.stringify({ email: crypto.randomUUID() + '@acme.test', password: 'wrong password' }),
    });
    await response.arrayBuffer();
    return response.status;
  }
  async function run() {
    const running = [];
    const startedAt = performance.now();
    for (let i = 0; performance.now() - startedAt < floodMs; i++) {
      const wait = startedAt + i * 1000 / loginsPerSecond - performance.now();
      if (wait > 0) await new Promise(resolve => setTimeout(resolve, wait));
      running.push(login(i).catch(error => String(error.cause?.code ?? error)).then(status => {
        counts[status] = (counts[status] ?? 0) + 1;
      }));
    }
    await Promise.all(running);
    parentPort.postMessage(counts);
  }
  run();
`;

describe('drill: a flood of logins', () => {
  const world = useWorld();
  const processes = useServiceProcesses();
  let url: string;

  before(async () => {
    // The limits of requests are those by default, not the high ones of the tests.
    const limits = { RATE_LIMIT_GLOBAL: '', RATE_LIMIT_LOGIN: '', RATE_LIMIT_ACCOUNT: '' };
    url = (await processes.start({ ...world.environment, ...limits, TRUSTED_PROXIES: '127.0.0.1' }))
      .url;
  });

  async function login(
    tenant: TestTenant,
    address: string,
    credentials: object,
  ): Promise<{ status: number; ms: number }> {
    const startedAt = performance.now();
    const response = await fetch(`${url}/api/v1/auth/login`, {
      method: 'POST',
      headers: {
        'X-Tenant': tenant.guid,
        'X-Forwarded-For': address,
        'Content-Type': 'application/json',
      },
      body: JSON.stringify(credentials),
    });
    await response.arrayBuffer();
    return { status: response.status, ms: performance.now() - startedAt };
  }

  it('while 256 networks flood one tenant, 95 % of the logins of another one succeed within 3 s', async () => {
    const worker = new Worker(flood, {
      eval: true,
      workerData: { url, tenant: world.acme.guid, loginsPerSecond, networks, floodMs },
    });
    const counted = once(worker, 'message');

    const good: Promise<{ status: number; ms: number }>[] = [];
    for (const end = performance.now() + floodMs; performance.now() < end; await sleep(500)) {
      good.push(login(world.globex, `198.51.100.${good.length}`, world.globex.admin));
    }

    const results = await Promise.all(good);
    const [flooded] = await counted;

    const times = results.map(({ ms }) => ms).sort((a, b) => a - b);
    const succeeded = results.filter(({ status }) => status === 200).length;
    const p95 = Math.round(times[Math.floor(times.length * 0.95)] ?? 0);
    console.log(JSON.stringify({ flooded, good: results.length, succeeded, p95 }));

    expect(succeeded).to.be.at.least(Math.ceil(results.length * 0.95));
    expect(p95).to.be.below(3_000);
  });
});

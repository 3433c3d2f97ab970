import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { rawRequest } from '../support/raw-http.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { sql, type TestTenant, useWorld } from '../support/world.ts';

const connections = 120;
/** Memory of the process above its state before the attack, in MiB. */
const maxGrowth = 350;
/** Longer than the time after which the service resets a connection that reads nothing. */
const attackMs = 28_000;

describe('drill: clients of one tenant that request large lists and read none of them', () => {
  const world = useWorld();
  const processes = createServiceProcesses();
  let service: ServiceProcess;

  before(async () => {
    await fill(world.acme);
    await sql(world.globex, `insert into order_statuses (name) select 'Status ' || i from generate_series(1, 20) i`);
  });
  beforeEach(async () => {
    service = await processes.start(world.environment);
  });
  afterEach(() => processes.killAll());

  /** Activities and options of the maximum size: a page of 1,000 activities has 16 MB, the list of options 7 MB. */
  async function fill(tenant: TestTenant): Promise<void> {
    await sql(
      tenant,
      `insert into activities (activity_code, comment, recorded_by, recorded_from)
         select i, repeat('🦄', 4000), 1, '127.0.0.1' from generate_series(1, 1000) i`,
    );
    await sql(
      tenant,
      `insert into system_options (system_option_type_id, value) select 1, repeat('x', 28) from generate_series(1, 49000)`,
    );
  }

  const tokenOf = async (tenant: TestTenant): Promise<string> => (await world.login(tenant)).tokens?.accessToken ?? '';

  async function residentMebibytes(): Promise<number> {
    const status = await readFile(`/proc/${service.process.pid}/status`, 'utf8');
    return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
  }

  /** Requests a small list of a tenant without the response cache, 50 times a second. @returns the times in ms */
  async function times(token: string, ms: number): Promise<number[]> {
    const taken: number[] = [];
    for (const end = performance.now() + ms; performance.now() < end; await sleep(20)) {
      const startedAt = performance.now();
      const response = await fetch(`${service.url}/api/v1/OrderStatuses`, {
        headers: { Authorization: `Bearer ${token}`, 'Cache-Control': 'no-cache' },
      });
      await response.arrayBuffer();
      expect(response.status).to.equal(200);
      taken.push(performance.now() - startedAt);
    }
    return taken.sort((a, b) => a - b);
  }

  const p95 = (sorted: number[]): number => sorted[Math.floor(sorted.length * 0.95)] ?? 0;

  const attacks = {
    'pages of activities': () => '/api/v1/Activity?limit=1000',
    'pages of activities whose first ones are small': (i: number) => `/api/v1/Activity?limit=${i < 8 ? 1 : 1000}`,
    'lists of options': () => '/api/v1/SystemOptions',
  };
  for (const [lists, path] of Object.entries(attacks))
    it(`${connections} connections that request ${lists} and never read add less than ${maxGrowth} MiB of memory`, async () => {
      const [acme, globex] = [await tokenOf(world.acme), await tokenOf(world.globex)];
      await times(globex, 2_000);
      const calm = await times(globex, 4_000);
      const before = await residentMebibytes();
      const clients = Array.from({ length: connections }, (_, i) => {
        const request = rawRequest(`GET ${path(i)}`, [`Authorization: Bearer ${acme}`, 'Cache-Control: no-cache']);
        const client = connect(service.port, '127.0.0.1').on('error', () => {});
        client.pause().write(request);
        return client;
      });
      let max = before;
      const end = performance.now() + attackMs;
      const meanwhile = times(globex, attackMs);
      for (; performance.now() < end; await sleep(100)) max = Math.max(max, await residentMebibytes());
      const busy = await meanwhile;
      for (const client of clients) client.destroy();
      console.log({ lists, before, max, calmP95: p95(calm), p95: p95(busy), max_ms: busy.at(-1) });
      expect(max - before).to.be.below(maxGrowth);
    });
});

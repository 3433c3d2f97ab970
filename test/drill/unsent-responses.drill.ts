import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { rawRequest } from '../support/raw-http.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { percentile95, timeSmallList } from '../support/small-list.ts';
import { sql, type TestTenant, useWorld } from '../support/world.ts';

/** Memory of the process above its state before the attack, in MiB. */
const maxGrowth = 350;
/** Longer than the time after which the service resets a connection that reads nothing. */
const attackMs = 28_000;

describe('drill: clients of one tenant that request much and read none of it', () => {
  const world = useWorld();
  const processes = createServiceProcesses();
  let service: ServiceProcess;

  before(async () => {
    await fill(world.acme);
    await sql(
      world.globex,
      `insert into order_statuses (name) select 'Status ' || i from generate_series(1, 20) i`,
    );
  });
  beforeEach(async () => {
    service = await processes.start(world.environment);
  });
  afterEach(() => processes.killAll());

  /**
   * Activities and options of the maximum size: a page of 1,000 activities has 16 MB, the list
   * of options 7 MB.
   */
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

  const tokenOf = async (tenant: TestTenant): Promise<string> =>
    (await world.login(tenant)).tokens?.accessToken ?? '';

  async function residentMebibytes(): Promise<number> {
    const status = await readFile(`/proc/${service.process.pid}/status`, 'utf8');
    return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
  }

  const times = (token: string, ms: number) => timeSmallList(service.url, token, ms);

  /**
   * Attacks on one tenant: each returns the requests of clients that read nothing, one for a
   * connection.
   */
  const attacks: Record<string, () => Promise<string[]>> = {
    '120 pages of activities': () => requests(() => '/api/v1/Activity?limit=1000'),
    '120 pages of activities whose first ones are small': () =>
      requests(i => `/api/v1/Activity?limit=${i < 8 ? 1 : 1000}`),
    '120 lists of options': () => requests(() => '/api/v1/SystemOptions'),
    '120 exports of activities': () => requests(() => '/api/v1/Activity', 'Accept: text/csv'),
    '120 pages of changes': () => requests(() => '/api/v1/Changes?limit=1000&include=record'),
    '200 streams of changes': streams,
  };

  /** Returns the requests of 120 connections of one user. */
  async function requests(path: (i: number) => string, accept = 'Accept: */*'): Promise<string[]> {
    const token = await tokenOf(world.acme);
    const headers = [`Authorization: Bearer ${token}`, 'Cache-Control: no-cache', accept];

    return Array.from({ length: 120 }, (_, i) => rawRequest(`GET ${path(i)}`, headers));
  }

  /**
   * Returns the requests of as many streams as a tenant may have: 40 users with 5 each, from
   * the first change on.
   */
  async function streams(): Promise<string[]> {
    const texts: string[] = [];

    for (let user = 0; user < 40; user++) {
      const { tokens } = await world.loginAs(world.acme, { permissions: ['full.read'] });
      const headers = [`Authorization: Bearer ${tokens?.accessToken}`, 'Last-Event-ID: 1-0-0-0-0'];
      const text = rawRequest('GET /api/v1/Changes/stream?include=record', headers);
      texts.push(...Array.from({ length: 5 }, () => text));
    }

    return texts;
  }

  for (const [name, attack] of Object.entries(attacks)) {
    it(`${name} that nobody reads add less than ${maxGrowth} MiB of memory`, async () => {
      const globex = await tokenOf(world.globex);
      const texts = await attack();
      await times(globex, 2_000);
      const calm = await times(globex, 4_000);
      const before = await residentMebibytes();

      const clients = texts.map(text => {
        const client = connect(service.port, '127.0.0.1').on('error', () => {});
        client.pause().write(text);
        return client;
      });
      let max = before;
      const end = performance.now() + attackMs;
      const meanwhile = times(globex, attackMs);
      for (; performance.now() < end; await sleep(100)) {
        max = Math.max(max, await residentMebibytes());
      }
      const busy = await meanwhile;
      for (const client of clients) {
        client.destroy();
      }

      console.log({
        name,
        before,
        max,
        calmP95: percentile95(calm),
        p95: percentile95(busy),
        max_ms: busy.at(-1),
      });
      expect(max - before).to.be.below(maxGrowth);
    });
  }
});

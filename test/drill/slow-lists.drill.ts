import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { rawRequest } from '../support/raw-http.ts';
import { type ServiceProcess, useServiceProcesses } from '../support/service-processes.ts';
import { percentile95, timeSmallList } from '../support/small-list.ts';
import { sql, type TestTenant, useWorld } from '../support/world.ts';

const clients = 50;
const maxMebibytes = 1_024;
const attackMs = 25_000;
/** The bytes that a client reads each time, and the pause after them: 2.5 MB a second. */
const readBytes = 256 * 1024;
const readEveryMs = 100;

describe('drill: clients of one tenant that read large lists slowly', () => {
  const world = useWorld();
  const processes = useServiceProcesses();
  let service: ServiceProcess;

  before(async () => {
    await sql(
      world.acme,
      `insert into activities (activity_code, comment, recorded_by, recorded_from)
         select i, repeat('🦄', 4000), 1, '127.0.0.1' from generate_series(1, 1000) i`,
    );
    // The table gets as many currencies as it takes: ten of eleven are marked as deleted.
    await sql(
      world.acme,
      `set session_replication_role = replica;
       insert into currencies (code, name, is_deleted, deleted_at)
       select 'X' || i, repeat('n', 20), i > 10000, case when i > 10000 then now() end
         from generate_series(1, 110000) i`,
    );
    await sql(
      world.globex,
      `insert into order_statuses (name) select 'Status ' || i from generate_series(1, 20) i`,
    );
    service = await processes.start(world.environment);
  });

  const tokenOf = async (tenant: TestTenant): Promise<string> =>
    (await world.login(tenant)).tokens?.accessToken ?? '';

  async function residentMebibytes(): Promise<number> {
    const status = await readFile(`/proc/${service.process.pid}/status`, 'utf8');
    return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
  }

  /** Requests a list again and again, and reads it slowly. */
  function readSlowly(list: string, token: string): { socket: Socket; seen: { bytes: number } } {
    const seen = { bytes: 0 };
    const request = rawRequest(`GET ${list}`, [`Authorization: Bearer ${token}`]);
    const socket = connect(service.port, '127.0.0.1').on('error', () => {});
    socket.pause().write(request.repeat(3));
    const timer = setInterval(() => {
      seen.bytes += socket.read(Math.min(readBytes, socket.readableLength))?.length ?? 0;
    }, readEveryMs);
    socket.once('close', () => clearInterval(timer));
    return { socket, seen };
  }

  const p95 = async (token: string, ms: number): Promise<number> =>
    Math.round(percentile95(await timeSmallList(service.url, token, ms)));

  const lists: readonly string[] = [
    '/api/v1/Activity?limit=1000',
    '/api/v1/Currency?includeDeleted=true',
  ];

  it(`${clients} clients that read lists of 16 MB slowly leave a process below 1 GiB`, async () => {
    const acme = await tokenOf(world.acme);
    const globex = await tokenOf(world.globex);
    await p95(globex, 2_000);
    const calm = await p95(globex, 4_000);
    const before = await residentMebibytes();

    const slow = Array.from({ length: clients }, (_, i) =>
      readSlowly(lists[i % lists.length] ?? '', acme),
    );
    const meanwhile = p95(globex, attackMs);
    let max = before;
    for (const end = performance.now() + attackMs; performance.now() < end; await sleep(100)) {
      max = Math.max(max, await residentMebibytes());
    }
    const busy = await meanwhile;
    const mebibytes = Math.round(slow.reduce((sum, { seen }) => sum + seen.bytes, 0) / 1024 / 1024);
    for (const { socket } of slow) socket.destroy();

    console.log({ before, max, calmP95: calm, p95: busy, readMebibytes: mebibytes });
    expect(service.process.exitCode).to.equal(null);
    expect(max).to.be.below(maxMebibytes);
  });
});

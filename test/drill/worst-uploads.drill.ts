import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { type ClientRequest, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { failuresOf, type Served, sendSteadily, summaryOf } from '../support/steady-load.ts';
import { type TestTenant, useWorld } from '../support/world.ts';
import { invalidUtf8, type UploadedFile, worstFiles } from '../support/worst-uploads.ts';

/** Requests of the other tenant per second: one in two is served from memory. */
const perSecond = 40;
const calmMs = 3_000;
/** Memory of one import, in MiB. */
const maxGrowth = 64;
/** Imports that a process runs at a time. */
const maxRunning = 4;
/**
 * The old generation is small, so that a file that needs more ends the process. The young
 * generation, which V8 enlarges by 80 MB under any load and keeps, stays small, so that the
 * memory of an import can be seen.
 */
const v8Options = '--max-old-space-size=512 --max-semi-space-size=4';
/** The 95th percentile beside an upload, less five times that of the calm around it, in ms. */
const maxExcessMs = 2_000;

interface Measured {
  /** Memory of the process, at its peak, above its state before. */
  readonly grown: number;
  readonly served: readonly Served[];
}

function p95Of(served: readonly Served[]): number {
  const times = served.map(({ ms }) => ms).sort((a, b) => a - b);
  return Math.round((times[Math.floor((times.length - 1) * 0.95)] ?? 0) * 10) / 10;
}

describe('drill: uploads that are meant to occupy the service', function () {
  this.timeout(900_000);
  const world = useWorld();
  let other: Client;
  let pid: number;
  let calm: readonly Served[];
  let url: string;
  const { start } = useServiceProcesses();
  const table: Record<string, Record<string, number | string>> = {};

  before(async () => {
    const service = await start({ ...world.environment, NODE_OPTIONS: v8Options });
    pid = service.process.pid ?? 0;
    url = service.url;
    other = (await world.login(world.globex)).at(url);
    calm = (await measure('calm, first', () => sleep(2 * calmMs))).served;
  });
  after(() => console.table(table));

  /**
   * In MiB.
   * @param name `VmRSS`, or `VmHWM` for the maximum since `resetPeak`
   */
  async function memory(name: 'VmRSS' | 'VmHWM'): Promise<number> {
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    return Math.round(Number(new RegExp(`${name}:\\s*(\\d+)`).exec(status)?.[1]) / 1024);
  }
  const resetPeak = () => writeFile(`/proc/${pid}/clear_refs`, '5');

  const readOther = async (number: number): Promise<number | string> => {
    const headers: Record<string, string> = number % 2 === 0 ? {} : { 'Cache-Control': 'no-cache' };
    const { status, body } = await other.get('/api/v1/EntityStatus', headers);
    return status === 200 ? status : `${status} ${body.code}`;
  };

  /**
   * Prints how long the requests of the other tenant take beside work, and the memory of the
   * process.
   */
  async function measure(name: string, work: () => Promise<unknown>): Promise<Measured> {
    const before = await memory('VmRSS');
    await resetPeak();
    const startedAt = performance.now();

    const working = work();
    const [result, served] = await Promise.all([
      working,
      sendSteadily(perSecond, working, readOther),
    ]);

    const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
    const peak = await memory('VmHWM');
    table[name] = {
      result: typeof result === 'string' ? result : '',
      seconds,
      ...summaryOf(served),
      p95: p95Of(served),
      before,
      peak,
      after: await memory('VmRSS'),
    };

    return { grown: peak - before, served };
  }

  function open(
    client: Client,
    query: string,
    headers: Record<string, string | number> = {},
  ): ClientRequest {
    const Authorization = `Bearer ${client.tokens?.accessToken}`;
    const path = `${url}/api/v1/Imports?${query}`;
    return request(path, {
      method: 'POST',
      headers: { Authorization, 'Content-Type': 'text/csv', ...headers },
    });
  }

  /** Sends a body until its end or its response. */
  async function send(
    sent: ClientRequest,
    body: Iterable<Buffer>,
  ): Promise<{ status: number; body: string }> {
    const responded = once(sent, 'response');
    let isAnswered = false;
    const answered = responded.finally(() => (isAnswered = true));
    sent.on('error', () => {}); // the service closes the connection of a body that it refuses
    for (const piece of body) {
      if (isAnswered) break;
      if (!sent.write(piece)) {
        const waiting = new AbortController();
        await Promise.race([answered, once(sent, 'drain', waiting)]).finally(() => waiting.abort());
      }
    }
    sent.end();
    const [response] = await answered;
    return { status: response.statusCode, body: await text(response) };
  }

  /** Sends a file again while the process has other imports. */
  async function upload(client: Client, { query, pieces }: UploadedFile): Promise<string> {
    const body = await eventually(async () => {
      const sent = await send(open(client, query), pieces());
      if (sent.status === 503) return undefined;
      expect(sent.status, sent.body).to.equal(200);
      return JSON.parse(sent.body);
    }, 600_000);
    return `${body.Applied ? 'applied' : 'not applied'} ${body.Rows} ${body.Errors[0]?.Code ?? ''}`;
  }

  async function expectServed({ grown, served }: Measured, imports = 1): Promise<void> {
    const before = calm;
    calm = (await measure('calm, last', () => sleep(calmMs))).served;
    expect(failuresOf(served)).to.equal(0);
    expect(p95Of(served)).to.be.below(5 * p95Of([...before, ...calm]) + maxExcessMs);
    expect(grown).to.be.below(imports * maxGrowth);
  }

  for (const file of worstFiles) {
    it(`another tenant is served, and memory stays bounded, beside an import of ${file.name}`, async () => {
      const sender = await world.login(world.acme);
      await expectServed(await measure(file.name, () => upload(sender, file)));
    });
  }

  it('another tenant is served beside the imports of five tenants at a time, some of which are sent again', async () => {
    const tenants: TestTenant[] = [world.acme];
    for (const slug of ['initech', 'umbrella', 'hooli', 'soylent']) {
      tenants.push(await world.provision(slug));
    }
    const senders = await Promise.all(tenants.map(tenant => world.login(tenant)));
    const names = ['10,000 rows of entities', '1,200 rows of 4,000 characters'];
    const files = worstFiles.filter(({ name }) => names.includes(name));

    const measured = await measure('five tenants, two files each', () =>
      Promise.all(senders.flatMap(sender => files.map(file => upload(sender, file)))),
    );
    await expectServed(measured, maxRunning);
  });

  it('another tenant is served beside bodies of 5 MB that are refused at their end or their beginning', async () => {
    const sender = await world.login(world.acme);
    const refused = async (headers: Record<string, string>): Promise<number> =>
      (await send(open(sender, 'resource=Currency', headers), invalidUtf8())).status;

    const measured = await measure('invalid UTF-8, multipart', async () => {
      const statuses = [
        ...(await Promise.all([1, 2].map(() => refused({})))),
        await refused({ 'Content-Type': 'multipart/form-data; boundary=x' }),
      ];
      expect(statuses).to.deep.equal([400, 400, 415]);
    });

    await expectServed(measured, maxRunning);
  });

  it('another tenant is served beside 10 uploads that each send a little at a time', async () => {
    const sender = await world.login(world.acme);
    const measured = await measure('10 slow uploads', async () => {
      const uploads = Array.from({ length: 10 }, () =>
        open(sender, 'resource=Currency', { 'Content-Length': 5e6 }),
      );
      for (const sent of uploads) sent.on('error', () => {});

      for (let second = 0; second < 20; second++) {
        for (const sent of uploads) sent.write(Buffer.alloc(20 * 1024, 'x'));
        await sleep(1_000);
      }

      for (const sent of uploads) sent.destroy();
    });

    await expectServed(measured);
  });
});

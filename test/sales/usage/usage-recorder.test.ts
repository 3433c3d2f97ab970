import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { pino } from 'pino';
import { type ControlDatabase, openControlDatabase } from '../../../src/control/database.ts';
import { outcomeUnknown } from '../../../src/lib/problems.ts';
import { UsageRecorder } from '../../../src/sales/usage/usage-recorder.ts';
import { createUsageStore, type UsageStore } from '../../../src/sales/usage/usage-store.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { controlSql, type TestTenant, useWorld } from '../../support/world.ts';

interface Sums {
  requests: number;
  refused: number;
  writes: number;
  bytes: number;
}

const list = '/api/v1/EntityStatus';
const taxCodes = '/api/v1/TaxCodes';
const entities = '/api/v1/Entities';
const hourMs = 3_600_000;

describe('recorded usage', () => {
  const world = useWorld();
  let proxy: SilentProxy;
  let clients: { acme: Client; globex: Client };
  before(async () => {
    proxy = await startSilentProxy();
    clients = { acme: await world.login(world.acme), globex: await world.login(world.globex) };
  });
  after(async () => {
    await proxy.close();
  });

  const execute = <Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> =>
    controlSql<Row>(world, text, values);

  async function recordedOf({ id }: TestTenant): Promise<Sums & { databaseMs: number }> {
    const [sums] = await execute<Sums & { databaseMs: number }>(
      `select coalesce(sum(requests), 0)::int as requests, coalesce(sum(refused), 0)::int as refused,
              coalesce(sum(writes), 0)::int as writes, coalesce(sum(response_bytes), 0)::int as bytes,
              coalesce(sum(database_ms), 0) as "databaseMs"
         from tenant_usage where tenant_id = ?`,
      [id],
    );
    return sums as Sums & { databaseMs: number };
  }

  /** Sends requests and counts them, as a client can. */
  function counting(client: Client) {
    const sums: Sums = { requests: 0, refused: 0, writes: 0, bytes: 0 };

    const send = async (
      method: string,
      path: string,
      body?: unknown,
      headers?: Record<string, string>,
    ) => {
      const response: ApiResponse = await client.send(method, path, body, headers);
      const { status } = response;

      sums.requests++;
      if (status === 429 || status === 503) sums.refused++;
      else if (status < 400 && !['GET', 'HEAD'].includes(method)) sums.writes++;
      sums.bytes += lengthOf(response);
      return response;
    };

    const head = async (): Promise<void> => {
      const headers = { Authorization: `Bearer ${client.tokens?.accessToken}` };
      const response = await fetch(`${client.url}${list}`, { method: 'HEAD', headers });
      // The length of the body that a GET would get.
      expect(Number(response.headers.get('content-length'))).to.be.above(0);
      sums.requests++;
    };

    return { sums, send, head };
  }

  /**
   * Sends some of each kind of request.
   * @param mark makes the names of its records unique
   */
  async function load({ send, head }: ReturnType<typeof counting>, mark: string): Promise<void> {
    const { headers } = await send('GET', list);
    expect(
      (await send('GET', list, undefined, { 'If-None-Match': headers.get('etag') ?? '' })).status,
    ).to.equal(304);
    await head();
    const created = await send('POST', taxCodes, { Code: `U${mark}`, Name: 'Usage', Rate: 1 });
    expect(created.status).to.equal(201);
    expect((await send('GET', `${list}/4711`)).status).to.equal(404);
    expect((await send('POST', taxCodes, { Code: '' })).status).to.equal(400);
    expect(
      (await send('POST', entities, { Name: `Ünit ${mark}`, EntityType: 'customer' })).status,
    ).to.equal(201);
    const exported = await send('GET', entities, undefined, { Accept: 'text/csv' });
    expect(exported.headers.get('content-type')).to.match(/^text\/csv/);
    expect(exported.headers.has('content-length')).to.equal(false);
    expect((await send('GET', '/api/v1/nowhere')).status).to.equal(404);
    await Promise.all(Array.from({ length: 20 }, () => send('GET', list)));
  }

  it('recorded sums are those of the clients, over two tenants and a process that is replaced', async () => {
    const before = { acme: await recordedOf(world.acme), globex: await recordedOf(world.globex) };
    const sums: Record<'acme' | 'globex', Sums[]> = { acme: [], globex: [] };

    for (const run of [1, 2]) {
      const { service, url } = await world.startAnotherServer();
      for (const slug of ['acme', 'globex'] as const) {
        const client = counting(clients[slug].at(url));
        await load(client, `${run}`);
        if (slug === 'acme') await load(client, `${run}b`);
        sums[slug].push(client.sums);
      }
      await service.stop();
    }

    for (const slug of ['acme', 'globex'] as const) {
      const after = await recordedOf(world[slug]);
      for (const name of ['requests', 'refused', 'writes', 'bytes'] as const) {
        const counted = sums[slug].reduce((sum, each) => sum + each[name], 0);
        expect(after[name] - before[slug][name], `${slug} ${name}`).to.equal(counted);
      }
      expect(after.databaseMs).to.be.above(before[slug].databaseMs);
    }
  });

  it('a refused request is counted as refused, and no request without a caller is counted', async () => {
    const before = await recordedOf(world.globex);
    const { service, url } = await world.startAnotherServer();
    const anonymous = world.anonymous.at(url);

    await anonymous.get(list, { 'X-Tenant': world.globex.guid });
    await clients.globex.at(url).withToken(`${clients.globex.tokens?.accessToken}x`).get(list);

    await execute(`update tenants set schema_version = '0001-before' where id = ?`, [
      world.globex.id,
    ]);
    const { send } = counting(clients.globex.at(url));
    const status = async (): Promise<number> =>
      (await send('GET', list, undefined, { 'Cache-Control': 'no-cache' })).status;
    let requests = 0;
    await eventually(async () => {
      requests++;
      return (await status()) === 503;
    });

    await execute(
      'update tenants set schema_version = a.schema_version from tenants a where tenants.id = ? and a.id = ?',
      [world.globex.id, world.acme.id],
    );
    await service.stop();

    const after = await recordedOf(world.globex);
    expect({
      requests: after.requests - before.requests,
      refused: after.refused - before.refused,
    }).to.deep.equal({
      requests,
      refused: 1,
    });
  });

  it('requests go on while usage cannot be written, and all of them are recorded afterwards', async () => {
    const before = await recordedOf(world.acme);
    const { service, url } = await world.startAnotherServer();
    const client = counting(clients.acme.at(url));
    await load(client, '3');

    await execute('alter table tenant_usage rename to away');
    const recorder = openRecorder(world.control);
    recorder.count(world.acme.guid, request);
    await recorder.write();
    expect(recorder.unwritten).to.equal(1);

    await load(client, '4');
    await execute('alter table away rename to tenant_usage');
    await recorder.stop();
    await service.stop();

    expect((await recordedOf(world.acme)).requests - before.requests).to.equal(
      client.sums.requests + 1,
    );
  });

  it('nothing is counted twice while the network to the control database breaks in the middle, and the log has what is lost', async () => {
    const before = await recordedOf(world.acme);
    const lines: { event: string; requests: number }[] = [];
    const log = pino({}, { write: line => void lines.push(JSON.parse(line)) });
    const control = openControlDatabase(proxy.through(world.config.databaseUrl as string));
    const counted = (20 * 21) / 2;

    try {
      const recorder = openRecorder(control, Date.now, log);
      for (let round = 1; round <= 20; round++) {
        for (let i = 0; i < round; i++) recorder.count(world.acme.guid, request);
        const written = recorder.write();
        proxy.cut();
        await written;
      }
      await recorder.stop();
    } finally {
      await control.close(true);
    }

    const recorded = (await recordedOf(world.acme)).requests - before.requests;
    const lost = lines
      .filter(({ event }) => event === 'usage_lost')
      .reduce((sum, { requests }) => sum + requests, 0);
    expect(recorded).to.be.within(counted - lost, counted);
  });

  it('counts that were stored, and whose confirmation was lost, are not stored again', async () => {
    const before = await recordedOf(world.acme);
    const store = createUsageStore(world.control);
    let lost = 3;
    const write: UsageStore['write'] = async counts => {
      await store.write(counts);
      if (lost-- > 0) throw outcomeUnknown(new Error('the confirmation was lost'));
    };
    const recorder = new UsageRecorder({
      store: { ...store, write },
      log: pino({ enabled: false }),
      now: Date.now,
    });

    for (let i = 0; i < 5; i++) {
      recorder.count(world.acme.guid, request);
      await recorder.write();
    }
    await recorder.stop();

    expect(lost).to.be.below(1);
    expect((await recordedOf(world.acme)).requests - before.requests).to.equal(5);
  });

  it('hours of more than 100 days ago are removed, and younger ones stay', async () => {
    await execute(
      `insert into tenant_usage (tenant_id, hour, requests)
       select ?, date_trunc('hour', now()) - days * interval '1 day', 1 from unnest(array[99, 101]) as days`,
      [world.globex.id],
    );

    await openRecorder(world.control).write();

    const rows = await execute<{ days: number }>(
      `select extract(day from now() - hour)::int as days from tenant_usage
        where tenant_id = ? and hour < now() - interval '90 days' and hour > now() - interval '1000 days'`,
      [world.globex.id],
    );
    expect(rows).to.deep.equal([{ days: 99 }]);
  });

  it('two processes that write the same 2,500 tenants and hours at the same time lose no count', async () => {
    const tenants = Array.from({ length: 2_500 }, () => randomUUID());
    await execute(
      `insert into tenants (guid, slug, name, app_id, server_id, status, database_name, role_name, role_password)
       select g::uuid, 'many-' || n, 'many', (random() * 1e9)::text, server_id, 'suspended', 'many-' || n, 'many-' || n, ''
         from tenants, unnest(string_to_array(?, ',')) with ordinality as many (g, n) where id = ?`,
      [tenants.join(','), world.acme.id],
    );

    const recorders = [openRecorder(world.control), openRecorder(world.control)];
    for (let round = 0; round < 3; round++) {
      for (const recorder of recorders) for (const guid of tenants) recorder.count(guid, request);
      await Promise.all(recorders.map(recorder => recorder.write()));
    }
    await Promise.all(recorders.map(recorder => recorder.stop()));

    const rows = await execute(
      `select requests::int, count(*)::int as tenants from tenant_usage join tenants on id = tenant_id
        where slug like 'many-%' group by 1`,
    );
    await execute(`delete from tenants where slug like 'many-%'`);

    expect(rows).to.deep.equal([{ requests: 6, tenants: 2_500 }]);
  });

  it('each request is in the hour in which it ended, and an outage of days keeps the sums', async () => {
    const dayMs = 24 * hourMs;
    // a second before midnight
    let now = Math.floor(Date.now() / dayMs) * dayMs - 30 * dayMs - 1_000;
    const recorder = openRecorder(world.control, () => now);

    for (let hour = 0; hour < 60; hour++) {
      recorder.count(world.globex.guid, request);
      now += hourMs;
    }
    await recorder.stop();

    const rows = await execute<{ hour: string; requests: number }>(
      `select to_char(hour at time zone 'UTC', 'HH24:MI') as hour, requests::int from tenant_usage
        where tenant_id = ? and hour > now() - interval '40 days' and hour < now() - interval '20 days'
        order by tenant_usage.hour`,
      [world.globex.id],
    );
    expect(rows.slice(0, 2)).to.deep.equal([
      { hour: '23:00', requests: 1 },
      { hour: '00:00', requests: 1 },
    ]);
    expect(rows.reduce((sum, { requests }) => sum + requests, 0)).to.equal(60);
    expect(rows).to.have.length(24);
  });

  const request = { method: 'GET', status: 200, bytes: 10 };

  function openRecorder(
    control: ControlDatabase,
    now = Date.now,
    log = pino({ enabled: false }),
  ): UsageRecorder {
    return new UsageRecorder({ store: createUsageStore(control), log, now });
  }
});

/** The bytes of a body that was not compressed. */
function lengthOf({ headers, body }: ApiResponse): number {
  const length = headers.get('content-length');
  if (length !== null) return Number(length);
  return typeof body === 'string' ? Buffer.byteLength(body) : 0;
}

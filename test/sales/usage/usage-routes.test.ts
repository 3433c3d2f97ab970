import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { controlSql, type TestTenant, useWorld } from '../../support/world.ts';

const path = '/api/v1/Usage';
const hourMs = 3_600_000;

interface Usage {
  StartsAt: string;
  Requests: number;
  Refused: number;
  Writes: number;
  ResponseBytes: number;
  DatabaseMs: number;
  DatabaseBytes: number | null;
  DatabaseMeasuredAt: string | null;
}

describe('usage of a tenant over the API', () => {
  const world = useWorld();
  let clients: { acme: Client; globex: Client };
  before(async () => {
    clients = { acme: await world.login(world.acme), globex: await world.login(world.globex) };
  });

  const execute = <Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> =>
    controlSql<Row>(world, text, values);
  const read = async (client: Client, parameters = ''): Promise<Usage[]> => {
    const { status, body } = await client.get(`${path}${parameters}`);
    expect(status).to.equal(200);
    return body;
  };
  const add = (
    tenant: TestTenant,
    hour: string,
    requests: number,
    bytes: number | null,
  ): Promise<unknown> =>
    execute(
      `insert into tenant_usage (tenant_id, hour, requests, refused, writes, response_bytes, database_ms, database_bytes)
       values (?, ?, ?, 1, 2, 300, 4.4, ?)`,
      [tenant.id, hour, requests, bytes],
    );

  beforeEach(async () => {
    await execute('delete from tenant_usage');
    await add(world.acme, '2026-02-03T10:00Z', 10, 1_000);
    await add(world.acme, '2026-02-03T11:00Z', 20, null);
    await add(world.acme, '2026-02-04T00:00Z', 40, 3_000);
    await add(world.globex, '2026-02-03T10:00Z', 7, 9_000);
  });

  it('an administrator reads the requests of the own tenant, and none of another tenant', async () => {
    const { service, url } = await world.startAnotherServer();
    for (let i = 0; i < 5; i++) await clients.globex.at(url).get('/api/v1/Countries');
    await service.stop(); // writes what it has counted

    expect((await read(clients.globex)).at(-1)?.Requests).to.be.at.least(5);

    const [row] = await execute<{ requests: number }>(
      'select coalesce(sum(requests), 0)::int as requests from tenant_usage where tenant_id = ? and hour > ?',
      [world.acme.id, new Date(Date.now() - 24 * hourMs).toISOString()],
    );
    const requests = (await read(clients.acme)).reduce((sum, day) => sum + day.Requests, 0);
    expect(requests).to.equal(row?.requests);
  });

  it('two tenants with usage in the same hours each read their own, whatever the parameters name', async () => {
    const day = (
      date: string,
      requests: number,
      hours: number,
      size: number,
      at: string,
    ): Usage => ({
      StartsAt: `${date}T00:00:00.000Z`,
      Requests: requests,
      Refused: hours,
      Writes: 2 * hours,
      ResponseBytes: 300 * hours,
      DatabaseMs: Math.round(4.4 * hours),
      DatabaseBytes: size,
      DatabaseMeasuredAt: `${date}T${at}:00.000Z`,
    });

    const february = '?from=2026-02-01T00:00:00Z&to=2026-03-01T00:00:00Z';
    expect(await read(clients.acme, february)).to.deep.equal([
      day('2026-02-03', 30, 2, 1_000, '10:00'),
      day('2026-02-04', 40, 1, 3_000, '00:00'),
    ]);

    const others = `&tenant=acme&slug=acme&tenantId=${world.acme.id}&guid=${world.acme.guid}`;
    for (const parameters of [february, `${february}${others}`]) {
      expect(await read(clients.globex, parameters)).to.deep.equal([
        day('2026-02-03', 7, 1, 9_000, '10:00'),
      ]);
    }

    const named = await clients.globex.send('GET', `${path}${february}`, undefined, {
      'X-Tenant': world.acme.guid,
    });
    expect(named.status).to.equal(200);
    expect(named.body).to.deep.equal([day('2026-02-03', 7, 1, 9_000, '10:00')]);
  });

  it('from and to are rounded down to the hour, so consecutive periods count no hour twice', async () => {
    const hours = async (from: string, to: string): Promise<string[]> =>
      (await read(clients.acme, `?from=${from}&to=${to}&by=hour`)).map(({ StartsAt }) => StartsAt);

    expect(await hours('2026-02-03T10:59:00Z', '2026-02-03T11:59:00Z')).to.deep.equal([
      '2026-02-03T10:00:00.000Z',
    ]);
    expect(await hours('2026-02-03T11:59:00Z', '2026-02-04T00:30:00Z')).to.deep.equal([
      '2026-02-03T11:00:00.000Z',
    ]);
    expect(await hours('2026-02-03T12:59:00%2B01:00', '2026-02-04T01:00:00Z')).to.deep.equal([
      '2026-02-03T11:00:00.000Z',
      '2026-02-04T00:00:00.000Z',
    ]);

    expect(await hours('2026-02-04T00:00:00Z', '2026-02-03T00:00:00Z')).to.deep.equal([]);
  });

  it('without parameters, the days of this month in UTC are returned', async () => {
    const now = new Date();
    const month = Date.UTC(now.getUTCFullYear(), now.getUTCMonth());
    await execute('delete from tenant_usage where tenant_id = ?', [world.acme.id]);
    await add(world.acme, new Date(month).toISOString(), 5, null);
    await add(world.acme, new Date(month - hourMs).toISOString(), 6, null);
    const [first] = await read(clients.acme);
    expect(first).to.include({ StartsAt: new Date(month).toISOString(), DatabaseBytes: null });
    expect(first?.Requests).to.be.within(5, 5 + 100);
  });

  it('a parameter that is wrong is refused with 400', async () => {
    for (const parameters of ['?from=yesterday', '?to=2026-02-30T00:00:00Z', '?by=minute']) {
      const { status, body } = await clients.acme.get(`${path}${parameters}`);
      expect(status, parameters).to.equal(400);
      expect(body.code, parameters).to.equal('validation_failed');
    }
  });

  it('a caller of scope Self, or without users.manage, gets 403', async () => {
    const self = await world.loginAs(world.acme, {
      permissions: ['users.manage'],
      scope: 'Self',
      entityId: null,
    });
    const reader = await world.loginAs(world.acme, {
      permissions: ['users.read', 'full.read', 'reports.read'],
    });

    for (const client of [self, reader]) {
      const { status, body } = await client.get(path);
      expect(status).to.equal(403);
      expect(body.code).to.equal('forbidden');
    }
  });
});

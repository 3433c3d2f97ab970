import { expect } from 'chai';
import type { TenantDriver } from '../../src/connections/tenant-driver.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type World } from '../support/world.ts';

const units = '/api/v1/UnitsOfMeasure';
const maxConnections = 2;
const maxGroupSize = 8; // changes that share a transaction
const insertUnit = 'insert into units_of_measure (code, name) select unnest($1::text[]), $2';

describe('commits that changes share', () => {
  let world: World;
  let admin: Client;
  let other: Client;

  before(async () => {
    world = await createWorld({ TENANT_CONNECTIONS: String(maxConnections) });
    admin = await world.login(world.acme);
    other = await world.loginAs(world.acme, { permissions: ['settings.write'] });
  });
  after(() => world.close());

  const create = (code: string, client = admin): Promise<ApiResponse> => client.post(units, { Code: code, Name: code });

  /**
   * Sends one request more than can share a transaction, while all connections of the tenant are in use: two
   * connections are waited for when the last one has arrived.
   */
  async function sendTogether(name: string, send: (code: string, index: number) => Promise<ApiResponse>) {
    const { databases } = world.service;
    const codes = Array.from({ length: maxGroupSize + 1 }, (_, index) => `${name}-${index}`);
    const blockers = Array.from({ length: maxConnections }, (_, index) => `${name}-blocked-${index}`);
    return withConnection(world.acme.adminUrl, async session => {
      await session.query('begin');
      await session.query(insertUnit, [blockers, '']);
      const blocked: Promise<ApiResponse>[] = [];
      for (const code of blockers) {
        blocked.push(create(code));
        await eventually(() => databases.usage.inUse === blocked.length);
      }
      const sent = codes.map(send);
      await eventually(() => databases.usage.waiting === 2);
      await session.query('rollback');
      for (const { status } of await Promise.all(blocked)) expect(status).to.equal(201);
      return sent;
    });
  }

  const audited = (name: string) =>
    sql<{ id: number; trace: string; user: number; transaction: string }>(
      world.acme,
      `select record_key::int as id, trace_id as trace, user_id::int as user, xmin::text as transaction from audit_log
        where resource = 'UnitOfMeasure' and after ->> 'code' like $1`,
      [`${name}-%`],
    );

  it('changes that wait for a connection share a transaction, and each audit entry names its own request', async () => {
    const sent = await sendTogether('shared', (code, index) => create(code, index % 2 === 0 ? admin : other));
    const responses = await Promise.all(sent);
    const entries = await audited('shared');
    const users = new Set<number>();
    for (const [index, { status, headers, body }] of responses.entries()) {
      expect(status).to.equal(201);
      const entry = entries.find(({ id }) => id === body.Id);
      expect(entry?.trace).to.equal(headers.get('x-request-id'));
      if (index % 2 === 0) users.add(entry?.user ?? 0);
      else expect(users).to.not.include(entry?.user);
    }
    expect(users.size).to.equal(1);
    const transactions = Object.groupBy(entries, ({ transaction }) => transaction);
    expect(Math.max(...Object.values(transactions).map(group => group?.length ?? 0))).to.equal(maxGroupSize);
  });

  it('a change that is refused fails alone, and the others of its transaction are made once', async () => {
    await create('TAKEN');
    const sent = await sendTogether('refused', (code, index) => create(index === 3 ? 'taken' : code));
    for (const [index, { status, body }] of (await Promise.all(sent)).entries())
      expect([status, body.code]).to.deep.equal(index === 3 ? [400, 'duplicate'] : [201, undefined]);
    expect(await audited('refused')).to.have.length(maxGroupSize + maxConnections);
  });

  it('a change that waits for a lock does not hold up the others of its transaction', async () => {
    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin');
      await session.query(insertUnit, [['locked'], '']);
      const sent = await sendTogether('waiting', (code, index) => create(index === 3 ? 'locked' : code));
      const [locked] = sent.splice(3, 1);
      for (const { status } of await Promise.all(sent)) expect(status).to.equal(201);
      await session.query('rollback');
      expect((await locked)?.status).to.equal(201);
    });
  });

  it('a change that waits for a lock does not hold up a change of another resource, sent in the same turn', async () => {
    await create('before');
    const { databases } = world.service;
    const [server = ''] = databases.budgets.keys();
    const driver = databases.lastUsedOn(server) as TenantDriver;
    const change = (text: string, resource: string): Promise<unknown> => {
      const statement = { name: '', text, values: [] };
      const announce = async (): Promise<void> => {};
      return driver.change({
        ...{ actor: '', resource, announce },
        change: { ...statement, withActor: () => statement },
      });
    };
    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin; select pg_advisory_xact_lock(7)');
      const waiting = change('select pg_advisory_xact_lock(7)', 'UnitOfMeasure');
      await change('select 1', 'OrderStatus');
      await session.query('rollback');
      await waiting;
    });
  });

  it('changes of two resources that wait together are all made', async () => {
    const sent = await sendTogether('mixed', (code, index) =>
      index % 2 === 0 ? create(code) : admin.post('/api/v1/OrderStatuses', { Name: code, Weighting: index }),
    );
    for (const { status } of await Promise.all(sent)) expect(status).to.equal(201);
  });
});

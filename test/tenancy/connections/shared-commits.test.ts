import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { PoolError } from '../../../src/lib/postgres/database-error.ts';
import { withDeadline } from '../../../src/lib/runtime/deadline.ts';
import { SharedCommits } from '../../../src/tenancy/connections/shared-commits.ts';
import type { TenantDriver } from '../../../src/tenancy/connections/tenant-driver.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

type Changes = Pick<SharedCommits, 'change'>;

const units = '/api/v1/UnitsOfMeasure';
const maxConnections = 2;
const maxGroupSize = 8; // changes that share a transaction
const insertUnit = 'insert into units_of_measure (code, name) select unnest($1::text[]), $2';

describe('commits that changes share', () => {
  const world = useWorld({ TENANT_CONNECTIONS: String(maxConnections) });
  const admin = useLogin(world, 'acme');
  let other: Client;

  before(async () => {
    other = await world.loginAs(world.acme, { permissions: ['settings.write'] });
  });
  beforeEach(async () => {
    const name = randomUUID();
    await create(name);
    // These are the records that a refused change leaves alone.
    for (let count = 0; count < 64; count++) await change(`${name}-${count}`);
  });

  const create = (code: string, client = admin): Promise<ApiResponse> =>
    client.post(units, { Code: code, Name: code });

  /**
   * Sends one request more than can share a transaction, while all connections of the tenant
   * are in use: two connections are waited for when the last one has arrived.
   */
  async function sendTogether(
    name: string,
    send: (code: string, index: number) => Promise<ApiResponse>,
  ) {
    const { databases } = world.service;
    const codes = Array.from({ length: maxGroupSize + 1 }, (_, index) => `${name}-${index}`);
    const blockers = Array.from(
      { length: maxConnections },
      (_, index) => `${name}-blocked-${index}`,
    );

    return withConnection(world.acme.adminUrl, async session => {
      await session.query('begin');
      await session.query(insertUnit, [blockers, '']);

      const blocked: Promise<ApiResponse>[] = [];
      for (const code of blockers) {
        blocked.push(create(code));
        await eventually(() => databases.budgets.usage.inUse === blocked.length);
      }

      const sent = codes.map(send);
      await eventually(() => databases.budgets.usage.waiting === 2);
      await session.query('rollback');

      for (const { status } of await Promise.all(blocked)) expect(status).to.equal(201);
      return sent;
    });
  }

  /** The database of the tenant, which `beforeEach` uses. */
  function database(): TenantDriver {
    const { databases } = world.service;
    const [server = ''] = databases.budgets.all.keys();
    const found = databases.lastUsedOn(server);
    if (!found) throw new Error('no database is open');
    return found;
  }

  /**
   * Makes a change as a request with this time left does. Those of one turn of the event loop
   * arrive together.
   */
  function change(code: string, { ms = 9_500, on = database() as Changes } = {}) {
    const actor = JSON.stringify({ traceId: code, ipAddress: '192.0.2.1' });
    const text = `with actor as materialized (select set_config('app.actor', $2, true))
      insert into units_of_measure (code, name) select $1, '' from actor`;
    const insert = { name: '', text, values: [code, actor], withActor: () => insert };
    return withDeadline(ms, deadline => on.change({ actor, change: insert, deadline }));
  }

  /** Returns the codes of the units that each transaction created. */
  async function transactions(name: string): Promise<string[][]> {
    const rows = await sql<{ codes: string[] }>(
      world.acme,
      `select array_agg(code order by code) as codes from units_of_measure where code like $1 group by xmin::text`,
      [`${name}-%`],
    );
    return rows.map(({ codes }) => codes);
  }

  const audited = (name: string) =>
    sql<{ id: number; trace: string; user: number; transaction: string }>(
      world.acme,
      `select record_key::int as id, trace_id as trace, user_id::int as user, xmin::text as transaction from audit_log
        where resource = 'UnitOfMeasure' and after ->> 'code' like $1`,
      [`${name}-%`],
    );

  it('changes that wait for a connection share a transaction, and each audit entry names its own request', async () => {
    const sent = await sendTogether('shared', (code, index) =>
      create(code, index % 2 === 0 ? admin : other),
    );
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
    expect(Math.max(...Object.values(transactions).map(group => group?.length ?? 0))).to.equal(
      maxGroupSize,
    );
  });

  it('a change that is refused fails alone, and the others of its transaction are made once', async () => {
    await create('TAKEN');
    const sent = await sendTogether('refused', (code, index) =>
      create(index === 3 ? 'taken' : code),
    );

    for (const [index, { status, body }] of (await Promise.all(sent)).entries()) {
      expect([status, body.code]).to.deep.equal(
        index === 3 ? [400, 'duplicate'] : [201, undefined],
      );
    }
    expect(await audited('refused')).to.have.length(maxGroupSize + maxConnections);
  });

  it('a change that waits for a lock does not hold up the others of its transaction', async () => {
    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin');
      await session.query(insertUnit, [['locked'], '']);

      const sent = await sendTogether('waiting', (code, index) =>
        create(index === 3 ? 'locked' : code),
      );

      const [locked] = sent.splice(3, 1);
      for (const { status } of await Promise.all(sent)) expect(status).to.equal(201);

      await session.query('rollback');
      expect((await locked)?.status).to.equal(201);
    });
  });

  it('changes of two resources that wait together are all made', async () => {
    const sent = await sendTogether('mixed', (code, index) =>
      index % 2 === 0
        ? create(code)
        : admin.post('/api/v1/OrderStatuses', { Name: code, Weighting: index }),
    );
    for (const { status } of await Promise.all(sent)) expect(status).to.equal(201);
  });

  it('a change whose deadline is near has a transaction of its own, so that it ends no connection of others', async () => {
    const codes = Array.from({ length: maxGroupSize }, (_, index) => `near-${index}`);
    await Promise.all(
      codes.map((code, index) => change(code, { ms: index % 3 === 0 ? 950 : 9_500 })),
    );
    const near = ['near-0', 'near-3', 'near-6'].map(code => [code]);
    expect(await transactions('near')).to.have.deep.members([
      ...near,
      ['near-1', 'near-2', 'near-4', 'near-5', 'near-7'],
    ]);
  });

  it('after a refused change, the next 64 changes are committed alone', async () => {
    const send = (name: string, count: number) =>
      Promise.allSettled(Array.from({ length: count }, (_, index) => change(`${name}-${index}`)));
    await change('alone-3');
    await send('alone', maxGroupSize);
    for (let count = 0; count < 8; count++) await send(`later-${count}`, maxGroupSize);
    expect(await transactions('later')).to.have.length(64);
    await send('together', maxGroupSize);
    expect(await transactions('together')).to.have.length(1);
  });

  it('a connection that cannot be opened refuses only the changes that would have shared its transaction', async () => {
    const { pool } = database();
    let opened = 0;

    const commits = new SharedCommits({
      connect: async () => {
        if (opened++ === 0) throw new PoolError('ETIMEDOUT', 'the server did not answer in time');
        return pool.connect();
      },
      changeAlone: single => database().change(single),
    });

    const codes = Array.from({ length: maxGroupSize + 1 }, (_, index) => `unopened-${index}`);
    const results = await Promise.allSettled(codes.map(code => change(code, { on: commits })));

    expect(results.filter(({ status }) => status === 'rejected')).to.have.length(maxGroupSize);
    expect(await transactions('unopened')).to.deep.equal([[`unopened-${maxGroupSize}`]]);
  });
});

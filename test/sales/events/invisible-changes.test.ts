import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { settle } from '../../support/settle.ts';
import { use } from '../../support/use.ts';
import { createWorld, sql } from '../../support/world.ts';
import { startReceiver } from '../webhooks/receiver.ts';
import { follow } from './follow.ts';

const rows = 9_000;
const path = '/api/v1/Changes';

/** Audited tables, and a statement that adds rows to each. */
const tables = {
  tax_codes: `insert into tax_codes (code, name, rate) select 'N' || n, 'tax', 1 from generate_series(1, ${rows}) n`,
  currencies: `insert into currencies (code, name) values ('XTS', 'Test') on conflict do nothing`,
  entities: `insert into entities (name, entity_type, status_id) values ('Northwind', 'customer', 1)`,
  promotions: `insert into promotions (promo_code, name, discount_type, discount_value) values ('P', 'P', 'Percentage', 1)`,
};

describe('changes of columns that no response has', function () {
  this.slow(30_000);

  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));

  it('9,000 updates of a column that no response has are no changes of the feed, no events and no messages, and later changes arrive', async function () {
    this.timeout(120_000);
    const [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    for (const [table, insert] of Object.entries(tables)) {
      await sql(world.acme, `alter table ${table} add column internal_note text`);
      await sql(world.acme, insert);
    }
    await settle(world.acme, world.globex);
    const [{ id } = { id: 0 }] = await sql<{ id: number }>(
      world.acme,
      'select max(id) as id from tax_codes',
    );
    for (const [name, client] of Object.entries({ acme, globex })) {
      const webhook = { Url: receiver.url(`/${name}`), Payload: 'record' };
      expect((await client.post('/api/v1/Webhooks', webhook)).status).to.equal(201);
    }
    const begin = (await acme.get(`${path}?after=now`)).headers.get('next-cursor');
    const stream = await follow(acme, `?after=${begin}`);

    for (const table of Object.keys(tables)) {
      await sql(world.acme, `update ${table} set internal_note = 'filled'`);
    }
    await sql(
      world.acme,
      `update tax_codes set internal_note = 'both', rate = 2 where id in (${id}, ${id - 1})`,
    );
    const created = await acme.post('/api/v1/OrderStatuses', { Name: 'after' });
    const key = created.body.Id;
    expect((await acme.patch(`/api/v1/TaxCodes/${id}`, { Name: 'again' })).status).to.equal(200);
    expect((await acme.delete(`/api/v1/OrderStatuses/${key}`)).status).to.be.oneOf([200, 204]);
    await globex.post('/api/v1/OrderStatuses', { Name: 'of globex' });

    const expected = [
      ['tax_code.updated', String(id - 1), ['Rate']],
      ['tax_code.updated', String(id), ['Rate']],
      ['order_status.created', String(key), []],
      ['tax_code.updated', String(id), ['Name']],
      ['order_status.deleted', String(key), []],
    ];
    const brief = ({ Type, Key, Fields }: Record<string, unknown>) => [Type, Key, Fields];

    await settle(world.acme);
    // Pages: each says where to go on, and the last one has no link.
    const paged: unknown[] = [];
    for (let query = `after=${begin}&limit=1000`, pages = 0; paged.length < expected.length; ) {
      expect(++pages).to.be.lessThan(100);
      const { body, headers } = await acme.get(`${path}?${query}`);
      paged.push(...body.map(brief));
      query = `after=${headers.get('next-cursor')}&limit=1000`;
    }
    expect(paged).to.deep.equal(expected);

    const streamed: unknown[] = [];
    while (streamed.length < expected.length) streamed.push(brief((await stream.next())?.data));
    stream.close();
    expect(streamed).to.deep.equal(expected);

    await eventually(() => receiver.at('/acme').length >= expected.length);
    const sent = receiver.at('/acme').map(({ body }) => brief(body.data));
    expect(sent).to.deep.equal(expected);
    await eventually(() => receiver.at('/globex').length === 1);

    // The audit log has an entry of each row all the same.
    const counts = Object.keys(tables).map(table => `(select count(*) from ${table})`);
    const [log] = await sql<{ entries: number; rows: number }>(
      world.acme,
      `select (${counts.join(' + ')})::int as rows,
              count(*) filter (where after ->> 'internal_note' = 'filled')::int as entries
         from audit_log where action = 'update'`,
    );
    expect(log?.rows).to.be.above(rows);
    expect(log?.entries).to.equal(log?.rows);
  });
});

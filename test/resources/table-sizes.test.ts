import { expect } from 'chai';
import { resources } from '../../src/resources/index.ts';
import type { Client } from '../support/client.ts';
import { createWorld, sql, type World } from '../support/world.ts';
import { examples } from './examples.ts';
import { expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/SystemOptions';
const option = (value = 'on') => ({ SystemOptionTypeId: 1, Value: value });

describe('sizes of tables with unpaged lists', () => {
  let world: World;
  let admin: Client;
  let globex: Client;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    globex = await world.login(world.globex);
  });
  after(() => world.close());

  /** Leaves room for a number of rows or bytes beyond what the table holds. */
  const leaveRoom = (table: string, { rows = 1_000, bytes = 1_000_000 }) =>
    sql(world.acme, `update table_sizes set max_rows = rows + $2, max_bytes = bytes + $3 where table_name = $1`, [
      table,
      rows,
      bytes,
    ]);
  const expectCounted = async (table: string) => {
    const [stored] = await sql(world.acme, 'select rows, bytes from table_sizes where table_name = $1', [table]);
    const [actual] = await sql(
      world.acme,
      `select count(*) as rows, coalesce(sum(octet_length(t::text)), 0) as bytes from ${table} t`,
    );
    expect(stored).to.deep.equal(actual);
  };

  it('a table with an unpaged list has at most 10,000 rows (SystemOptions 50,000) and 4 MiB of text', async () => {
    const whole = resources.filter(({ name }) => !examples[name]?.paged).map(({ entity }) => entity.name);
    const sizes = await sql<{ table_name: string; max_rows: string; max_bytes: string }>(
      world.acme,
      'select table_name, max_rows, max_bytes from table_sizes',
    );
    expect(sizes).to.have.length(whole.length);
    for (const { table_name, max_rows, max_bytes } of sizes)
      expect([max_rows, max_bytes]).to.deep.equal([table_name === 'system_options' ? '50000' : '10000', '4194304']);
  });

  it('of 20 concurrent creates with room for 7, exactly 7 succeed, and the others get limit_reached', async () => {
    await leaveRoom('system_options', { rows: 7 });
    const responses = await Promise.all(Array.from({ length: 20 }, () => admin.post(path, option())));
    expect(responses.filter(({ status }) => status === 201)).to.have.length(7);
    for (const response of responses) if (response.status !== 201) expectRefused(response, 400, 'limit_reached');
    await expectCounted('system_options');
    const audited = await newestAudit(admin);
    expectRefused(await admin.post(path, option()), 400, 'limit_reached');
    expect(await newestAudit(admin)).to.equal(audited);
  });

  it('a full table accepts changes of its records, and one more record for each that is deleted', async () => {
    await leaveRoom('system_options', { rows: 1 });
    const { body } = await admin.post(path, option());
    expect((await admin.put(`${path}/${body.Id}`, option('off'))).status).to.equal(200);
    expectRefused(await admin.post(path, option()), 400, 'limit_reached');
    expect((await admin.delete(`${path}/${body.Id}`)).status).to.equal(204);
    expect((await admin.post(path, option())).status).to.equal(201);
    expectRefused(await admin.post(path, option()), 400, 'limit_reached');
    await expectCounted('system_options');
  });

  it('a create or change beyond the text limit of the table is rejected, and shorter text is accepted', async () => {
    await leaveRoom('system_options', {});
    const { body } = await admin.post(path, option('x'.repeat(500)));
    await leaveRoom('system_options', { bytes: 100 });
    expectRefused(await admin.post(path, option('y'.repeat(200))), 400, 'limit_reached');
    expectRefused(await admin.put(`${path}/${body.Id}`, option('y'.repeat(700))), 400, 'limit_reached');
    expect((await admin.put(`${path}/${body.Id}`, option('y'.repeat(300)))).status).to.equal(200);
    expect((await admin.post(path, option('z'.repeat(200)))).status).to.equal(201);
    await expectCounted('system_options');
  });

  it('a full table of one tenant limits neither other tenants nor other tables of the tenant', async () => {
    await leaveRoom('system_options', { rows: 0 });
    expectRefused(await admin.post(path, option()), 400, 'limit_reached');
    expect((await globex.post(path, option())).status).to.equal(201);
    expect((await admin.post('/api/v1/OrderStatuses', { Name: 'Open' })).status).to.equal(201);
  });

  it('the role of the service can neither change the counts nor the limits', async () => {
    const [role] = await sql<{ rolname: string }>(
      world.acme,
      `select rolname from pg_roles
        where rolcanlogin and not rolsuper and has_table_privilege(oid, 'system_options', 'insert')
          and has_database_privilege(oid, current_database(), 'connect')`,
    );
    expect(role).to.not.equal(undefined);
    const [rights] = await sql(
      world.acme,
      `select has_table_privilege($1, 'table_sizes', 'insert,update,delete') as any`,
      [role?.rolname],
    );
    expect(rights).to.deep.equal({ any: false });
  });

  it('changes by SQL are counted, whatever the time zone of the session, and a truncate resets the count', async () => {
    await leaveRoom('countries', {});
    await sql(
      world.acme,
      `set timezone = 'Asia/Kathmandu';
       insert into countries (country_code, country_name)
       select 'C' || i, 'Country ' || i from generate_series(1, 100) i;
       update countries set country_name = country_name || '!' where country_code like 'C1%';
       delete from countries where country_code like 'C2%'`,
    );
    await expectCounted('countries');
    await sql(world.acme, 'truncate order_statuses');
    await expectCounted('order_statuses');
  });

  it('a promotion has at most 100 entities', async () => {
    const promotion = { PromoCode: 'MANY', Name: 'Many', DiscountType: 'Percentage', DiscountValue: 10 };
    const ids = (n: number) => Array.from({ length: n }, (_, i) => i + 1);
    await sql(
      world.acme,
      `insert into entities (name, entity_type) select 'E' || i, 'customer' from generate_series(1, 101) i`,
    );
    expectRefused(
      await admin.post('/api/v1/Promotions', { ...promotion, EntityIds: ids(101) }),
      400,
      'validation_failed',
    );
    expect((await admin.post('/api/v1/Promotions', { ...promotion, EntityIds: ids(100) })).status).to.equal(201);
  });
});

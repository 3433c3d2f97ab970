import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { resources } from '../../../src/sales/resources/index.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { examples } from './examples.ts';
import { expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/SystemOptions';
const option = (value = 'on') => ({ SystemOptionTypeId: 1, Value: value });

describe('sizes of tables with unpaged lists', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  before(async () => {
    await enlargeFiles();
  });

  /**
   * Leaves the tables the files of many deleted rows, so that low limits, which tests reach
   * soon, hold for them.
   */
  async function enlargeFiles(): Promise<void> {
    const rows = {
      system_options: `(system_option_type_id, value) select 1, repeat('x', 1000) from generate_series(1, 300)`,
      order_statuses: '(name) select i::text from generate_series(1, 6000) i',
      countries: `(country_code, country_name) select i::text, 'Country' from generate_series(1, 6000) i`,
      currencies: `(code, name) select i::text, 'Currency' from generate_series(1, 6000) i`,
    };
    for (const [table, insert] of Object.entries(rows)) {
      await sql(
        world.acme,
        `set session_replication_role = replica;
         alter table ${table} set (autovacuum_enabled = false, toast.autovacuum_enabled = false);
         insert into ${table} ${insert};
         delete from ${table} where xmin = pg_current_xact_id()::xid`,
      );
      const [size] = await sql(world.acme, 'select pg_table_size($1) >= 256 * 1024 as large', [
        table,
      ]);
      expect(size, table).to.deep.equal({ large: true });
    }
  }

  /** Leaves room for a number of rows or bytes beyond what the table holds. */
  const leaveRoom = (table: string, { rows = 1_000, bytes = 1_000_000 }) =>
    sql(
      world.acme,
      `update table_sizes s set max_rows = size.rows + $2, max_bytes = size.bytes + $3
         from measure_table($1::text::regclass) size where table_name = $1`,
      [table, rows, bytes],
    );

  /** Empties the tables, and gives them their limits again. */
  afterEach(() =>
    sql(
      world.acme,
      `set session_replication_role = replica;
       update table_sizes set max_bytes = 4194304,
              max_rows = case table_name when 'system_options' then 50000 else 10000 end;
       delete from order_statuses;
       delete from system_options;
       delete from promotions;
       delete from countries;
       delete from currencies`,
    ),
  );

  it('a table with an unpaged list has at most 10,000 rows (SystemOptions 50,000) and 4 MiB of text', async () => {
    const whole = resources.filter(({ name }) => !examples[name]?.paged);
    const sizes = await sql<{ table_name: string; max_rows: string; max_bytes: string }>(
      world.acme,
      'select table_name, max_rows, max_bytes from table_sizes',
    );

    expect(sizes.map(({ table_name }) => table_name)).to.have.members(
      whole.map(({ definition }) => definition.table.name),
    );

    for (const { table_name, max_rows, max_bytes } of sizes) {
      expect(max_rows, table_name).to.equal(table_name === 'system_options' ? '50000' : '10000');
      expect(max_bytes, table_name).to.equal('4194304');
    }
  });

  it('no column of a table with an unpaged list is compressed, so that the size of its files bounds its text', async () => {
    const compressed = await sql(
      world.acme,
      `select table_name || '.' || attname as column
         from table_sizes join pg_attribute on attrelid = table_name::regclass
        where attnum > 0 and attlen = -1 and not attisdropped and attstorage <> 'e'`,
    );
    expect(compressed, 'columns without storeUncompressed(table) in a migration').to.deep.equal([]);
  });

  it('of 20 concurrent creates with room for 7, exactly 7 succeed, and the others get limit_reached', async () => {
    await leaveRoom('system_options', { rows: 7 });
    const responses = await Promise.all(
      Array.from({ length: 20 }, () => admin.post(path, option())),
    );

    expect(responses.filter(({ status }) => status === 201)).to.have.length(7);
    for (const response of responses) {
      if (response.status !== 201) expectRefused(response, 400, 'limit_reached');
    }

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
  });

  it('a create or change beyond the text limit of the table is rejected, and shorter text is accepted', async () => {
    await leaveRoom('system_options', {});
    const { body } = await admin.post(path, option('x'.repeat(500)));
    await leaveRoom('system_options', { bytes: 100 });

    expectRefused(await admin.post(path, option('y'.repeat(200))), 400, 'limit_reached');
    expectRefused(
      await admin.put(`${path}/${body.Id}`, option('y'.repeat(700))),
      400,
      'limit_reached',
    );

    expect((await admin.put(`${path}/${body.Id}`, option('y'.repeat(300)))).status).to.equal(200);
    expect((await admin.post(path, option('z'.repeat(200)))).status).to.equal(201);
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

  it('rows have the same size in every time zone of a session, and a truncate makes room', async () => {
    const measure = (zone: string) =>
      sql(
        world.acme,
        `select size.* from set_config('timezone', $1, false), measure_table('entity_statuses') size`,
        [zone],
      );
    expect(await measure('Asia/Kathmandu')).to.deep.equal(await measure('UTC'));

    await leaveRoom('order_statuses', { rows: 0 });
    expectRefused(
      await admin.post('/api/v1/OrderStatuses', { Name: 'Closed' }),
      400,
      'limit_reached',
    );

    await sql(world.acme, 'truncate order_statuses');
    expect((await admin.post('/api/v1/OrderStatuses', { Name: 'Closed' })).status).to.equal(201);
  });

  it('an open transaction on a table that is not nearly full lets other changes of the table commit', async () => {
    await sql(world.acme, `update table_sizes set max_rows = 10000, max_bytes = 4194304`);
    await withConnection(world.acme.adminUrl, async client => {
      await client.query(`begin; insert into order_statuses (name) values ('Uncommitted')`);
      expect((await admin.post('/api/v1/OrderStatuses', { Name: 'Committed' })).status).to.equal(
        201,
      );
      await client.query('rollback');
    });
  });

  it('a table whose files are small cannot exceed a limit, however short its rows or compressible its text', async () => {
    const insert = {
      order_statuses: `(name) select i::text from generate_series(1, 9000) i`,
      system_options: `(system_option_type_id, value) select 2147483647, repeat('"', 4000) from generate_series(1, 100)`,
      promotions: `(promo_code, name, description, discount_type, discount_value, starts_at, ends_at, entity_ids)
        select 'W' || i, '"', repeat(case i % 2 when 0 then '' else 'x' end, 4000), 'Percentage', 0.0001,
               '4713-01-01 00:00:00.123456+00 BC', '294276-12-31 23:59:59.999999+00',
               (select array_agg(9223372036854775807) from generate_series(1, 100))
          from generate_series(1, 100) i`,
    };

    for (const [table, rows] of Object.entries(insert)) {
      await sql(
        world.acme,
        `update table_sizes set max_rows = 1e6, max_bytes = 1e9; insert into ${table} ${rows}`,
      );
      const [size] = await sql<{ rows: boolean; bytes: boolean }>(
        world.acme,
        `select pg_table_size($1) >= 28 * rows as rows, 5 * pg_table_size($1) >= bytes as bytes
           from measure_table($1)`,
        [table],
      );
      expect(size, table).to.deep.equal({ rows: true, bytes: true });
    }
  });

  it('a table accepts rows up to its default limits, and no row beyond', async () => {
    await sql(
      world.acme,
      `update table_sizes set max_rows = 10000, max_bytes = 4194304;
       set session_replication_role = replica;
       delete from order_statuses;
       insert into order_statuses (name) select i::text from generate_series(1, 9999) i;
       delete from system_options;
       insert into system_options (system_option_type_id, value, created_at)
         select 1, repeat('x', 4000), '2026-01-01 00:00:00.123456+00' from generate_series(1, 1037)`,
    );

    const statuses = '/api/v1/OrderStatuses';
    expect((await admin.post(statuses, { Name: 'Last' })).status).to.equal(201);
    expectRefused(await admin.post(statuses, { Name: 'Beyond' }), 400, 'limit_reached');

    const [{ room } = { room: 0 }] = await sql<{ room: number }>(
      world.acme,
      `select (4194304 - bytes)::integer as room from measure_table('system_options')`,
    );
    expect(room).to.be.within(1_000, 4_000);
    expect((await admin.post(path, option('x'.repeat(room - 100)))).status).to.equal(201);
    expectRefused(await admin.post(path, option('x'.repeat(100))), 400, 'limit_reached');
  });

  describe('rows that are marked as deleted', () => {
    const countries = '/api/v1/Countries';
    const country = (CountryCode: string) => ({ CountryCode, CountryName: 'Atlantis' });
    const fill = (rows: string) =>
      sql(
        world.acme,
        `update table_sizes set max_rows = 1000, max_bytes = 1000000 where table_name = 'countries';
         delete from countries; insert into countries (country_code, country_name) ${rows}`,
      );

    it('a record of a full table can be marked as deleted, which makes room for another record', async () => {
      for (const [path, create] of [
        [countries, country('AT')],
        ['/api/v1/Currency', { Code: 'ATS', Name: 'Atlantis' }],
      ] as const) {
        const { body } = await admin.post(path, create);
        const key = body.Id ?? `code/${body.CountryCode}`;
        const table = path === countries ? 'countries' : 'currencies';

        await leaveRoom(table, { rows: 0, bytes: 10 }); // a mark takes more
        expect((await admin.delete(`${path}/${key}`)).status, table).to.equal(204);

        const next = path === countries ? country('BT') : { Code: 'BTS', Name: 'Atlantis' };
        expect((await admin.post(path, next)).status, table).to.equal(201);
        expectRefused(await admin.post(`${path}/${key}/undelete`, {}), 400, 'limit_reached');

        await leaveRoom(table, {});
        expect((await admin.post(`${path}/${key}/undelete`, {})).status, table).to.equal(200);
      }
    });

    it('a table with marked rows beyond ten times its limit refuses new rows and accepts further marks', async () => {
      await fill(`select 'C' || i, 'Country' from generate_series(1, 21) i`);
      await sql(
        world.acme,
        `update countries set is_deleted = true, deleted_at = now() where country_code <> 'C1';
         update table_sizes set max_rows = 2, max_bytes = 1000000 where table_name = 'countries'`,
      );

      expect((await admin.post(countries, country('C22'))).status).to.equal(201);
      expect((await admin.delete(`${countries}/code/C1`)).status).to.equal(204);
      expectRefused(await admin.post(countries, country('C23')), 400, 'limit_reached');
      expect((await admin.delete(`${countries}/code/C22`)).status).to.equal(204);

      for (const code of ['C1', 'C22']) {
        expect((await admin.post(`${countries}/code/${code}/undelete`, {})).status).to.equal(200);
      }

      expect((await admin.delete(`${countries}/code/C1`)).status).to.equal(204);
      await sql(world.acme, `delete from countries where country_code in ('C1', 'C2', 'C3')`);
      expect((await admin.post(countries, country('C23'))).status).to.equal(201);
    });

    it('a table accepts no new row while its marked rows have more than twice the limit of text', async () => {
      await fill(`select 'C' || i, 'Country' from generate_series(1, 10) i`);
      const mark = 'is_deleted = true, deleted_at = now()';
      await sql(
        world.acme,
        `update countries set ${mark};
         update table_sizes set max_rows = 10, max_bytes = size.deleted_bytes / 2 + 1
           from measure_table('countries') size where table_name = 'countries'`,
      );

      expect((await admin.post(countries, country('D1'))).status).to.equal(201);
      expect((await admin.delete(`${countries}/code/D1`)).status).to.equal(204);
      expectRefused(await admin.post(countries, country('D2')), 400, 'limit_reached');
    });

    it('concurrent marks and undeletes together do not exceed a limit, and a mark that is rolled back makes no room', async () => {
      await fill(`select 'C' || i, 'Country' from generate_series(1, 10) i`);
      await leaveRoom('countries', { rows: 0 });
      const keys = Array.from({ length: 10 }, (_, i) => `${countries}/code/C${i + 1}`);

      const marks = await Promise.all([...keys, ...keys].map(key => admin.delete(key)));
      expect(marks.filter(({ status }) => status === 204)).to.have.length(10);
      expect((await admin.post(countries, country('N1'))).status).to.equal(201);

      const undeleted = await Promise.all(keys.map(key => admin.post(`${key}/undelete`, {})));
      expect(undeleted.filter(({ status }) => status === 200)).to.have.length(9);

      await sql(
        world.acme,
        `begin; update countries set is_deleted = true, deleted_at = now(); rollback`,
      );
      expectRefused(await admin.post(countries, country('N2')), 400, 'limit_reached');
    });
  });

  it('a promotion has at most 100 entities', async () => {
    const promotion = {
      PromoCode: 'MANY',
      Name: 'Many',
      DiscountType: 'Percentage',
      DiscountValue: 10,
    };
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
    expect(
      (await admin.post('/api/v1/Promotions', { ...promotion, EntityIds: ids(100) })).status,
    ).to.equal(201);
  });
});

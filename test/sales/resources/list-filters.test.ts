import { expect } from 'chai';
import { operatorsOf } from '../../../src/lib/http/request/list-parameters/list-contract.ts';
import type { Client } from '../../support/client.ts';
import { routes } from '../../support/contract.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { expectRefused } from './expect.ts';

type Listed = Readonly<Record<string, unknown>>;

/** The lists that have a path without parameters, with their contracts. */
const lists = routes.flatMap(({ path, list }) =>
  list && !path.includes(':') ? [{ path, list }] : [],
);

describe('filters of lists', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const other = useLogin(world, 'globex');

  before(async () => {
    await sql(
      world.acme,
      `insert into currencies (code, name, is_deleted, deleted_at)
       values ('EUR', 'Euro', false, null), ('SEK', 'Krona', false, null),
              ('OLD', 'Former', true, '2026-03-01T12:00:00Z'), ('PST', 'Past', true, '2026-04-01T12:00:00Z');
       insert into countries (country_code, country_name, is_deleted, deleted_at)
       values ('NO', 'Norway', false, null), ('YU', 'Yugoslavia', true, now());
       insert into order_statuses (name) values ('Open');
       insert into units_of_measure (code, name) values ('kg', 'Kilogram');
       insert into tax_codes (code, name, rate) values ('VAT', 'Tax', 20);
       insert into system_options (system_option_type_id, value) values (1, 'one');
       insert into entities (name, entity_type, currency_id)
       values ('Nordwind GmbH', 'customer', 1), ('NORTHERN Lights', 'customer', null),
              ('Blue Harbour Ltd', 'supplier', null), ('İstanbul Ticaret', 'customer', null);
       insert into promotions (promo_code, name, discount_type, discount_value, starts_at, ends_at, entity_ids)
       values ('A', 'For all', 'Percentage', 5, null, null, '{}'),
              ('B', 'For one', 'Percentage', 5, '2026-01-01Z', '2026-02-01Z', '{1}'),
              ('C', 'For two', 'Percentage', 5, '2026-01-15Z', null, '{1,2}'),
              ('D', 'For the third', 'Percentage', 5, '2026-06-01Z', '2026-07-01Z', '{3}')`,
    );
    await sql(
      world.globex,
      `insert into promotions (promo_code, name, discount_type, discount_value, entity_ids)
       values ('X', 'Of globex', 'Percentage', 5, '{1}')`,
    );

    for (const EntityId of [1, null]) {
      await admin.post('/api/v1/Activity', { ActivityCode: 7, EntityId, Comment: 'Called' });
    }
    await admin.post('/api/v1/Roles', { Name: 'Buyer', Permissions: ['orders.read'] });
    await admin.post('/api/v1/Programs', {
      Name: 'Nightly import',
      Role: 'Buyer',
      Scope: 'All',
      Networks: ['192.0.2.0/24'],
    });
    await admin.post('/api/v1/Webhooks', {
      Url: 'https://hooks.example.com/changes',
      Resources: ['Country'],
    });
  });

  const read = async (path: string, client: Client = admin): Promise<Listed[]> => {
    const { status, body } = await client.get(path);
    expect(status, `${path} ${JSON.stringify(body)}`).to.equal(200);
    return body;
  };
  const values = async (path: string, field: string, client: Client = admin) =>
    (await read(path, client)).map(record => record[field]);
  const codes = (query: string) => values(`/api/v1/Currency?${query}`, 'Code');
  const promotions = (query: string, client: Client = admin) =>
    values(`/api/v1/Promotions?${query}`, 'PromoCode', client);
  const names = (query: string) => values(`/api/v1/Entities?sort=Id&${query}`, 'Name');

  for (const { path, list } of lists) {
    it(`every filter of ${path} finds the record whose value it has, under both names of the field`, async () => {
      const [record = {}] = await read(
        `${path}?sort=-Id&limit=1`.replace('-Id', `-${list.key.name}`),
      );
      expect(record).not.to.be.empty;

      for (const [spelling, field] of list.fields) {
        const value = record[field.name];
        const [one] = Array.isArray(value) ? value : [value];
        if (one === undefined) continue; // a list without members

        const filter =
          one === null
            ? `filter[${spelling}][null]=true`
            : `filter[${spelling}]=${encodeURIComponent(String(one))}`;
        const keys = await values(`${path}?limit=1000&${filter}`, list.key.name);
        expect(keys, filter).to.include(record[list.key.name]);
      }
    });
  }

  it('a filter of the audit log finds what the parameter of the same meaning finds, for each resource', async () => {
    const path = '/api/v1/AuditLog?limit=1000';
    const [{ UserId } = { UserId: 0 }] = await read('/api/v1/AuditLog?userId=1');
    const resource = lists
      .find(each => each.path === '/api/v1/AuditLog')
      ?.list.fields.get('Resource');

    for (const name of resource?.values ?? []) {
      const named = await read(`${path}&resource=${name}`);
      const filtered = await read(`${path}&filter[Resource]=${name}`);
      expect(filtered, name).to.deep.equal(named);
    }

    expect(await read(`${path}&filter[Resource]=Role`)).not.to.be.empty;
    expect(await read(`${path}&filter[UserId]=${UserId}&sort=-Id`)).to.deep.equal(
      await read(`${path}&userId=${UserId}`),
    );
    expect(await read(`${path}&filter[Key]=NO`)).to.deep.equal(await read(`${path}&key=NO`));
    expect(await read('/api/v1/Activity?filter[EntityId]=1')).to.deep.equal(
      await read('/api/v1/Activity?entityId=1'),
    );
  });

  it('a filter of the audit log that no single database can answer is refused by its name', async () => {
    for (const query of [
      'resource=Role,Country',
      'filter[Resource]=Role&filter[Resource]=Country',
      'filter[Resource]=NoSuch',
      'filter[Resource]=role',
      'filter[Resource][prefix]=Ro',
      'filter[Resource][gte]=R',
    ]) {
      const refused = await admin.get(`/api/v1/AuditLog?${query}`);
      const [name = ''] = query.split('=');

      expectRefused(refused, 400, 'validation_failed', [name]);
    }
  });

  it('a filter of the audit log needs the permission of the resource that it names, as the parameter does', async () => {
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });

    for (const name of ['User', 'Role', 'Webhook']) {
      for (const query of [`resource=${name}`, `filter[Resource]=${name}`]) {
        const refused = await reader.get(`/api/v1/AuditLog?${query}`);

        expectRefused(refused, 403, 'forbidden');
      }
    }
  });

  it('a filter of a path that has none is refused by its name, and not ignored', async () => {
    for (const path of [
      '/api/v1/Changes?filter[Resource]=Country',
      '/api/v1/Changes/stream?filter[Resource]=Country',
      '/api/v1/Currency/1?filter[Code]=EUR',
      '/api/v1/auth/me?filter=1',
      '/api/v1/auth/sessions?$filter=1',
    ]) {
      const refused = await admin.get(path);
      const [name = ''] = (path.split('?')[1] ?? '').split('=');

      expectRefused(refused, 400, 'validation_failed', [name]);
    }
  });

  it('a filter by the mark of deletion decides alone which records are left out', async () => {
    expect(await codes('filter[IsDeleted]=true')).to.deep.equal(['OLD', 'PST']);
    expect(await codes('filter[IsDeleted]=true&includeDeleted=false')).to.deep.equal([
      'OLD',
      'PST',
    ]);
    expect(await codes('filter[IsDeleted]=false&includeDeleted=true')).to.deep.equal([
      'EUR',
      'SEK',
    ]);
    expect(await codes('filter[isDeleted]=true&filter[isDeleted]=false')).to.have.length(4);
    expect(await codes('filter[DeletedAt][gte]=2026-03-15')).to.deep.equal(['PST']);
    expect(await codes('filter[DeletedAt][null]=false')).to.deep.equal(['OLD', 'PST']);
    expect(await codes('filter[DeletedAt][null]=true')).to.deep.equal(['EUR', 'SEK']);
    expect(await values('/api/v1/Countries?filter[IsDeleted]=true', 'CountryCode')).to.deep.equal([
      'YU',
    ]);

    const first = await admin.get('/api/v1/Currency?filter[IsDeleted]=true&limit=1');
    const [, next = ''] = /<([^>]+)>/.exec(first.headers.get('link') ?? '') ?? [];
    expect((await admin.get(next)).body.map((each: Listed) => each.Code)).to.deep.equal(['PST']);
  });

  it('orNull adds the records without a value to each filter of the same field', async () => {
    const day = 'filter[StartsAt][lte]=2026-01-20&filter[EndsAt][gt]=2026-01-20';

    expect(await promotions(day)).to.deep.equal(['B']);
    expect(
      await promotions(`${day}&filter[StartsAt][orNull]=true&filter[EndsAt][orNull]=true`),
    ).to.deep.equal(['A', 'B', 'C']);
    expect(await promotions(`${day}&filter[EndsAt][orNull]=false`)).to.deep.equal(['B']);
    expect(
      await promotions(
        'filter[EndsAt][gt]=2026-01-20&filter[EndsAt][lt]=2026-03-01&filter[EndsAt][orNull]=true',
      ),
    ).to.deep.equal(['A', 'B', 'C']);
    for (const alone of ['', '&filter[EndsAt][null]=true', '&filter[StartsAt]=2026-01-01']) {
      expectRefused(
        await admin.get(`/api/v1/Promotions?filter[EndsAt][orNull]=true${alone}`),
        400,
        'validation_failed',
        ['filter[EndsAt][orNull]'],
      );
    }
  });

  for (const { path, list } of lists) {
    const nullable = [...new Set(list.fields.values())].filter(({ isNullable }) => isNullable);
    if (nullable.length === 0) continue;

    it(`orNull of each field of ${path} that may be null finds the others beside those without a value`, async () => {
      const all = await read(`${path}?limit=1000&sort=${list.key.name}`);

      for (const field of nullable) {
        expect(operatorsOf(field)).to.include('orNull');
        const present = all.find(record => record[field.name] !== null)?.[field.name];
        if (present === undefined) continue;

        const equal = `filter[${field.name}]=${encodeURIComponent(String(present))}`;
        const found = await values(
          `${path}?limit=1000&sort=${list.key.name}&${equal}&filter[${field.name}][orNull]=true`,
          list.key.name,
        );
        const expected = all.filter(record => [present, null].includes(record[field.name] as null));
        expect(found, field.name).to.deep.equal(expected.map(record => record[list.key.name]));
      }
    });
  }

  it('a list of ids is filtered by one of its members, or by any of several', async () => {
    expect(await promotions('filter[EntityIds]=1')).to.deep.equal(['B', 'C']);
    expect(await promotions('filter[EntityIds]=2&filter[entityIds]=3')).to.deep.equal(['C', 'D']);
    expect(await promotions('filter[EntityIds]=4')).to.deep.equal([]);
    expect(await promotions('filter[EntityIds]=1', other)).to.deep.equal(['X']);
    const csv = await admin.get('/api/v1/Promotions?filter[EntityIds]=3', { Accept: 'text/csv' });
    expect(csv.body.split('\r\n')).to.have.length(3);
    for (const query of ['filter[EntityIds]=x', 'filter[EntityIds][gte]=1', 'sort=EntityIds']) {
      expect((await admin.get(`/api/v1/Promotions?${query}`)).status, query).to.equal(400);
    }
  });

  it('a filter by the ids of a record tells a caller of scope Self nothing about other entities', async () => {
    const self = await world.loginAs(world.acme, {
      permissions: ['pricing.read'],
      scope: 'Self',
      entityId: 1,
    });

    expect(await promotions('filter[EntityIds]=1', self)).to.deep.equal(['B', 'C']);
    expect(await promotions('filter[EntityIds]=2', self)).to.deep.equal([]);
    expect(await promotions('filter[EntityIds]=1&filter[EntityIds]=3', self)).to.deep.equal([
      'B',
      'C',
    ]);
  });

  it('prefix and contains find texts in any letter case, with one letter and with several', async () => {
    expect(await names('filter[Name][prefix]=n')).to.deep.equal([
      'Nordwind GmbH',
      'NORTHERN Lights',
    ]);
    expect(await names('filter[Name][prefix]=NORth')).to.deep.equal(['NORTHERN Lights']);
    expect(await names('filter[Name][contains]=R')).to.have.length(4);
    expect(await names('filter[Name][contains]=harbour')).to.deep.equal(['Blue Harbour Ltd']);
    expect(await names('filter[Name][prefix]=arbour')).to.deep.equal([]);

    const calls = '/api/v1/Activity?filter[ActivityCode]=7&filter[Comment][prefix]=CALL';
    expect(await values(calls, 'Comment')).to.have.length(2);
    expect(await values('/api/v1/Users?filter[Email][prefix]=ADMIN', 'Email')).to.have.length(1);
    expect(await values('/api/v1/Roles?filter[Name][contains]=BUY', 'Name')).to.deep.equal([
      'Buyer',
    ]);
  });

  it('a text is found by each spelling of its first letter, whatever the alphabet', async () => {
    const pairs = ['i İ', 'I İ', 'å Å', 'ß ẞ', 'ǆ ǅ', 'θ ϴ', 'ω Ω', 'я Я', 'é É', 'σ Σ', 'ａ Ａ'];
    for (const pair of pairs) {
      const [one = '', another = ''] = pair.split(' ');
      const { body } = await admin.post('/api/v1/OrderStatuses', { Name: `${one}zq` });
      const { body: second } = await admin.post('/api/v1/OrderStatuses', { Name: `${another}zq` });
      const ids = [body.Id, second.Id];

      for (const letter of [one, another]) {
        const query = `filter[Name][prefix]=${encodeURIComponent(`${letter}ZQ`)}`;
        const found = await values(`/api/v1/OrderStatuses?sort=Id&${query}`, 'Id');
        expect(found, pair).to.deep.equal(ids);
      }

      for (const id of ids) await admin.delete(`/api/v1/OrderStatuses/${id}`);
    }
  });

  it('q finds records that have each of its words, in any order and in different fields', async () => {
    const entry = { ActivityCode: 9, Comment: 'Called about order', Screen: 'Invoices' };
    await admin.post('/api/v1/Activity', entry);

    expect(await names('q=ltd%20blue')).to.deep.equal(['Blue Harbour Ltd']);
    expect(await names('q=lt%20%20%20BLU')).to.deep.equal(['Blue Harbour Ltd']);
    expect(await names('q=ltd%20nordwind')).to.deep.equal([]);
    expect(await values('/api/v1/Activity?q=invoice+called', 'ActivityCode')).to.deep.equal([9]);
    expect(await values('/api/v1/Users?q=acme+admin', 'Email')).to.have.length(1);
    expect(await codes('q=euro+E')).to.deep.equal(['EUR']);

    const many = await admin.get(`/api/v1/Entities?q=${'a+b'.repeat(11)}`);
    const words = Array.from({ length: 21 }, (_, i) => `w${i}`).join('+');
    expect(many.status).to.equal(200);
    expectRefused(await admin.get(`/api/v1/Entities?q=${words}`), 400, 'validation_failed', ['q']);
  });

  it('q finds what each of its words alone finds in common, short or long, in any script', async () => {
    const path = `/api/v1/Activity?limit=1000&sort=Id&filter[Screen]=${encodeURIComponent('İb')}`;
    const comments = ['İç Ürün 5%', 'iç ürün a_b', 'IÇ é ürün', 'ab c\\d Ürün', 'ΣΑΣ ας iç'];
    for (const Comment of comments) {
      await admin.post('/api/v1/Activity', { ActivityCode: 4, Comment, Screen: 'İb' });
    }
    const idsOf = (words: readonly string[], client: Client = admin) =>
      values(`${path}&q=${encodeURIComponent(words.join(' '))}`, 'Id', client);

    for (const words of [
      ['i', 'b', 'ü'],
      ['iç', 'ürün', 'İ'],
      ['5%', 'iç', 'Ü'],
      ['a_', '_b', 'ÜR'],
      ['\\d', 'c\\', 'ü', 'ÜRÜN'],
      ['é', 'É', 'ib'],
      ['ας', 'σα', 'i'],
    ]) {
      const alone = await Promise.all(words.map(word => idsOf([word])));
      const common = alone[0]?.filter(id => alone.every(ids => ids.includes(id))) ?? [];

      expect(common, words.join()).not.to.be.empty;
      expect(await idsOf(words), words.join()).to.deep.equal(common);
      expect(await idsOf(words, other), words.join()).to.be.empty;
    }
  });

  it('q with twenty words reads the texts of a record as often as q with one, where no index finds them', async () => {
    // In globex, so that the lists of acme stay below one page. Each comment is stored outside
    // of its row, so that the server counts each time that it is read.
    await sql(
      world.globex,
      `alter table activities alter comment set storage external;
       insert into activities (activity_code, comment, recorded_by, recorded_from)
       select 5, repeat('ab cd ef gh ij kl mn op qr st uv wx yz äö üå éè êë àá ', 70), 1, '127.0.0.1'
         from generate_series(1, 100)`,
    );
    const counted = async () => {
      const [counts = { scans: 0, blocks: 0 }] = await sql<{ scans: number; blocks: number }>(
        world.globex,
        `select (seq_scan + idx_scan)::int as scans,
                (toast_blks_read + toast_blks_hit)::int as blocks
           from pg_stat_user_tables join pg_statio_user_tables using (relid)
          where pg_stat_user_tables.relname = 'activities'`,
      );
      return counts;
    };
    const blocksOf = async (q: string): Promise<number> => {
      const before = await counted();
      const path = `/api/v1/Activity?sort=ActivityCode&q=${encodeURIComponent(q)}`;
      expect(await read(path, other)).to.be.empty;
      // a session reports its counts with a transaction that ends a second after the last report
      await eventually(async () => {
        await read('/api/v1/AuditLog?limit=1', other);
        return (await counted()).scans > before.scans;
      }, 30_000);
      return (await counted()).blocks - before.blocks;
    };

    const one = await blocksOf('zq');
    expect(one).to.be.at.least(100);
    const ascii = await blocksOf('ab cd ef gh ij kl mn op qr st uv wx yz a b c d e f zq');
    const others = await blocksOf('ä ö ü å é è ê ë à á äö üå éè êë àá Ä Ö Ü Å ý');
    expect(ascii).to.be.below(1.5 * one);
    expect(others).to.be.below(1.5 * one);
  });

  it('a date alone in a filter is that day in UTC', async () => {
    await sql(
      world.acme,
      `insert into order_statuses (name, created_at) values
         ('d1', '2026-01-30T23:59:59.999Z'), ('d2', '2026-01-31T00:00:00Z'),
         ('d3', '2026-01-31T23:59:59.9999Z'), ('d4', '2026-02-01T00:00:00Z')`,
    );
    const found = (query: string) =>
      values(`/api/v1/OrderStatuses?filter[Name][prefix]=D&sort=Name&${query}`, 'Name');

    expect(await found('filter[CreatedAt]=2026-01-31')).to.deep.equal(['d2', 'd3']);
    expect(await found('filter[CreatedAt][gte]=2026-01-31')).to.deep.equal(['d2', 'd3', 'd4']);
    expect(await found('filter[CreatedAt][gt]=2026-01-31')).to.deep.equal(['d4']);
    expect(await found('filter[CreatedAt][lt]=2026-01-31')).to.deep.equal(['d1']);
    expect(await found('filter[CreatedAt][lte]=2026-01-31')).to.deep.equal(['d1', 'd2', 'd3']);
    expect(await found('filter[CreatedAt][lte]=9999-12-31')).to.have.length(4);
    expect(await found('filter[CreatedAt][gte]=0001-01-01')).to.have.length(4);
  });

  it('a time in a query may have a plus sign that the client has not encoded', async () => {
    await sql(
      world.acme,
      `insert into order_statuses (name, created_at) values
         ('p1', '2026-01-31T10:59:59Z'), ('p2', '2026-01-31T11:00:00Z')`,
    );
    const found = (query: string) =>
      values(`/api/v1/OrderStatuses?filter[Name][prefix]=P&sort=Name&${query}`, 'Name');

    for (const plus of ['+', '%2B', '%20']) {
      for (const zone of ['01:00', '0100']) {
        const query = `filter[CreatedAt][gte]=2026-01-31T12:00:00${plus}${zone}`;
        expect(await found(query), query).to.deep.equal(['p2']);
      }
    }

    const usage = await admin.get('/api/v1/Usage?from=2026-01-31T12:00:00+01:00');
    expect(usage.status).to.equal(200);

    for (const time of ['2026-01-31T12:00:00 25:00', '2026-01-31T12:00:00  01:00']) {
      const query = `filter[CreatedAt]=${encodeURIComponent(time)}`;
      const refused = await admin.get(`/api/v1/OrderStatuses?${query}`);
      expect(refused.status, time).to.equal(400);
    }
  });

  it('the names that libraries give to the items of a list are values of one filter', async () => {
    for (const query of [
      'filter[Code][]=EUR&filter[Code][]=SEK',
      'filter[Code][0]=EUR&filter[Code][1]=SEK',
      'filter%5BCode%5D%5B%5D=EUR&filter[Code]=SEK',
      'filter[code][7]=EUR&filter[Code][]=SEK',
    ]) {
      expect(await codes(query), query).to.deep.equal(['EUR', 'SEK']);
    }

    const refused = await admin.get('/api/v1/Currency?filter=Code');
    expectRefused(refused, 400, 'validation_failed', ['filter']);
    expect(refused.body.errors.filter[0]).to.include('send filter[Field]=value');
  });

  it('a page at an offset has its place in Content-Range, and Link goes on behind it', async () => {
    const path = '/api/v1/SystemOptions?sort=Id&limit=3&offset=4';
    await sql(
      world.acme,
      `insert into system_options (system_option_type_id, value) select 5, 'v' || i from generate_series(1, 9) i`,
    );
    const all = await values('/api/v1/SystemOptions?sort=Id', 'Id');

    const page = await admin.get(path, { Prefer: 'count=exact' });
    const [, next = ''] = /<([^>]+)>/.exec(page.headers.get('link') ?? '') ?? [];
    const rest = await admin.get(next);
    const csv = await admin.get('/api/v1/SystemOptions?sort=Id&offset=8', { Accept: 'text/csv' });
    const behind = await admin.get('/api/v1/SystemOptions?sort=Id&limit=3&offset=10000', {
      Prefer: 'count=exact',
    });

    expect(page.body.map(({ Id }: { Id: number }) => Id)).to.deep.equal(all.slice(4, 7));
    expect(page.headers.get('content-range')).to.equal('items 4-6/10');
    expect(rest.body.map(({ Id }: { Id: number }) => Id)).to.deep.equal(all.slice(7, 10));
    expect(csv.body.split('\r\n')).to.have.length(4);
    expect(behind.body).to.deep.equal([]);
    expect(behind.headers.get('content-range')).to.equal('items */10');
  });

  it('an offset above 10,000, or beside a cursor any but 0, is refused, and the refusal names the cursor', async () => {
    const far = await admin.get('/api/v1/Entities?limit=10&offset=10001');
    const first = await admin.get('/api/v1/Entities?limit=1&sort=Id');
    const [, next = ''] = /<([^>]+)>/.exec(first.headers.get('link') ?? '') ?? [];

    expectRefused(far, 400, 'validation_failed', ['offset']);
    expect(far.body.errors.offset[0]).to.include('cursor');
    expect(far.body.errorCodes.offset).to.deep.equal([{ code: 'too_large', max: 10_000 }]);
    expectRefused(await admin.get(`${next}&offset=1`), 400, 'validation_failed', ['offset']);
    expect((await admin.get(`${next}&offset=0`)).body).to.deep.equal((await admin.get(next)).body);
  });

  it('a prefix is found in every letter case, also by a letter that has several capitals', async () => {
    const all = Array.from({ length: 0x1f000 }, (_, code) => String.fromCodePoint(code)).filter(
      letter => /^\p{L}$/u.test(letter) && letter.normalize('NFC') === letter,
    );
    const capitals = await sql<{ capital: string; small: string }>(
      world.acme,
      `select l as capital, lower(l) as small from json_array_elements_text('${JSON.stringify(all)}') as l where lower(l) <> l`,
    );
    const irregular = capitals.filter(({ capital, small }) => small.toUpperCase() !== capital);
    expect(irregular.length).to.be.within(25, 60);
    const named = irregular.flatMap(({ capital, small }) => [`${capital}zz9`, `${small}zz9`]);
    await sql(
      world.acme,
      `insert into entities (name, entity_type)
       select distinct n, 'customer' from json_array_elements_text('${JSON.stringify(named)}') as n`,
    );

    for (const { capital, small } of irregular) {
      for (const letter of [capital, small]) {
        const prefix = encodeURIComponent(`${letter}zz`);
        const { body } = await admin.get(
          `/api/v1/Entities?filter[Name][prefix]=${prefix}&sort=Name`,
        );
        const names = body.map(({ Name }: { Name: string }) => Name);
        expect(names, letter).to.include.members([`${capital}zz9`, `${small}zz9`]);
      }
    }
  });
});

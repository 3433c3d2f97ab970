import { expect } from 'chai';
import type { ApiResponse } from '../../support/client.ts';
import { settle } from '../../support/settle.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

interface Currency {
  Id: number;
  Code: string;
}
const currencies = '/api/v1/Currency';

function codes({ status, body }: ApiResponse): string[] {
  expect(status, JSON.stringify(body)).to.equal(200);
  return (body as Currency[]).map(({ Code }) => Code);
}

function next({ headers }: ApiResponse): string {
  return /^<(\/api\/v1\/[^>]+)>; rel="next"$/.exec(headers.get('link') ?? '')?.[1] ?? '';
}

describe('list parameters', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  before(async () => {
    await sql(
      world.acme,
      `insert into currencies (code, name, symbol, decimal_places, is_deleted, deleted_at)
       select code, name, symbol, places, deleted, case when deleted then now() end
         from (values ('EUR', 'Euro', '€', 2, false), ('DKK', 'Danske 100% krone', 'kr', 2, false),
                      ('JPY', 'Yen_円', null, 0, false), ('SEK', 'Svensk krona', 'kr', 2, false),
                      ('ZZZ', 'Euro of old', null, 2, true)) as v (code, name, symbol, places, deleted)`,
    );
    await sql(
      world.globex,
      `insert into currencies (code, name) values ('GBP', 'Pound of globex')`,
    );
    await sql(
      world.acme,
      `insert into entities (name, entity_type) values ('One', 'customer'), ('Two', 'supplier'), ('Three', 'customer')`,
    );
  });

  const list = async (query: string) => codes(await admin.get(`${currencies}?${query}`));

  it('a list is sorted by the fields of sort, null after every value, and then by its key', async () => {
    expect(await list('sort=-Code')).to.deep.equal(['SEK', 'JPY', 'EUR', 'DKK']);
    expect(await list('sort=symbol,-Code')).to.deep.equal(['SEK', 'DKK', 'EUR', 'JPY']);
    expect(await list('sort=-Symbol')).to.deep.equal(['JPY', 'EUR', 'SEK', 'DKK']);
  });

  it('a list of a library, which sends a parameter several times, means the same as one with commas', async () => {
    for (const query of [
      'sort=symbol&sort=-Code',
      'sort[]=symbol&sort[]=-Code',
      'sort%5B0%5D=symbol&sort%5B1%5D=-Code',
      'sort=symbol&sort[]=-Code',
    ]) {
      expect(await list(query), query).to.deep.equal(['SEK', 'DKK', 'EUR', 'JPY']);
      const first = await admin.get(`${currencies}?${query}&limit=3`);
      expect(codes(await admin.get(next(first))), query).to.deep.equal(['JPY']);
    }

    await settle(world.acme);
    for (const [path, parameter] of [
      ['/api/v1/AuditLog?limit=50&sort=Id', 'resource'],
      ['/api/v1/AuditLog?limit=50', 'resource'],
      ['/api/v1/Changes?limit=50', 'resource'],
    ] as const) {
      const commas = await admin.get(`${path}&${parameter}=Entity,Countries`);
      expect(commas.status).to.equal(200);
      for (const name of [parameter, `${parameter}[]`]) {
        const repeated = await admin.get(`${path}&${name}=Entity&${name}=Countries`);
        expect(repeated.body, `${path} ${name}`).to.deep.equal(commas.body);
        expect(repeated.body.length, `${path} ${name}`).to.be.above(0);
      }
    }

    const { body } = await admin.get('/api/v1/Changes?include[]=record&include[]=etag&limit=1');
    expect(body[0]).to.include.keys('Record', 'ETag');
    const audited = await admin.get('/api/v1/AuditLog?include=etag&include=user&limit=1');
    expect(audited.body[0]).to.include.keys('ETag', 'UserName');
  });

  it('filters of one field are alternatives, and filters of different fields apply together', async () => {
    expect(await list('filter[Code]=EUR&filter[Code]=SEK&filter[code]=ZZZ')).to.deep.equal([
      'EUR',
      'SEK',
    ]);
    expect(
      await list('filter[DecimalPlaces][gte]=2&filter[Symbol]=kr&filter[Code][lt]=E'),
    ).to.deep.equal(['DKK']);
    expect(await list('filter[Symbol][null]=true')).to.deep.equal(['JPY']);
    expect(await list('filter[Name][contains]=kron&filter[Name][prefix]=Sv')).to.deep.equal([
      'SEK',
    ]);
  });

  it('the wildcards of SQL are plain characters in filters and in q', async () => {
    expect(await list('filter[Name][contains]=100%25%20')).to.deep.equal(['DKK']);
    expect(await list('filter[Name][contains]=%25')).to.deep.equal(['DKK']);
    expect(await list('filter[Name][prefix]=%25')).to.deep.equal([]);
    expect(await list('q=n_')).to.deep.equal(['JPY']);
    expect(await list('q=%5C')).to.deep.equal([]);
    expect(await list(`q=${encodeURIComponent("' or true --")}`)).to.deep.equal([]);
  });

  it('q finds a text in codes and names in any letter case, and an empty q finds every record', async () => {
    expect(await list('q=EURO')).to.deep.equal(['EUR']);
    expect(await list('q=kr')).to.deep.equal(['DKK', 'SEK']);
    expect(await list('q=RE')).to.deep.equal([]); // the end of a code and the begin of its name
    expect(await list('q=')).to.deep.equal(['DKK', 'EUR', 'JPY', 'SEK']);
  });

  it('q finds I, i and İ by each of them, whether an index serves the search or not', async () => {
    const records = {
      UnitsOfMeasure: { Code: 'QİLO', Name: 'x' },
      Entities: { Name: 'Qİlo', EntityType: 'customer' },
    };

    for (const [name, record] of Object.entries(records)) {
      const { headers } = await admin.post(`/api/v1/${name}`, record);
      for (const q of ['qi', 'QIL', 'Qİ', 'qİlo']) {
        expect(
          (await admin.get(`/api/v1/${name}?q=${encodeURIComponent(q)}`)).body,
          `${name} ${q}`,
        ).to.have.length(1);
      }
      expect((await admin.delete(headers.get('location') ?? '')).status).to.equal(204);
    }
  });

  it('the smallest and the largest int are values of filters and of cursors', async () => {
    const bounds = [-(2 ** 31), 2 ** 31 - 1];
    for (const Weighting of [...bounds, ...bounds]) {
      await admin.post('/api/v1/OrderStatuses', { Name: 'x', Weighting });
    }

    const read: number[] = [];
    for (let path = '/api/v1/OrderStatuses?sort=Weighting&limit=1'; path; ) {
      const page = await admin.get(path);
      expect(page.status).to.equal(200);
      read.push(page.body[0].Weighting);
      path = next(page);
    }

    expect(read).to.deep.equal([bounds[0], bounds[0], bounds[1], bounds[1]]);
    for (const bound of bounds) {
      expect(
        (await admin.get(`/api/v1/OrderStatuses?filter[Weighting]=${bound}`)).body,
      ).to.have.length(2);
    }
  });

  it('a page names the next one in Link, and the last page names none', async () => {
    const first = await admin.get(`${currencies}?limit=2&sort=-Code&ignored=1`);
    expect(codes(first)).to.deep.equal(['SEK', 'JPY']);
    expect(next(first)).to.match(/^\/api\/v1\/Currency\?limit=2&sort=-Code&after=[\w-]+$/);
    const second = await admin.get(next(first));
    expect(codes(second)).to.deep.equal(['EUR', 'DKK']);
    expect(second.headers.has('link')).to.equal(false);
  });

  it('a marked record appears in pages, filters and q only with includeDeleted, also behind a cursor', async () => {
    expect(await list('q=Euro&includeDeleted=false')).to.deep.equal(['EUR']);
    expect(await list('filter[Code]=ZZZ')).to.deep.equal([]);
    const first = await admin.get(`${currencies}?includeDeleted=true&sort=Code&limit=4`);
    expect(codes(await admin.get(next(first)))).to.deep.equal(['ZZZ']);
    const changed = await admin.get(
      next(first).replace('includeDeleted=true', 'includeDeleted=false'),
    );
    expect(Object.keys(changed.body.errors)).to.deep.equal(['after']);
  });

  it('a cursor is refused with 400 for another list, sort, filter or search text, and when it is no cursor', async () => {
    const first = await admin.get(`${currencies}?limit=1&sort=Code&filter[DecimalPlaces]=2&q=k`);
    const path = next(first);
    const after = new URL(path, world.url).searchParams.get('after') ?? '';

    const forged = (...values: unknown[]) =>
      Buffer.from(
        JSON.stringify([JSON.parse(Buffer.from(after, 'base64url').toString())[0], ...values]),
      ).toString('base64url');

    expect(codes(await admin.get(path))).to.deep.equal(['SEK']);

    for (const other of [
      path.replace('sort=Code', 'sort=-Code'),
      path.replace('=2&', '=0&'),
      path.replace('q=k', 'q=kr'),
      path.replace('Currency', 'TaxCodes').replace(/filter[^&]*&/, ''),
      path
        .replace('Currency', 'Entities')
        .replace(/&(filter|q)[^&]*/g, '')
        .replace('=Code', '=Name'),
      path.replace(after, forged('DKK')),
      path.replace(after, forged('DKK', "1' or true")),
      path.replace(after, forged(null, '1')),
      path.replace(after, forged({}, '1')),
      path.replace(after, '12'),
      path.replace(after, 'bnVsbA'),
      path.replace(after, ''),
    ]) {
      const { status, body } = await admin.get(other);
      expect(status, other).to.equal(400);
      expect(body.code).to.equal('validation_failed');
      expect(Object.keys(body.errors), other).to.deep.equal(['after']);
    }
  });

  it('a forged cursor with a time that PostgreSQL does not have is refused with 400', async () => {
    const path = next(await admin.get(`${currencies}?limit=1&sort=CreatedAt`));
    const after = new URL(path, world.url).searchParams.get('after') ?? '';
    const [binding, , key] = JSON.parse(Buffer.from(after, 'base64url').toString());
    for (const time of ['0000-05-05 00:00:00+00', '2026-02-29 00:00:00+00', 'infinity']) {
      const forged = Buffer.from(JSON.stringify([binding, time, key])).toString('base64url');
      const { status, body } = await admin.get(path.replace(after, forged));
      expect(status, time).to.equal(400);
      expect(Object.keys(body.errors ?? {}), time).to.deep.equal(['after']);
    }
  });

  it('an unknown field, an unknown operator and an invalid value are refused with 400, which names the parameter', async () => {
    for (const [parameter, code] of [
      ['filter[Nothing]=1', 'unknown'],
      ['filter[toString]=1', 'unknown'],
      ['filter=1', 'unknown'],
      ['filter[Code][like]=1', 'unknown'],
      ['filter[Code][equal]=EUR', 'unknown'],
      ['filter[Code][gte][x]=1', 'unknown'],
      ['filter[Code][gte][]=1', 'unknown'],
      ['filter[Symbol][orNull]=true', 'ambiguous'],
      ['filter[CreatedAt][gte]=2026-02-30', 'wrong_format'],
      ['filter[CreatedAt][gte]=2026-1-3', 'wrong_format'],
      ['filter[IsDeleted][gt]=true', 'unknown'],
      ['filter[Code][null]=true', 'unknown'],
      ['filter[Id]=one', 'wrong_type'],
      ['filter[Id]=99999999999', 'out_of_range'],
      ['filter[DecimalPlaces]=2.5', 'wrong_type'],
      ['filter[IsDeleted]=yes', 'not_allowed'],
      ['filter[CreatedAt][gte]=yesterday', 'wrong_format'],
      ['filter[CreatedAt]=0000-01-01T00:00:00Z', 'out_of_range'],
      ['filter[Code][prefix]=%00', 'invalid_text'],
      ['q=%00', 'invalid_text'],
      ['q=R%01E', 'invalid_text'],
      ['sort=Nothing', 'unknown'],
      ['sort=', 'unknown'],
      ['sort=Code,-Code', 'ambiguous'],
      ['sort=--Code', 'unknown'],
      ['limit=0', 'wrong_format'],
      ['limit=ten', 'wrong_format'],
      ['offset=-1', 'wrong_format'],
      ['offset=1.5', 'wrong_format'],
      ['offset=', 'wrong_format'],
      ['offset=10001', 'too_large'],
      ['offset=1&offset=2', 'ambiguous'],
      ['limit=1&limit=2', 'ambiguous'],
    ] as const) {
      const { status, body } = await admin.get(`${currencies}?${parameter}`);
      expect(status, parameter).to.equal(400);
      expect(body.code).to.equal('validation_failed');
      const [name = ''] = parameter.split('=');
      expect(body.errorCodes[name]?.[0].code, parameter).to.equal(code);
    }

    const sorted = await admin.get('/api/v1/SystemOptions?sort=Value');
    expect(sorted.body.errorCodes.sort[0].values).to.include('IsActive').and.not.include('Value');
  });

  it('a parameter of a list that takes one plain value is refused with 400 in brackets, also on a plain list', async () => {
    for (const path of [currencies, '/api/v1/Activity', '/api/v1/Entities']) {
      for (const parameter of [
        'limit[]=1',
        'limit=1&limit[]=1',
        'after[0]=1',
        'offset[]=1',
        'sort[Id]=asc',
        'sort[][]=Id',
        'q[a]=e',
        'bom[]=true',
      ]) {
        const { status, body } = await admin.get(`${path}?${parameter}`);
        expect(status, `${path}?${parameter}`).to.equal(400);
        expect(body.code, `${path}?${parameter}`).to.equal('validation_failed');
        expect(Object.values(body.errorCodes)).to.deep.equal([[{ code: 'ambiguous' }]]);
      }
    }

    expect((await admin.get(`${currencies}?other[]=1`)).status).to.equal(200);
  });

  it('entities are sorted and filtered by the titles of their statuses, page by page', async () => {
    const globex = await world.login(world.globex);
    await sql(
      world.globex,
      `insert into entity_statuses (title) values ('Absent'), ('Zealous');
       insert into entities (name, entity_type, status_id)
       select 'Titled ' || i, 'customer', s.id from generate_series(1, 40) i, entity_statuses s`,
    );

    const entities = '/api/v1/Entities';
    const titles: string[] = [];
    const ids: number[] = [];
    for (let path = `${entities}?sort=-StatusTitle,Id&limit=30`; path !== ''; ) {
      const page = await globex.get(path);
      expect(page.status).to.equal(200);
      titles.push(...page.body.map(({ StatusTitle }: { StatusTitle: string }) => StatusTitle));
      ids.push(...page.body.map(({ Id }: { Id: number }) => Id));
      path = next(page);
    }

    expect(titles.length).to.equal(200);
    expect(new Set(ids).size).to.equal(200);
    expect(titles).to.deep.equal(titles.toSorted().reverse());

    const matching = async (query: string) =>
      (await globex.get(`${entities}?${query}&limit=1000`)).body.length;
    expect(await matching('filter[StatusTitle]=Zealous')).to.equal(40);
    expect(await matching('filter[StatusTitle]=Zealous&filter[StatusTitle]=Absent')).to.equal(80);
    expect(await matching('filter[StatusTitle][prefix]=Ab&filter[Name]=Titled 7')).to.equal(1);
    expect(await matching('filter[StatusTitle][lt]=Absent')).to.equal(0);
    expect(await matching(`filter[StatusTitle]=${encodeURIComponent("' or true --")}`)).to.equal(0);
  });

  it('filters by time compare the milliseconds that responses show', async () => {
    await sql(
      world.acme,
      `insert into units_of_measure (code, name, created_at)
       select 'U' || i, 'Unit', timestamptz '2026-01-31 12:00:00.123Z' + i * interval '400 microseconds'
         from generate_series(0, 4) i`,
    );

    const units = async (query: string) =>
      codes(await admin.get(`/api/v1/UnitsOfMeasure?${query}`));
    const at = '2026-01-31T12:00:00.123Z';

    expect(await units(`filter[CreatedAt]=${at}`)).to.deep.equal(['U0', 'U1', 'U2']);
    expect(await units(`filter[CreatedAt][gt]=${at}`)).to.deep.equal(['U3', 'U4']);
    expect(await units(`filter[CreatedAt][lte]=${at}`)).to.deep.equal(['U0', 'U1', 'U2']);
    expect(await units(`filter[CreatedAt][gte]=2026-01-31T13:00:00.124%2B01:00`)).to.deep.equal([
      'U3',
      'U4',
    ]);
    expect(await units(`filter[CreatedAt][lte]=9999-12-31T23:59:59.999Z`)).to.have.length(5);
  });

  it('an empty page is 200, and an empty plain list of reference data stays 404', async () => {
    expect((await admin.get('/api/v1/TaxCodes')).status).to.equal(404);
    for (const query of ['limit=5', 'sort=Code', 'filter[IsActive]=true', 'q=vat']) {
      const { status, body } = await admin.get(`/api/v1/TaxCodes?${query}`);
      expect({ status, body }, query).to.deep.equal({ status: 200, body: [] });
    }
  });

  it('limit, and in Entities a number as after, have their meaning of the plain list, and return no Link', async () => {
    const plain = await admin.get('/api/v1/Entities?limit=1&after=1');
    expect(plain.body.map(({ Id }: { Id: number }) => Id)).to.deep.equal([2]);

    for (const path of ['/api/v1/Entities?limit=1', '/api/v1/AuditLog?limit=1&resource=Currency']) {
      expect((await admin.get(path)).headers.has('link'), path).to.equal(false);
    }

    const sorted = await admin.get('/api/v1/Entities?limit=2&sort=-Id');
    const cursor = new URL(next(sorted), world.url).searchParams.get('after');
    expect((await admin.get(`/api/v1/Entities?sort=-Id&after=${cursor}`)).body).to.have.length(1);

    const changes = await admin.get('/api/v1/AuditLog?limit=2&resource=Currency&sort=-CreatedAt');
    expect(changes.body.map(({ After }: { After: Currency }) => After.Code)).to.have.length(2);
    expect(next(changes)).to.include('resource=Currency');
    expect((await admin.get(next(changes))).body).to.have.length(2);
  });

  it('a caller of scope Self gets only its own records, also by filters, q and the cursor of another user', async () => {
    const self = await world.loginAs(world.acme, {
      permissions: ['full.read'],
      scope: 'Self',
      entityId: 2,
    });
    const ids = async (path: string) =>
      (await self.get(path)).body.map(({ Id }: { Id: number }) => Id);
    const first = await admin.get('/api/v1/Entities?limit=1&sort=Id');

    expect(await ids('/api/v1/Entities?sort=-Name')).to.deep.equal([2]);
    expect(await ids('/api/v1/Entities?filter[Id]=1&filter[Id]=2')).to.deep.equal([2]);
    expect(await ids('/api/v1/Entities?q=e')).to.deep.equal([]);
    expect(await ids(next(first))).to.deep.equal([2]);

    for (const EntityId of [1, 2]) {
      await admin.post('/api/v1/Activity', { ActivityCode: 7, EntityId });
    }
    const own = await self.get('/api/v1/Activity?filter[ActivityCode]=7&sort=Id');
    expect(own.body.map(({ EntityId }: { EntityId: number }) => EntityId)).to.deep.equal([2]);

    expect(
      (await self.get('/api/v1/AuditLog?sort=Id&limit=1000')).body.map(
        (entry: { Key: string }) => entry.Key,
      ),
    ).to.deep.equal(['2']);
  });

  it('a page of another tenant is never returned, and a page needs the permission of its list', async () => {
    const other = await world.login(world.globex);
    const first = await admin.get(`${currencies}?limit=1&sort=Code`);
    expect(codes(await other.get(next(first)))).to.deep.equal(['GBP']);
    expect((await world.anonymous.get(next(first))).status).to.equal(403);
    const reader = await world.loginAs(world.acme, { permissions: [] });
    expect((await reader.get('/api/v1/Activity?sort=Id')).status).to.equal(403);
  });

  it('a page is read anew for each request, and the response is 304 while If-None-Match has its ETag', async () => {
    const path = `${currencies}?limit=1&sort=-Code`;
    const { headers } = await admin.get(path);
    const tag = headers.get('etag') ?? '';
    expect((await admin.get(path, { 'If-None-Match': tag })).status).to.equal(304);

    // Changes the currency outside of the service.
    await sql(world.acme, `update currencies set name = 'Krona' where code = 'SEK'`);
    const changed = await admin.get(path, { 'If-None-Match': tag });
    expect(changed.body[0].Name).to.equal('Krona');
    expect((await admin.get(currencies)).status).to.equal(200);
    expect(codes(await admin.get(currencies))).to.have.length(4);
    await sql(world.acme, `update currencies set name = 'Svensk krona' where code = 'SEK'`);
  });

  it('strict handling accepts the parameters of a list and refuses others', async () => {
    const strict = { Prefer: 'handling=strict' };

    const known = await admin.get(
      `${currencies}?filter[Code]=EUR&sort=Code&limit=1&q=e&includeDeleted=true`,
      strict,
    );
    expect(known.status).to.equal(200);

    const unknown = await admin.get(`${currencies}?filters[Code]=EUR`, strict);
    expect(Object.keys(unknown.body.errors)).to.deep.equal(['filters[Code]']);
    const single = await admin.get(`${currencies}/1?sort=Code`, strict);
    expect(Object.keys(single.body.errors)).to.deep.equal(['sort']);
  });

  it('a list returns all records without limit, and at most 1,000 with a larger one', async () => {
    await sql(
      world.acme,
      `insert into system_options (system_option_type_id, value) select i % 3 + 1, 'v' || i from generate_series(1, 1500) i`,
    );
    expect((await admin.get('/api/v1/SystemOptions?sort=-Id')).body).to.have.length(1_500);
    const page = await admin.get('/api/v1/SystemOptions?sort=-Id&limit=5000');
    expect(page.body).to.have.length(1_000);
    expect((await admin.get(next(page))).body).to.have.length(500);
  });
});

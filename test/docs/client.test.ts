import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import createClient from 'openapi-fetch';
import openapiTS, { astToString, COMMENT_HEADER } from 'openapi-typescript';
import type { components, paths } from '../../clients/typescript/src/api.ts';
import { type Calls, createCalls } from '../../clients/typescript/src/calls.ts';
import { openApiText } from '../../src/service/pages/openapi-document.ts';
import { routes } from '../support/contract.ts';
import { useWorld } from '../support/world.ts';

type Schemas = components['schemas'];

describe('client generated from the OpenAPI document', () => {
  const world = useWorld();
  let api: Calls;
  let tokens: Schemas['LoginResponse'] | undefined;

  function sendToken(request: Request): Promise<Response> {
    if (tokens && !request.headers.has('X-Tenant')) {
      request.headers.set('Authorization', `Bearer ${tokens.accessToken}`);
    }
    return fetch(request);
  }

  before(() => {
    api = createCalls({ baseUrl: world.url, send: sendToken });
  });

  it('the committed types match the document; if not, run npm run -s openapi:types', async () => {
    const committed = await readFile(
      new URL('../../clients/typescript/src/api.ts', import.meta.url),
      'utf8',
    );
    const types = await openapiTS(openApiText(routes), { defaultNonNullable: false, silent: true });
    expect(
      `${COMMENT_HEADER}${astToString(types)}` === committed,
      'clients/typescript/src/api.ts is out of date',
    ).to.equal(true);
  });

  it('openapi-fetch sends several values of a filter, operators and a sort as the service reads them', async () => {
    const admin = await world.login(world.acme);
    for (const [Code, Name] of [
      ['SEK', 'Krona'],
      ['DKK', 'Krone'],
      ['ISK', 'Iceland'],
    ]) {
      await admin.post('/api/v1/Currency', { Code, Name });
    }
    const headers = { Authorization: `Bearer ${admin.tokens?.accessToken}` };
    const client = createClient<paths>({ baseUrl: world.url, headers });

    const query = {
      sort: ['-Name' as const, 'Id' as const],
      'filter[Code]': ['SEK', 'DKK', 'ISK'],
      'filter[Name][prefix]': 'kr',
      'filter[DeletedAt][null]': true,
      includeDeleted: true,
    };
    const found = await client.GET('/api/v1/Currency', { params: { query } });

    expect(found.data?.map(({ Code }) => Code)).to.deep.equal(['DKK', 'SEK']);
  });

  // Half of this test is that it compiles: it reads every field by its generated type, without
  // a type assertion.
  it('a generated client sets up data, uses a promotion, reads the audit log and logs out', async () => {
    const header = { 'X-Tenant': world.acme.guid };
    const { email, password } = world.acme.admin;

    const login = await api.POST('/api/v1/auth/login', {
      params: { header },
      body: { email, password },
    });
    tokens = dataOf(login);
    expect(tokens.entityType).to.equal(null);

    const me = dataOf(await api.GET('/api/v1/auth/me'));
    expect(me.role).to.equal('Administrator');
    expect(me.scope).to.equal('All');
    expect(me.tenantGuid).to.equal(world.acme.guid);

    const euro = dataOf(
      await api.POST('/api/v1/Currency', { body: { Code: 'EUR', Name: 'Euro', Symbol: '€' } }),
    );
    expect(euro.DecimalPlaces).to.equal(2);

    for (const body of [
      { CountryCode: 'DE', CountryName: 'Germany' },
      { CountryCode: 'AT', CountryName: 'Austria' },
    ]) {
      dataOf(await api.POST('/api/v1/Countries', { body }));
    }

    const unit = dataOf(
      await api.POST('/api/v1/UnitsOfMeasure', {
        body: { Code: 'KG/M', Name: 'Kilogram per metre' },
      }),
    );
    const byCode = await api.GET('/api/v1/UnitsOfMeasure/code/{code}', {
      params: { path: { code: 'kg/m' } },
    });
    expect(dataOf(byCode)).to.deep.equal(unit);

    const vat = dataOf(
      await api.POST('/api/v1/TaxCodes', { body: { Code: 'VAT', Name: 'Standard', Rate: 19 } }),
    );
    const changed = { Code: 'VAT', Name: 'Standard', Rate: 20.5, IsActive: vat.IsActive };
    const put = await api.PUT('/api/v1/TaxCodes/{id}', {
      params: { path: { id: vat.Id } },
      body: changed,
    });
    expect(dataOf(put)).to.deep.equal({ ...vat, Rate: 20.5 });

    const customers: number[] = [];
    for (let n = 1; n <= 7; n++) {
      const body = {
        Name: `Customer ${n}`,
        EntityType: 'customer',
        CurrencyId: euro.Id,
        CountryCode: 'DE',
      } as const;
      const entity = dataOf(await api.POST('/api/v1/Entities', { body }));
      expect(entity.StatusTitle).to.equal('Prospect');
      customers.push(entity.Id);
    }

    const [first = 0, second = 0] = customers;
    const promotion = dataOf(
      await api.POST('/api/v1/Promotions', {
        body: {
          PromoCode: 'WELCOME',
          Name: 'Welcome',
          DiscountType: 'Amount',
          DiscountValue: 5,
          CurrencyId: euro.Id,
          EntityIds: [first],
          EndsAt: '2090-01-01T00:00:00Z',
        },
      }),
    );
    const at = (entityId: number) => ({ params: { path: { id: promotion.Id, entityId } } });

    const use = dataOf(await api.POST('/api/v1/Promotions/{id}/entity/{entityId}/used', at(first)));
    expect(use.Used).to.equal(true);

    const again = await api.POST('/api/v1/Promotions/{id}/entity/{entityId}/used', at(first));
    expect(again.error?.code).to.equal('duplicate');

    const other = await api.GET('/api/v1/Promotions/{id}/entity/{entityId}/used', at(second));
    expect(dataOf(other).Used).to.equal(false);

    for (const entityId of customers) {
      const body = {
        ActivityCode: 10,
        EntityId: entityId,
        Comment: 'Called\nand sold',
        Screen: 'Orders',
      };
      expect(dataOf(await api.POST('/api/v1/Activity', { body })).IPAddress).to.be.a('string');
    }

    expect(await allEntities(api, 3)).to.deep.equal(customers);
    const newest = dataOf(await api.GET('/api/v1/Activity', { params: { query: { limit: 2 } } }));
    expect(newest.map(({ EntityId }) => EntityId)).to.deep.equal(customers.slice(-2).reverse());
    const ofOne = dataOf(
      await api.GET('/api/v1/Activity', { params: { query: { entityId: first } } }),
    );
    expect(ofOne).to.have.length(1);

    const wrong = await api.POST('/api/v1/Countries', {
      body: { CountryCode: 'de', CountryName: 'Deutschland' },
    });
    expect(wrong.response.status).to.equal(400);
    expect(wrong.error?.code).to.equal('duplicate');

    const log = dataOf(
      await api.GET('/api/v1/AuditLog', { params: { query: { resource: 'TaxCode', limit: 10 } } }),
    );
    expect(log.map(({ Action, Key }) => [Action, Key])).to.deep.equal([
      ['update', String(vat.Id)],
      ['create', String(vat.Id)],
    ]);

    const { refreshToken } = tokens;
    tokens = dataOf(
      await api.POST('/api/v1/auth/refresh', { params: { header }, body: { refreshToken } }),
    );
    expect(tokens.refreshToken).not.to.equal(refreshToken);

    dataOf(await api.GET('/api/v1/auth/me'));
    const logout = await api.POST('/api/v1/auth/logout');
    expect(logout.response.status).to.equal(204);
    expect(logout.error).to.equal(undefined);
    expect((await api.GET('/api/v1/auth/me')).error?.code).to.equal('invalid_token');
  });

  it('the generated types reject input that the service would refuse', () => {
    // Never called. The compiler reports an unused @ts-expect-error.
    const mistakes = () => [
      // @ts-expect-error a field is missing
      api.POST('/api/v1/Countries', { body: { CountryCode: 'DE' } }),
      // @ts-expect-error a number is not a string
      api.POST('/api/v1/UnitsOfMeasure', { body: { Code: 5, Name: 'Five' } }),
      // @ts-expect-error not an entity type
      api.POST('/api/v1/Entities', { body: { Name: 'X', EntityType: 'partner' } }),
      // @ts-expect-error an id is a number
      api.GET('/api/v1/TaxCodes/{id}', { params: { path: { id: 'VAT' } } }),
      // @ts-expect-error login needs X-Tenant
      api.POST('/api/v1/auth/login', { body: { email: 'a@b.test', password: 'x' } }),
      // @ts-expect-error an activity cannot be changed
      api.PUT('/api/v1/Activity/{id}', { params: { path: { id: 1 } }, body: {} }),
      // @ts-expect-error no such path
      api.GET('/api/v1/countries'),
    ];

    expect(mistakes).to.be.a('function');
  });
});

/**
 * The data of a successful result.
 * @throws {Error} when the response is a problem
 */
function dataOf<Data>({
  data,
  error,
  response,
}: {
  data?: Data;
  error?: unknown;
  response: Response;
}): Data {
  if (data === undefined) throw new Error(`${response.status} ${JSON.stringify(error)}`);
  return data;
}

/** The ids of all entities, read page by page until a page is empty. */
async function allEntities(api: Calls, limit: number): Promise<number[]> {
  const ids: number[] = [];
  for (;;) {
    const after = ids.at(-1);
    const query = { limit, ...(after === undefined ? {} : { after }) };
    const page = dataOf(await api.GET('/api/v1/Entities', { params: { query } }));
    if (page.length === 0) return ids;
    expect(page.length).to.be.at.most(limit);
    ids.push(...page.map(({ Id }) => Id));
  }
}

import { expect } from 'chai';
import { resources } from '../../../src/sales/resources/index.ts';
import type { ApiResponse } from '../../support/client.ts';
import { routes } from '../../support/contract.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { createReferences, type Example, examples } from './examples.ts';
import { expectRefused, newestAudit } from './expect.ts';
import { type References, uniqueCurrencyCode } from './field-values.ts';

type Body = Record<string, unknown>;

const csv = { 'Content-Type': 'text/csv' };
const ofRole = { Name: 'taken', Permissions: 'wrong_type' };
const codesOf = ({ body }: ApiResponse): Record<string, string> =>
  Object.fromEntries(
    Object.entries(body.errorCodes as Record<string, { code: string }[]>).map(
      ([field, [first]]) => [field, first?.code ?? ''],
    ),
  );

describe('validation in one round', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let refs: References;

  before(async () => {
    refs = await createReferences(admin);
  });

  const nowhere = { StatusId: 99_999, CurrencyId: 99_999, CountryCode: 'nowhere' };
  const unknown = {
    StatusId: 'unknown_reference',
    CurrencyId: 'unknown_reference',
    CountryCode: 'unknown_reference',
  };
  const period = { StartsAt: '2026-02-01T00:00:00Z', EndsAt: '2026-01-01T00:00:00Z' };

  it('an entity with three unknown references is refused with three errors, by POST, PUT and PATCH', async () => {
    const entity = { Name: 'Three', EntityType: 'customer' };
    const { body } = await admin.post('/api/v1/Entities', entity);
    const path = `/api/v1/Entities/${body.Id}`;
    const audited = await newestAudit(admin);

    const responses = [
      await admin.post('/api/v1/Entities', { ...entity, ...nowhere }),
      await admin.put(path, { ...entity, ...nowhere }),
      await admin.patch(path, nowhere),
    ];

    for (const response of responses) {
      expectRefused(response, 400, 'validation_failed');
      expect(codesOf(response)).to.deep.equal(unknown);
    }
    expect(await newestAudit(admin)).to.equal(audited);
  });

  it('fields that the contract refuses and references that do not exist are errors of one response', async () => {
    const { body } = await admin.post('/api/v1/Entities', { Name: 'All', EntityType: 'customer' });
    const wrong = { Name: '', EntityType: 'friend', ...nowhere };

    const responses = [
      await admin.post('/api/v1/Entities', wrong),
      await admin.put(`/api/v1/Entities/${body.Id}`, wrong),
      await admin.patch(`/api/v1/Entities/${body.Id}`, wrong),
    ];

    for (const response of responses) {
      expectRefused(response, 400, 'validation_failed');
      const all = { Name: 'empty', EntityType: 'not_allowed', ...unknown };
      expect(codesOf(response)).to.deep.equal(all);
    }
  });

  it('a promotion has the errors of all its rules, references and its code in one response', async () => {
    const taken = examples.Promotion?.first(refs) as Body;
    await admin.post('/api/v1/Promotions', taken);

    const response = await admin.post('/api/v1/Promotions', {
      PromoCode: taken.PromoCode,
      Name: 'Wrong',
      DiscountType: 'Percentage',
      DiscountValue: 101,
      CurrencyId: 99_999,
      ...period,
      EntityIds: [refs.entityId, 99_999, refs.entityId, 99_998],
    });

    expectRefused(response, 400, 'validation_failed');
    expect(codesOf(response)).to.deep.equal({
      PromoCode: 'taken',
      DiscountValue: 'too_large',
      CurrencyId: 'unknown_reference',
      EndsAt: 'out_of_range',
      'EntityIds[1]': 'unknown_reference',
      'EntityIds[3]': 'unknown_reference',
    });
  });

  for (const { name } of resources) {
    const { path, key, unique, fields } = examples[name] as Example;
    const other = Object.keys(fields).find(field => field !== unique && fields[field]?.required);
    if (unique === undefined || other === undefined) continue;

    it(`a taken ${unique} of ${name} is an error beside those of other fields, and alone a duplicate`, async () => {
      const taken = examples[name]?.first(refs) as Body;
      const { body } = await admin.post(path, taken);

      const both = await admin.post(path, { ...taken, [other]: '' });
      const alone = await admin.post(path, taken);
      const kept = await admin.put(key === 'Id' ? `${path}/${body.Id}` : path, {
        ...taken,
        [other]: '',
      });
      const elsewhere = await globex.post(path, { ...taken, [other]: '' });

      expectRefused(both, 400, 'validation_failed', [unique, other]);
      expect(codesOf(both)[unique]).to.equal('taken');
      expectRefused(alone, 400, 'duplicate', [unique]);
      expectRefused(kept, 400, 'validation_failed', [other]);
      expect(codesOf(elsewhere)).not.to.include({ [unique]: 'taken' });
    });
  }

  it('a refused body has the errors of its contract alone for a record that is missing', async () => {
    const missing = await admin.put('/api/v1/Entities/99999', { Name: '', ...nowhere });

    expectRefused(missing, 400, 'validation_failed', ['Name', 'EntityType']);
  });

  it('a caller who may not make a record learns nothing of references by an invalid body', async () => {
    const permissions = ['full.manage'];
    const entityId = refs.entityId;
    const self = await world.loginAs(world.acme, { permissions, scope: 'Self', entityId });

    const refused = await self.post('/api/v1/Entities', { Name: '', ...nowhere });

    expectRefused(refused, 400, 'validation_failed', ['Name', 'EntityType']);
  });

  it('an error of a list names the member by its place, and says that it must be a whole number', async () => {
    const promotion = { ...examples.Promotion?.first(refs), EntityIds: [refs.entityId, 'x', 2.5] };

    const response = await admin.post('/api/v1/Promotions', promotion);

    expect(response.body.errors).to.deep.equal({
      'EntityIds[1]': ['must be a whole number'],
      'EntityIds[2]': ['must be a whole number'],
    });
    expect(response.body.errorCodes['EntityIds[1]']).to.deep.equal([
      { code: 'wrong_type', expected: 'int' },
    ]);
  });

  it('a list with wrong members and unknown ones has the errors of both', async () => {
    const promotion = { ...examples.Promotion?.first(refs), EntityIds: ['x', 99_999] };

    const response = await admin.post('/api/v1/Promotions', promotion);

    expect(codesOf(response)).to.deep.equal({
      'EntityIds[0]': 'wrong_type',
      'EntityIds[1]': 'unknown_reference',
    });
  });

  it('a number with too many digits in a list is named by its place', async () => {
    const promotion = JSON.stringify({ ...examples.Promotion?.first(refs), EntityIds: [1, 2] });

    const long = promotion.replace('[1,2]', '[1,90071992547409931]');
    const response = await admin.post('/api/v1/Promotions', long);

    expect(Object.keys(response.body.errors)).to.include('EntityIds[1]');
  });

  it('a member of a body whose name looks like that of an item of a list is a member like any other', async () => {
    const long = '90071992547409931';
    const status = `{"Title":"Listed","Title[0]":${long},"Weighting[0]":${long}}`;
    const promotion = JSON.stringify({ ...examples.Promotion?.first(refs), EntityIds: undefined });
    const strict = { Prefer: 'handling=strict' };

    const made = await admin.post('/api/v1/EntityStatus', status);
    const withItem = await admin.post(
      '/api/v1/Promotions',
      promotion.replace('{', `{"EntityIds[0]":${long},`),
    );
    const refused = await admin.post('/api/v1/EntityStatus', status, strict);
    const elsewhere = await globex.post('/api/v1/EntityStatus', status, strict);

    expect(made.status).to.equal(201);
    expect(withItem.status).to.equal(201);
    for (const response of [refused, elsewhere]) {
      expectRefused(response, 400, 'validation_failed');
      expect(Object.keys(response.body.errors)).to.have.members(['Title[0]', 'Weighting[0]']);
    }
  });

  it('a list with 10,000 wrong members has 100 errors', async () => {
    const EntityIds = Array(10_000).fill('x');

    const response = await admin.post('/api/v1/Promotions', { EntityIds });

    expectRefused(response, 400, 'validation_failed');
    expect(Object.keys(response.body.errors).length).to.be.at.most(101);
  });

  it('a whole number is called so in each field that takes only whole numbers', async () => {
    const values: [path: string, body: Body, field: string][] = [
      ['OrderStatuses', { Name: 'A', Weighting: '1' }, 'Weighting'],
      ['SystemOptions', { SystemOptionTypeId: true, Value: 'A' }, 'SystemOptionTypeId'],
      ['Currency', { Code: uniqueCurrencyCode(), Name: 'A', DecimalPlaces: '2' }, 'DecimalPlaces'],
      ['Entities', { Name: 'A', EntityType: 'customer', CurrencyId: '1' }, 'CurrencyId'],
      ['Activity', { ActivityCode: 'x' }, 'ActivityCode'],
    ];

    for (const [path, body, field] of values) {
      const response = await admin.post(`/api/v1/${path}`, body);
      expect(response.body.errors, path).to.deep.equal({ [field]: ['must be a whole number'] });
    }
  });

  for (const { name } of resources) {
    const { path, key, fields, defaults, takesPatch } = examples[name] as Example;
    const required = Object.keys(fields).filter(field => fields[field]?.required);
    const optional = Object.keys(defaults);

    it(`null is no value of a field of ${name} in each method: it is required, or has its default`, async () => {
      const body = () => examples[name]?.first(refs) as Body;
      const { body: record } = await admin.post(path, body());
      const recordPath = `${path}/${record.Id}`;
      const put = (change: Body) =>
        key === 'Id'
          ? admin.put(recordPath, { ...body(), ...change })
          : admin.put(path, { ...body(), [key]: record[key], ...change });
      const send = async (change: Body): Promise<ApiResponse[]> => [
        await admin.post(path, { ...body(), ...change }),
        await put(change),
        ...(takesPatch ? [await admin.patch(recordPath, change)] : []),
      ];

      for (const field of required) {
        for (const response of await send({ [field]: null })) {
          expectRefused(response, 400, 'validation_failed', [field]);
          expect(response.body.errors[field], field).to.deep.equal(['is required']);
        }
      }
      for (const field of optional) {
        for (const response of await send({ [field]: null })) {
          expect(response.status, `${field} ${JSON.stringify(response.body)}`).to.be.below(300);
          expect(response.body[field], field).to.deep.equal(defaults[field]);
        }
      }
    });
  }

  it('a row of an import has the errors of its cells, rules, references and code, each in its cell', async () => {
    const taken = examples.Promotion?.first(refs) as Body;
    await admin.post('/api/v1/Promotions', taken);
    const header = 'PromoCode;Name;DiscountType;DiscountValue;CurrencyId;StartsAt;EndsAt;EntityIds';
    const row = `${taken.PromoCode};;Percentage;101;99999;${period.StartsAt};${period.EndsAt};[99999,x]`;

    const { body } = await admin.post(
      '/api/v1/Imports?resource=Promotion&ids=own',
      `${header}\n${row}\n`,
      csv,
    );

    expect(body).to.include({ Applied: false, Refused: 1 });
    const errors = body.Errors.map(({ Cell, Field, Code }: Record<string, string>) =>
      [Cell, Field, Code].join(' '),
    );
    expect(errors).to.have.members([
      'A2 PromoCode taken',
      'B2 Name required',
      'D2 DiscountValue too_large',
      'E2 CurrencyId unknown_reference',
      'G2 EndsAt out_of_range',
      'H2 EntityIds[0] unknown_reference',
      'H2 EntityIds[1] wrong_type',
    ]);
  });

  it('a cell that is no id is told to be a whole number, also where numbers have a comma', async () => {
    const file = 'Name;EntityType;StatusId;CurrencyId\nA;customer;1,5;1.500\n';

    const { body } = await admin.post('/api/v1/Imports?resource=Entity&ids=own', file, csv);

    const reasons = body.Errors.map(({ Field, Reason }: Record<string, string>) => [Field, Reason]);
    expect(reasons).to.deep.equal([
      ['StatusId', 'must be a whole number'],
      ['CurrencyId', 'is 1500 or 1,5: write one of them'],
    ]);
  });

  it('every endpoint with a body names all of its fields in one response when each of them is invalid', async () => {
    const withBody = routes.filter(({ body }) => body);
    expect(withBody.length).to.be.above(35);

    for (const { method, path, body } of withBody) {
      const fields = Object.keys(body?.shape ?? {});
      const response = await admin.send(
        method,
        path.replace(/:\w+/g, '1'),
        Object.fromEntries(fields.map(field => [field, {}])),
        { 'X-Tenant': world.acme.guid },
      );

      expectRefused(response, 400, 'validation_failed');
      // a field that is an object may have an error for each of its members: `passkey[id]`
      const named = Object.keys(response.body.errors).map(name => name.replace(/\[.*$/, ''));
      expect([...new Set(named)], `${method} ${path}`).to.have.members(fields);
    }
  });

  it('a user, a role and a webhook have the errors of the contract, of what they refer to and of what is taken in one response', async () => {
    const invitation = { Email: 'one@round.test', LastName: 'One', FirstName: 'O', Scope: 'All' };
    const { body: user } = await admin.post('/api/v1/Users', { ...invitation, Role: 'Member' });
    const { body: role } = await admin.post('/api/v1/Roles', { Name: 'Round', Permissions: [] });
    const target = { Url: 'https://hooks.example.com/round', IsEnabled: false };
    const { body: webhook } = await admin.post('/api/v1/Webhooks', target);

    const person = {
      FirstName: '',
      LastName: 'x',
      Scope: 'Some',
      Role: 'Nobody',
      EntityId: 99_999,
    };
    const ofPerson = {
      FirstName: 'empty',
      Scope: 'not_allowed',
      Role: 'unknown_reference',
      EntityId: 'unknown_reference',
      Email: 'taken',
    };
    const ofWebhook = {
      Url: 'wrong_format',
      'Resources[0]': 'not_allowed',
      Payload: 'not_allowed',
    };
    const wrongWebhook = { Url: 'http://localhost', Resources: ['Nothing'], Payload: 'thick' };

    for (const [method, path, body, codes] of [
      ['POST', '/api/v1/Users', { ...person, Email: world.acme.admin.email }, ofPerson],
      ['PUT', `/api/v1/Users/${user.Id}`, { ...person, Email: world.acme.admin.email }, ofPerson],
      ['POST', '/api/v1/Roles', { Name: 'round', Permissions: {} }, ofRole],
      ['PUT', `/api/v1/Roles/${role.Id}`, { Name: 'member', Permissions: {} }, ofRole],
      ['POST', '/api/v1/Webhooks', wrongWebhook, ofWebhook],
      ['PUT', `/api/v1/Webhooks/${webhook.Id}`, wrongWebhook, ofWebhook],
      [
        'POST',
        `/api/v1/Webhooks/${webhook.Id}/replay`,
        { MessageId: 'msg', Since: 'soon' },
        { MessageId: 'required', Since: 'wrong_format' },
      ],
    ] as const) {
      const response = await admin.send(method, path, body);
      expectRefused(response, 400, 'validation_failed');
      expect(codesOf(response), `${method} ${path}`).to.deep.equal(codes);
    }

    const password = { newPassword: 'short' };
    const reset = await world.anonymous.post('/api/v1/auth/reset-password', password, {
      'X-Tenant': world.acme.guid,
    });
    expect(codesOf(reset)).to.deep.equal({ newPassword: 'too_short', token: 'required' });
    await admin.delete(`/api/v1/Webhooks/${webhook.Id}`);
  });

  it('errors beside those of the contract tell nothing of another tenant, and change nothing', async () => {
    const { body: theirs } = await globex.post('/api/v1/Entities', {
      Name: 'Theirs',
      EntityType: 'customer',
    });
    const before = (await admin.get('/api/v1/Users?limit=100')).body;

    const invitation = { Email: world.globex.admin.email, FirstName: '', LastName: 'x' };
    const response = await admin.post('/api/v1/Users', {
      ...invitation,
      Role: 'Member',
      Scope: 'All',
      EntityId: theirs.Id + 1_000,
    });

    expect(codesOf(response)).to.deep.equal({ FirstName: 'empty', EntityId: 'unknown_reference' });
    expect((await admin.get('/api/v1/Users?limit=100')).body).to.deep.equal(before);
    expect((await globex.get(`/api/v1/Entities/${theirs.Id}`)).status).to.equal(200);
  });
});

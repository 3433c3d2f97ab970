import { expect } from 'chai';
import type { ApiResponse } from '../../support/client.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { auditOf, expectRefused, newestAudit } from './expect.ts';

describe('errors of fields', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const errorsOf = ({ status, body }: ApiResponse) => {
    expect(status, JSON.stringify(body)).to.equal(400);
    return [body.errors, body.errorCodes];
  };

  it('each text of a validation error has a stable code with the numbers and values of the text', async () => {
    const refused: [path: string, body: object, errors: object, codes: object][] = [
      [
        'Countries',
        { CountryCode: 'x'.repeat(51) },
        { CountryCode: ['must be at most 50 characters long'], CountryName: ['is required'] },
        { CountryCode: [{ code: 'too_long', max: 50 }], CountryName: [{ code: 'required' }] },
      ],
      [
        'Currency',
        { Code: 'eur', Name: ' ', DecimalPlaces: 7 },
        {
          Code: ['must be three capital letters (ISO 4217)'],
          Name: ['must not be empty'],
          DecimalPlaces: ['must be at most 6'],
        },
        {
          Code: [{ code: 'wrong_format' }],
          Name: [{ code: 'empty' }],
          DecimalPlaces: [{ code: 'too_large', max: 6 }],
        },
      ],
      [
        'SystemOptions',
        { SystemOptionTypeId: 0, Value: 5, CreatedAt: 'yesterday' },
        {
          SystemOptionTypeId: ['must be at least 1'],
          Value: ['must be of type string'],
          CreatedAt: ['must be a date and time such as 2026-01-31T12:00:00Z'],
        },
        {
          SystemOptionTypeId: [{ code: 'too_small', min: 1 }],
          Value: [{ code: 'wrong_type', expected: 'string' }],
          CreatedAt: [{ code: 'wrong_format' }],
        },
      ],
      [
        'EntityStatus',
        { Title: 'A', Weighting: 2 ** 53 + 2 },
        { Weighting: ['must be at most 2147483647'] },
        { Weighting: [{ code: 'too_large', max: 2_147_483_647 }] },
      ],
      [
        'Entities',
        { Name: 'A', name: 'B', EntityType: 'friend', StatusId: 99_999 },
        {
          Name: ['is given twice with different values, as Name and name'],
          EntityType: ['must be one of supplier, customer'],
          StatusId: ['is not an entity status'],
        },
        {
          Name: [{ code: 'ambiguous' }],
          EntityType: [{ code: 'not_allowed', values: ['supplier', 'customer'] }],
          StatusId: [{ code: 'unknown_reference' }],
        },
      ],
      [
        'Entities',
        { Name: 'A', EntityType: 'customer', StatusId: 99_999 },
        { StatusId: ['is not an entity status'] },
        { StatusId: [{ code: 'unknown_reference' }] },
      ],
      [
        'Promotions',
        { PromoCode: 'P', Name: 'P', DiscountType: 'Percentage', DiscountValue: 101 },
        { DiscountValue: ['must be at most 100 for a percentage'] },
        { DiscountValue: [{ code: 'too_large', max: 100 }] },
      ],
    ];

    for (const [path, body, errors, codes] of refused) {
      expect(errorsOf(await admin.post(`/api/v1/${path}`, body)), path).to.deep.equal([
        errors,
        codes,
      ]);
    }

    expect(errorsOf(await admin.get('/api/v1/Activity?limit=0'))).to.deep.equal([
      { limit: ['must be a whole number above 0'] },
      { limit: [{ code: 'wrong_format' }] },
    ]);

    const many = {
      PromoCode: 'P',
      Name: 'P',
      DiscountType: 'Percentage',
      DiscountValue: 1,
      EntityIds: Array(101).fill(1),
    };
    expect(errorsOf(await admin.post('/api/v1/Promotions', many))).to.deep.equal([
      { EntityIds: ['must be at most 100 items long'] },
      { EntityIds: [{ code: 'too_many', max: 100 }] },
    ]);

    expect(
      errorsOf(await admin.post('/api/v1/Webhooks', { Url: 'https://a.test/', Resources: [] })),
    ).to.deep.equal([
      { Resources: ['must be at least 1 item long'] },
      { Resources: [{ code: 'too_small', min: 1 }] },
    ]);

    const anonymously = (path: string, body: object) =>
      world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': world.acme.guid });
    expect(
      errorsOf(await anonymously('login', { email: 'a@b.test', password: 'x'.repeat(1_025) })),
    ).to.deep.equal([
      { password: ['must be at most 1024 characters long'] },
      { password: [{ code: 'too_long', max: 1024 }] },
    ]);
    expect(errorsOf(await anonymously('refresh', { refreshToken: '' }))).to.deep.equal([
      { refreshToken: ['must not be empty'] },
      { refreshToken: [{ code: 'too_short', min: 1 }] },
    ]);

    const reset = await anonymously('reset-password', { token: 'x', newPassword: 'short' });
    expect(errorsOf(reset)).to.deep.equal([
      { newPassword: ['must be at least 15 characters long'] },
      { newPassword: [{ code: 'too_short', min: 15 }] },
    ]);

    expect((await admin.get('/api/v1/Currency/99999')).body).to.not.have.any.keys(
      'errors',
      'errorCodes',
    );
  });

  for (const [path, field, missing] of [
    ['Countries', 'CountryCode', 'unknown_record'],
    ['Currency', 'Code', 'not_found'],
  ] as const) {
    it(`duplicate reports a deleted record of ${path}, and undelete brings it back with an audit entry`, async () => {
      const names = path === 'Countries' ? { CountryName: 'Norway' } : { Name: 'Norway' };
      const { body: record } = await admin.post(`/api/v1/${path}`, { [field]: 'NOK', ...names });
      const url = `/api/v1/${path}/${path === 'Countries' ? 'code/NOK' : record.Id}`;
      expect((await admin.delete(url)).status).to.equal(204);
      const refused = await admin.post(`/api/v1/${path}`, { [field]: 'NOK', ...names });
      expectRefused(refused, 400, 'duplicate', [field]);
      expect(refused.body.detail).to.match(/marked as deleted/);
      expect(errorsOf(refused)).to.deep.equal([
        { [field]: ['is taken by a record that is marked as deleted'] },
        { [field]: [{ code: 'taken', deleted: true }] },
      ]);

      const undeleted = await admin.post(`${url}/undelete`);
      expect(undeleted.status).to.equal(200);
      expect(undeleted.body).to.deep.equal(record);
      expect((await admin.get(url)).body).to.deep.equal(record);
      expect((await admin.get(`/api/v1/${path}`)).body).to.deep.include(record);
      const entries = await auditOf(
        admin,
        path === 'Countries' ? 'Country' : 'Currency',
        record.Id ?? 'NOK',
      );
      expect(entries.map(({ Action }) => Action)).to.deep.equal(['create', 'delete', 'update']);
      expect(entries.at(-1)?.After).to.include({ IsDeleted: false, DeletedAt: null });

      const audited = await newestAudit(admin);
      expect((await admin.post(`${url}/undelete`)).body).to.deep.equal(record);
      expect(await newestAudit(admin)).to.equal(audited);
      const nowhere = path === 'Countries' ? 'code/nowhere' : '99999';
      expectRefused(
        await admin.post(`/api/v1/${path}/${nowhere}/undelete`),
        missing === 'not_found' ? 404 : 400,
        missing,
      );
      const reader = await world.loginAs(world.acme, { permissions: [] });
      expectRefused(await reader.post(`${url}/undelete`), 403, 'forbidden');
    });
  }
});

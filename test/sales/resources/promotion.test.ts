import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import { invalidIds } from '../../support/invalid-ids.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { auditOf, expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/Promotions';
const percentage = { Name: 'Spring', DiscountType: 'Percentage', DiscountValue: 10 };
let count = 0;

describe('promotions', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let supplier: number;
  let customer: number;
  let krone: number;

  before(async () => {
    const entity = async (Name: string, EntityType: string): Promise<number> =>
      (await admin.post('/api/v1/Entities', { Name, EntityType })).body.Id;
    supplier = await entity('Nordic Timber', 'supplier');
    customer = await entity('Corner Shop', 'customer');
    krone = (await admin.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' })).body.Id;
  });

  const createPromotion = async (more: object = {}): Promise<{ Id: number; PromoCode: string }> => {
    const response = await admin.post(path, { PromoCode: `P${++count}`, ...percentage, ...more });
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response.body;
  };
  const usePath = (promotion: unknown, entity: unknown) =>
    `${path}/${promotion}/entity/${entity}/used`;

  describe('rules of promotions', () => {
    const refused: [fault: string, field: string, body: () => object][] = [
      ['a percentage above 100', 'DiscountValue', () => ({ DiscountValue: 100.0001 })],
      ['a discount of 0', 'DiscountValue', () => ({ DiscountValue: 0 })],
      ['a negative discount', 'DiscountValue', () => ({ DiscountValue: -5 })],
      [
        'a discount of more than four decimals',
        'DiscountValue',
        () => ({ DiscountValue: 1.00001 }),
      ],
      ['an amount without a currency', 'CurrencyId', () => ({ DiscountType: 'Amount' })],
      [
        'an amount in a currency that does not exist',
        'CurrencyId',
        () => ({ DiscountType: 'Amount', CurrencyId: 99_999 }),
      ],
      [
        'an end before the start',
        'EndsAt',
        () => ({ StartsAt: '2026-05-02T00:00:00Z', EndsAt: '2026-05-01T00:00:00Z' }),
      ],
      [
        'an end equal to the start',
        'EndsAt',
        () => ({ StartsAt: '2026-05-01T02:00:00+02:00', EndsAt: '2026-05-01T00:00:00Z' }),
      ],
      ['an entity that does not exist', 'EntityIds', () => ({ EntityIds: [supplier, 99_999] })],
    ];
    for (const [fault, field, body] of refused) {
      it(`a promotion with ${fault} is refused on POST and on PUT`, async () => {
        const { Id, PromoCode } = await createPromotion();
        const before = (await admin.get(path)).body;
        const audited = await newestAudit(admin);
        const wrong = { ...percentage, ...body() };

        expectRefused(
          await admin.post(path, { PromoCode: 'WRONG', ...wrong }),
          400,
          'validation_failed',
          [field],
        );
        expectRefused(
          await admin.put(`${path}/${Id}`, { PromoCode, ...wrong }),
          400,
          'validation_failed',
          [field],
        );

        expect((await admin.get(path)).body).to.deep.equal(before);
        expect(await newestAudit(admin)).to.equal(audited);
      });
    }

    it('a promotion can have an amount above 100, with up to four decimals', async () => {
      for (const DiscountValue of [0.0001, 100.0001, 123_456.7891, 999_999_999]) {
        const amount = { DiscountType: 'Amount', DiscountValue, CurrencyId: krone };
        const promotion = await createPromotion(amount);
        expect((await admin.get(`${path}/${promotion.Id}`)).body).to.deep.include(amount);
      }
    });

    it('a promotion with an amount above 100 cannot become a percentage with the same value', async () => {
      const amount = { DiscountType: 'Amount', DiscountValue: 500, CurrencyId: krone };
      const { Id, PromoCode } = await createPromotion(amount);
      const body = { PromoCode, ...percentage, DiscountValue: 500 };
      expectRefused(await admin.put(`${path}/${Id}`, body), 400, 'validation_failed', [
        'DiscountValue',
      ]);
      expect((await admin.get(`${path}/${Id}`)).body).to.deep.include(amount);
    });

    it('a promotion cannot refer to a deleted currency', async () => {
      const { body: deleted } = await admin.post('/api/v1/Currency', { Code: 'DEM', Name: 'Mark' });
      await admin.delete(`/api/v1/Currency/${deleted.Id}`);
      const body = { PromoCode: 'GONE', ...percentage, CurrencyId: deleted.Id };
      expectRefused(await admin.post(path, body), 400, 'validation_failed', ['CurrencyId']);
    });

    it('the EntityIds of a promotion are stored once each, as JSON numbers in the given order', async () => {
      const { Id } = await createPromotion({ EntityIds: [customer, supplier, customer] });
      expect((await admin.get(`${path}/${Id}`)).body.EntityIds).to.deep.equal([customer, supplier]);
    });

    it('a promotion can have a start without an end, or an end without a start', async () => {
      const open = { StartsAt: '2026-05-01T00:00:00.000Z', EndsAt: null };
      expect(await createPromotion(open)).to.deep.include(open);
      expect(await createPromotion({ StartsAt: open.EndsAt, EndsAt: open.StartsAt })).to.include({
        EndsAt: open.StartsAt,
      });
    });

    it('an entity cannot be deleted while a promotion names it', async () => {
      const { body: entity } = await admin.post('/api/v1/Entities', {
        Name: 'Promoted',
        EntityType: 'customer',
      });
      const { Id } = await createPromotion({ EntityIds: [supplier, entity.Id] });
      expectRefused(await admin.delete(`/api/v1/Entities/${entity.Id}`), 400, 'in_use');
      expect((await admin.delete(`${path}/${Id}`)).status).to.equal(204);
      expect((await admin.delete(`/api/v1/Entities/${entity.Id}`)).status).to.equal(204);
    });

    it('an entity that is deleted at the same time is never left in the EntityIds of a promotion', async () => {
      for (let round = 0; round < 10; round++) {
        const { body: entity } = await admin.post('/api/v1/Entities', {
          Name: 'Fleeting',
          EntityType: 'customer',
        });
        const body = { PromoCode: `RACE${round}`, ...percentage, EntityIds: [entity.Id] };

        const [created, deleted] = await Promise.all([
          admin.post(path, body),
          admin.delete(`/api/v1/Entities/${entity.Id}`),
        ]);

        expect([created.status, deleted.status]).to.be.deep.oneOf([
          [201, 400],
          [400, 204],
        ]);
      }
    });
  });

  describe('use of promotions', () => {
    it('the use of a promotion returns the time of the use, or null', async () => {
      const { Id } = await createPromotion();
      const unused = await admin.get(usePath(Id, customer));
      expect(unused.status).to.equal(200);
      expect(unused.body).to.deep.equal({
        PromotionId: Id,
        EntityId: customer,
        Used: false,
        UsedAt: null,
      });

      const recorded = await admin.post(usePath(Id, customer));
      expect(recorded.status).to.equal(201);
      expect(recorded.headers.get('location')).to.equal(usePath(Id, customer));
      expect(recorded.body).to.include({ PromotionId: Id, EntityId: customer, Used: true });
      expect(Date.parse(recorded.body.UsedAt)).to.be.closeTo(Date.now(), 60_000);

      const used = await admin.get(usePath(Id, customer));
      expect(used.body).to.deep.equal(recorded.body);
      expect(used.headers.get('etag')).to.equal(recorded.headers.get('etag'));
      expect((await admin.get(usePath(Id, supplier))).body.Used).to.equal(false);

      const [entry, ...others] = await auditOf(admin, 'PromotionUse', Id);
      expect(others).to.deep.equal([]);
      expect(entry).to.deep.include({ Action: 'create', Before: null });
      expect(entry?.After).to.deep.equal({
        PromotionId: Id,
        EntityId: customer,
        UsedAt: recorded.body.UsedAt,
      });
    });

    it('of 20 concurrent requests that record the same use of a promotion exactly one succeeds', async () => {
      const { Id } = await createPromotion();
      const responses = await Promise.all(
        Array.from({ length: 20 }, () => admin.post(usePath(Id, customer))),
      );
      const refused = responses.filter(({ status }) => status !== 201);
      expect(refused).to.have.lengthOf(19);
      for (const response of refused) expectRefused(response, 400, 'duplicate');
      expect(await auditOf(admin, 'PromotionUse', Id)).to.have.lengthOf(1);
    });

    it('a use of a promotion is refused outside its period, while it is inactive, and for other entities', async () => {
      const [past, now, future] = [-60_000, 0, 60_000].map(offset =>
        new Date(Date.now() + offset).toISOString(),
      );
      const cases: [more: object, field: string][] = [
        [{ StartsAt: future }, 'PromotionId'],
        [{ EndsAt: past }, 'PromotionId'],
        [{ EndsAt: now }, 'PromotionId'],
        [{ IsActive: false }, 'PromotionId'],
        [{ EntityIds: [supplier] }, 'EntityId'],
      ];

      for (const [more, field] of cases) {
        const { Id } = await createPromotion(more);
        expectRefused(await admin.post(usePath(Id, customer)), 400, 'validation_failed', [field]);
        expect((await admin.get(usePath(Id, customer))).body.Used).to.equal(false);
        expect(await auditOf(admin, 'PromotionUse', Id)).to.deep.equal([]);
      }

      const { Id } = await createPromotion({
        StartsAt: past,
        EndsAt: future,
        EntityIds: [supplier, customer],
      });
      expect((await admin.post(usePath(Id, customer))).status).to.equal(201);
    });

    it('the use of a promotion is a 404 when the promotion or the entity does not exist', async () => {
      const { Id } = await createPromotion();
      for (const id of ['99999', ...invalidIds]) {
        for (const url of [usePath(id, customer), usePath(Id, id)]) {
          expectRefused(await admin.get(url), 404, 'not_found');
          expectRefused(await admin.post(url), 404, 'not_found');
        }
      }
    });

    it('neither a promotion that was used nor the entity that used it can be deleted', async () => {
      const { body: entity } = await admin.post('/api/v1/Entities', {
        Name: 'User',
        EntityType: 'customer',
      });
      const { Id } = await createPromotion();
      await admin.post(usePath(Id, entity.Id));
      expectRefused(await admin.delete(`${path}/${Id}`), 400, 'in_use');
      expectRefused(await admin.delete(`/api/v1/Entities/${entity.Id}`), 400, 'in_use');
      expect((await admin.get(usePath(Id, entity.Id))).body.Used).to.equal(true);
    });

    it('the use of a promotion is read with a token, recorded with pricing.write, and never changed', async () => {
      const { Id } = await createPromotion();
      const reader = await world.loginAs(world.acme, {
        permissions: permissions.filter(permission => permission !== 'pricing.write'),
      });

      expect((await reader.get(usePath(Id, customer))).status).to.equal(200);
      expectRefused(await reader.post(usePath(Id, customer)), 403, 'forbidden');
      for (const method of ['PUT', 'DELETE']) {
        expectRefused(await admin.send(method, usePath(Id, customer)), 405, 'method_not_allowed');
      }

      const writer = await world.loginAs(world.acme, { permissions: ['pricing.write'] });
      expect((await writer.post(usePath(Id, customer))).status).to.equal(201);
    });

    it('a caller of scope Self reads and records the use of promotions by its own entity alone', async () => {
      const { Id } = await createPromotion();
      await admin.post(usePath(Id, supplier));

      const self = await world.loginAs(world.acme, {
        permissions: ['pricing.write'],
        scope: 'Self',
        entityId: customer,
      });
      const selfWithoutEntity = await world.loginAs(world.acme, {
        permissions: ['pricing.write'],
        scope: 'Self',
        entityId: null,
      });

      for (const [client, entity] of [
        [self, supplier],
        [selfWithoutEntity, supplier],
        [selfWithoutEntity, customer],
      ] as const) {
        expectRefused(await client.get(usePath(Id, entity)), 404, 'not_found');
        expectRefused(await client.post(usePath(Id, entity)), 404, 'not_found');
      }

      expect((await self.get(usePath(Id, customer))).body.Used).to.equal(false);
      expect((await self.post(usePath(Id, customer))).status).to.equal(201);
      expect((await self.get(usePath(Id, customer))).body.Used).to.equal(true);
    });

    it('the use of a promotion cannot be read or recorded by another tenant', async () => {
      const { Id } = await createPromotion();
      const globex = await world.login(world.globex);
      await globex.post('/api/v1/Entities', { Name: 'Theirs', EntityType: 'customer' });
      expectRefused(await globex.get(usePath(Id, 1)), 404, 'not_found');
      expectRefused(await globex.post(usePath(Id, 1)), 404, 'not_found');
    });
  });
});

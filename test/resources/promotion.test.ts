import { expect } from 'chai';
import { permissions } from '../../src/control/permissions.ts';
import type { Client } from '../support/client.ts';
import { createWorld, type World } from '../support/world.ts';
import { auditOf, expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/Promotions';
const percentage = { Name: 'Spring', DiscountType: 'Percentage', DiscountValue: 10 };
let count = 0;

describe('Promotion', () => {
  let world: World;
  let admin: Client;
  let supplier: number;
  let customer: number;
  let krone: number;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    const entity = async (Name: string, EntityType: string): Promise<number> =>
      (await admin.post('/api/v1/Entities', { Name, EntityType })).body.Id;
    supplier = await entity('Nordic Timber', 'supplier');
    customer = await entity('Corner Shop', 'customer');
    krone = (await admin.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' })).body.Id;
  });
  after(() => world.close());

  const promote = async (more: object = {}): Promise<{ Id: number; PromoCode: string }> => {
    const answer = await admin.post(path, { PromoCode: `P${++count}`, ...percentage, ...more });
    expect(answer.status, JSON.stringify(answer.body)).to.equal(201);
    return answer.body;
  };
  const used = (promotion: unknown, entity: unknown) => `${path}/${promotion}/entity/${entity}/used`;

  describe('rules', () => {
    const refused: [rule: string, field: string, body: () => object][] = [
      ['a percentage is at most 100', 'DiscountValue', () => ({ DiscountValue: 100.0001 })],
      ['a discount is more than 0', 'DiscountValue', () => ({ DiscountValue: 0 })],
      ['a discount is not negative', 'DiscountValue', () => ({ DiscountValue: -5 })],
      ['a discount has at most four decimals', 'DiscountValue', () => ({ DiscountValue: 1.00001 })],
      ['an amount needs a currency', 'CurrencyId', () => ({ DiscountType: 'Amount' })],
      [
        'an amount needs a currency that is there',
        'CurrencyId',
        () => ({ DiscountType: 'Amount', CurrencyId: 99_999 }),
      ],
      [
        'it ends after it starts',
        'EndsAt',
        () => ({ StartsAt: '2026-05-02T00:00:00Z', EndsAt: '2026-05-01T00:00:00Z' }),
      ],
      ['it does not end as it starts', 'EndsAt', () => ({ StartsAt: '2026-05-01T02:00:00+02:00', EndsAt: '2026-05-01T00:00:00Z' })], // biome-ignore format: a table
      ['its entities are there', 'EntityIds', () => ({ EntityIds: [supplier, 99_999] })],
    ];
    for (const [rule, field, body] of refused)
      it(`${rule}, on POST and on PUT`, async () => {
        const { Id, PromoCode } = await promote();
        const before = (await admin.get(path)).body;
        const audited = await newestAudit(admin);
        const wrong = { ...percentage, ...body() };
        expectRefused(await admin.post(path, { PromoCode: 'WRONG', ...wrong }), 400, 'validation_failed', [field]);
        expectRefused(await admin.put(`${path}/${Id}`, { PromoCode, ...wrong }), 400, 'validation_failed', [field]);
        expect((await admin.get(path)).body).to.deep.equal(before);
        expect(await newestAudit(admin)).to.equal(audited);
      });

    it('an amount may exceed 100, and has up to four decimals', async () => {
      for (const DiscountValue of [0.0001, 100.0001, 123_456.7891, 999_999_999]) {
        const amount = { DiscountType: 'Amount', DiscountValue, CurrencyId: krone };
        const promotion = await promote(amount);
        expect((await admin.get(`${path}/${promotion.Id}`)).body).to.deep.include(amount);
      }
    });

    it('an amount above 100 cannot become a percentage', async () => {
      const amount = { DiscountType: 'Amount', DiscountValue: 500, CurrencyId: krone };
      const { Id, PromoCode } = await promote(amount);
      const body = { PromoCode, ...percentage, DiscountValue: 500 };
      expectRefused(await admin.put(`${path}/${Id}`, body), 400, 'validation_failed', ['DiscountValue']);
      expect((await admin.get(`${path}/${Id}`)).body).to.deep.include(amount);
    });

    it('a deleted currency cannot be referred to', async () => {
      const { body: gone } = await admin.post('/api/v1/Currency', { Code: 'DEM', Name: 'Mark' });
      await admin.delete(`/api/v1/Currency/${gone.Id}`);
      const body = { PromoCode: 'GONE', ...percentage, CurrencyId: gone.Id };
      expectRefused(await admin.post(path, body), 400, 'validation_failed', ['CurrencyId']);
    });

    it('the list of entities is stored without duplicates, as JSON numbers in the given order', async () => {
      const { Id } = await promote({ EntityIds: [customer, supplier, customer] });
      expect((await admin.get(`${path}/${Id}`)).body.EntityIds).to.deep.equal([customer, supplier]);
    });

    it('a period may have only a start or only an end', async () => {
      const open = { StartsAt: '2026-05-01T00:00:00.000Z', EndsAt: null };
      expect(await promote(open)).to.deep.include(open);
      expect(await promote({ StartsAt: open.EndsAt, EndsAt: open.StartsAt })).to.include({ EndsAt: open.StartsAt });
    });

    it('an entity in the list of a promotion cannot be deleted', async () => {
      const { body: entity } = await admin.post('/api/v1/Entities', { Name: 'Promoted', EntityType: 'customer' });
      const { Id } = await promote({ EntityIds: [supplier, entity.Id] });
      expectRefused(await admin.delete(`/api/v1/Entities/${entity.Id}`), 400, 'in_use');
      expect((await admin.delete(`${path}/${Id}`)).status).to.equal(204);
      expect((await admin.delete(`/api/v1/Entities/${entity.Id}`)).status).to.equal(204);
    });

    it('an entity deleted at the same time is never left in the list of a promotion', async () => {
      for (let round = 0; round < 10; round++) {
        const { body: entity } = await admin.post('/api/v1/Entities', { Name: 'Fleeting', EntityType: 'customer' });
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

  describe('its use by an entity', () => {
    it('a read returns the time of use, or null', async () => {
      const { Id } = await promote();
      const unused = await admin.get(used(Id, customer));
      expect([unused.status, unused.body]).to.deep.equal([
        200,
        { PromotionId: Id, EntityId: customer, Used: false, UsedAt: null },
      ]);
      const recorded = await admin.post(used(Id, customer));
      expect(recorded.status).to.equal(201);
      expect(recorded.headers.get('location')).to.equal(used(Id, customer));
      expect(recorded.body).to.include({ PromotionId: Id, EntityId: customer, Used: true });
      expect(Date.parse(recorded.body.UsedAt)).to.be.closeTo(Date.now(), 60_000);
      expect((await admin.get(used(Id, customer))).body).to.deep.equal(recorded.body);
      expect((await admin.get(used(Id, supplier))).body.Used).to.equal(false);
      const [entry, ...more] = await auditOf(admin, 'PromotionUse', Id);
      expect(more).to.deep.equal([]);
      expect(entry).to.deep.include({ Action: 'create', Before: null });
      expect(entry?.After).to.deep.equal({ PromotionId: Id, EntityId: customer, UsedAt: recorded.body.UsedAt });
    });

    it('a use is recorded once, also for 20 parallel requests', async () => {
      const { Id } = await promote();
      const answers = await Promise.all(Array.from({ length: 20 }, () => admin.post(used(Id, customer))));
      const refused = answers.filter(({ status }) => status !== 201);
      expect(refused).to.have.lengthOf(19);
      for (const answer of refused) expectRefused(answer, 400, 'duplicate');
      expect(await auditOf(admin, 'PromotionUse', Id)).to.have.lengthOf(1);
    });

    it('a use outside the period, of an inactive promotion or by another entity is rejected and not recorded', async () => {
      const [past, now, future] = [-60_000, 0, 60_000].map(offset => new Date(Date.now() + offset).toISOString());
      const cases: [more: object, field: string][] = [
        [{ StartsAt: future }, 'PromotionId'],
        [{ EndsAt: past }, 'PromotionId'],
        [{ EndsAt: now }, 'PromotionId'],
        [{ IsActive: false }, 'PromotionId'],
        [{ EntityIds: [supplier] }, 'EntityId'],
      ];
      for (const [more, field] of cases) {
        const { Id } = await promote(more);
        expectRefused(await admin.post(used(Id, customer)), 400, 'validation_failed', [field]);
        expect((await admin.get(used(Id, customer))).body.Used).to.equal(false);
        expect(await auditOf(admin, 'PromotionUse', Id)).to.deep.equal([]);
      }
      const { Id } = await promote({ StartsAt: past, EndsAt: future, EntityIds: [supplier, customer] });
      expect((await admin.post(used(Id, customer))).status).to.equal(201);
    });

    it('a missing promotion or entity gets 404, whatever the path contains', async () => {
      const { Id } = await promote();
      for (const no of [
        '99999',
        '0',
        '-1',
        '01',
        '1e3',
        '2147483648',
        '9007199254740992',
        '9223372036854775808',
        '%00',
        '%zz',
      ])
        for (const place of [used(no, customer), used(Id, no)]) {
          expectRefused(await admin.get(place), 404, 'not_found');
          expectRefused(await admin.post(place), 404, 'not_found');
        }
    });

    it('a used promotion and its entity cannot be deleted', async () => {
      const { body: entity } = await admin.post('/api/v1/Entities', { Name: 'User', EntityType: 'customer' });
      const { Id } = await promote();
      await admin.post(used(Id, entity.Id));
      expectRefused(await admin.delete(`${path}/${Id}`), 400, 'in_use');
      expectRefused(await admin.delete(`/api/v1/Entities/${entity.Id}`), 400, 'in_use');
      expect((await admin.get(used(Id, entity.Id))).body.Used).to.equal(true);
    });

    it('a use is readable with any token, recording requires pricing.write, and a use cannot be deleted', async () => {
      const { Id } = await promote();
      const reader = await world.loginAs(world.acme, {
        permissions: permissions.filter(permission => permission !== 'pricing.write'),
      });
      expect((await reader.get(used(Id, customer))).status).to.equal(200);
      expectRefused(await reader.post(used(Id, customer)), 403, 'forbidden');
      for (const method of ['PUT', 'DELETE'])
        expectRefused(await admin.send(method, used(Id, customer)), 405, 'method_not_allowed');
      const writer = await world.loginAs(world.acme, { permissions: ['pricing.write'] });
      expect((await writer.post(used(Id, customer))).status).to.equal(201);
    });

    it('a caller of scope Self reads and records only uses of their own entity; any other gets 404', async () => {
      const { Id } = await promote();
      await admin.post(used(Id, supplier));
      const self = await world.loginAs(world.acme, {
        permissions: ['pricing.write'],
        scope: 'Self',
        entityId: customer,
      });
      const nobody = await world.loginAs(world.acme, { permissions: ['pricing.write'], scope: 'Self', entityId: null });
      for (const [client, entity] of [
        [self, supplier],
        [nobody, supplier],
        [nobody, customer],
      ] as const) {
        // biome-ignore format: a table
        expectRefused(await client.get(used(Id, entity)), 404, 'not_found');
        expectRefused(await client.post(used(Id, entity)), 404, 'not_found');
      }
      expect((await self.get(used(Id, customer))).body.Used).to.equal(false);
      expect((await self.post(used(Id, customer))).status).to.equal(201);
      expect((await self.get(used(Id, customer))).body.Used).to.equal(true);
    });

    it('a use is visible in its tenant only', async () => {
      const { Id } = await promote();
      const globex = await world.login(world.globex);
      await globex.post('/api/v1/Entities', { Name: 'Theirs', EntityType: 'customer' });
      expectRefused(await globex.get(used(Id, 1)), 404, 'not_found');
      expectRefused(await globex.post(used(Id, 1)), 404, 'not_found');
    });
  });
});

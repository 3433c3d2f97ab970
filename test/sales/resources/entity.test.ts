import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import type { Client } from '../../support/client.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { expectPositiveParameter, expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/Entities';
const shop = { Name: 'Corner Shop', EntityType: 'customer' };

describe('entities', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const create = async (more: object = {}): Promise<Record<string, never>> => {
    const response = await admin.post(path, { ...shop, ...more });
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response.body;
  };

  describe('pages of entities', () => {
    let globex: Client;
    let ids: number[];

    before(async () => {
      globex = await world.login(world.globex);
      await sql(
        world.globex,
        `insert into entities (name, entity_type) select 'Entity ' || n, 'customer' from generate_series(1, 1005) n`,
      );
      const rows = await sql<{ id: string }>(
        world.globex,
        'select id from entities order by entities.id',
      );
      ids = rows.map(({ id }) => Number(id));
    });
    const page = async (query: string): Promise<number[]> => {
      const { status, body } = await globex.get(`${path}${query}`);
      expect(status).to.equal(200);
      return body.map(({ Id }: { Id: number }) => Id);
    };

    it('a page of entities has 20 records, or as many as limit says, and never more than 1,000', async () => {
      expect(await page('')).to.deep.equal(ids.slice(0, 20));
      expect(await page('?limit=1')).to.deep.equal(ids.slice(0, 1));
      expect(await page('?limit=21')).to.deep.equal(ids.slice(0, 21));
      expect(await page('?limit=1000')).to.deep.equal(ids.slice(0, 1_000));
      expect(await page('?limit=1001')).to.deep.equal(ids.slice(0, 1_000));
      expect(await page(`?limit=${'9'.repeat(400)}`)).to.deep.equal(ids.slice(0, 1_000));
    });

    it('pages of entities follow one another without gap or repetition, until an empty page', async () => {
      const seen: number[] = [];
      for (
        let part = await page('?limit=300');
        part.length > 0;
        part = await page(`?limit=300&after=${seen.at(-1)}`)
      ) {
        seen.push(...part);
      }

      expect(seen).to.deep.equal(ids);
      expect(await page(`?after=${Number.MAX_SAFE_INTEGER}`)).to.deep.equal([]);
    });

    it('the next page of entities is right when the last record of the page before was deleted', async () => {
      const [first, deleted, next] = ids as [number, number, number];
      await globex.delete(`${path}/${deleted}`);
      ids = ids.filter(id => id !== deleted);
      expect((await page(`?after=${deleted}`))[0]).to.equal(next);
      expect((await page(`?after=${first}`))[0]).to.equal(next);
    });

    for (const name of ['limit', 'after']) {
      it(`a page of entities is refused when ${name} is not a positive whole number, or is given twice`, async () => {
        await expectPositiveParameter(globex, path, name);
      });
    }
  });

  it('an entity shows the title of its status, and a request cannot set the title', async () => {
    const entity = await create({ StatusId: 2, StatusTitle: 'Mine' });
    expect(entity).to.include({ StatusId: 2, StatusTitle: 'Active' });
    const changed = await admin.put(`${path}/${entity.Id}`, { ...shop, StatusId: 3 });
    expect(changed.body).to.include({ StatusId: 3, StatusTitle: 'Inactive' });
    const listed = (await admin.get(`${path}?limit=1000`)).body;
    expect(listed).to.deep.include(changed.body);
  });

  it('an entity that refers to a missing or deleted record is refused with an error for the field', async () => {
    const { body: currency } = await admin.post('/api/v1/Currency', { Code: 'DEM', Name: 'Mark' });
    await admin.post('/api/v1/Countries', { CountryCode: 'DD', CountryName: 'Gone' });
    await admin.delete(`/api/v1/Currency/${currency.Id}`);
    await admin.delete('/api/v1/Countries/code/DD');

    const entity = await create();
    const audited = await newestAudit(admin);
    const wrong = {
      StatusId: [99_999],
      CurrencyId: [currency.Id, 99_999],
      CountryCode: ['DD', 'dd', 'nowhere'],
    };

    for (const [field, values] of Object.entries(wrong)) {
      for (const value of values) {
        expectRefused(
          await admin.post(path, { ...shop, [field]: value }),
          400,
          'validation_failed',
          [field],
        );
        const changed = await admin.put(`${path}/${entity.Id}`, { ...shop, [field]: value });
        expectRefused(changed, 400, 'validation_failed', [field]);
      }
    }

    expect((await admin.get(`${path}/${entity.Id}`)).body).to.deep.equal(entity);
    expect(await newestAudit(admin)).to.equal(audited);
  });

  it('an entity accepts its country code in any letter case and shows the stored spelling', async () => {
    await admin.post('/api/v1/Countries', { CountryCode: 'No', CountryName: 'Norway' });
    expect(await create({ CountryCode: 'NO' })).to.include({ CountryCode: 'No' });
  });

  it('an entity can have the largest id that a JSON number holds exactly', async () => {
    const largest = Number.MAX_SAFE_INTEGER;
    await sql(
      world.acme,
      `insert into entities (id, name, entity_type) values ($1, 'Last', 'customer')`,
      [largest],
    );

    const { status, body } = await admin.get(`${path}/${largest}`);
    expect(status).to.equal(200);
    expect(body.Id).to.equal(largest);

    expect((await admin.delete(`${path}/${largest}`)).status).to.equal(204);
  });

  it('an entity cannot be deleted while users belong to it', async () => {
    const { body } = await admin.post('/api/v1/Entities', {
      Name: 'Employer',
      EntityType: 'customer',
    });
    await world.loginAs(world.acme, { scope: 'Self', entityId: body.Id });
    const refused = await admin.delete(`/api/v1/Entities/${body.Id}`);
    expect(refused.status).to.equal(400);
    expect(refused.body.code).to.equal('in_use');
    expect((await admin.get(`/api/v1/Entities/${body.Id}`)).status).to.equal(200);
  });

  it('an entity can keep a deleted currency and country, but not change to another deleted one', async () => {
    const currency = (await admin.post('/api/v1/Currency', { Code: 'OLD', Name: 'Old' })).body;
    const other = (await admin.post('/api/v1/Currency', { Code: 'OTH', Name: 'Other' })).body;
    await admin.post('/api/v1/Countries', { CountryCode: 'OLDLAND', CountryName: 'Old land' });

    const record = {
      Name: 'Keeper',
      EntityType: 'supplier',
      CurrencyId: currency.Id,
      CountryCode: 'OLDLAND',
    };
    const { body } = await admin.post('/api/v1/Entities', record);

    await admin.delete(`/api/v1/Currency/${currency.Id}`);
    await admin.delete(`/api/v1/Currency/${other.Id}`);
    await admin.delete('/api/v1/Countries/code/OLDLAND');

    const renamed = await admin.put(`/api/v1/Entities/${body.Id}`, { ...record, Name: 'Renamed' });
    expect(renamed.status).to.equal(200);
    expect(renamed.body.Name).to.equal('Renamed');

    const refused = await admin.put(`/api/v1/Entities/${body.Id}`, {
      ...record,
      CurrencyId: other.Id,
    });
    expect(refused.body.errors).to.have.property('CurrencyId');
  });

  describe('entities for a caller of scope Self', () => {
    let own: Record<string, never>;
    let other: Record<string, never>;
    let self: Client;
    let selfWithoutEntity: Client;

    before(async () => {
      own = await create({ Name: 'Own' });
      other = await create({ Name: 'Other' });
      self = await world.loginAs(world.acme, {
        permissions: [...permissions],
        scope: 'Self',
        entityId: own.Id ?? null,
      });
      selfWithoutEntity = await world.loginAs(world.acme, {
        permissions: [...permissions],
        scope: 'Self',
        entityId: null,
      });
    });

    it('a caller of scope Self reads its own entity, and every other is a 404', async () => {
      for (const query of ['', '?limit=1000', `?after=${Number(own.Id) - 1}`]) {
        expect((await self.get(`${path}${query}`)).body).to.deep.equal([own]);
      }
      expect((await self.get(`${path}?after=${own.Id}`)).body).to.deep.equal([]);
      expect((await self.get(`${path}/${own.Id}`)).body).to.deep.equal(own);
      expectRefused(await self.get(`${path}/${other.Id}`), 404, 'not_found');
    });

    it('a caller of scope Self changes its own entity, and gets 404 for every other one, which does not change', async () => {
      const changed = await self.put(`${path}/${own.Id}`, { ...shop, Name: 'Renamed' });
      expect(changed.status).to.equal(200);
      expect(changed.body.Name).to.equal('Renamed');

      expectRefused(
        await self.put(`${path}/${other.Id}`, { ...shop, Name: 'Taken' }),
        404,
        'not_found',
      );
      expect((await admin.get(`${path}/${other.Id}`)).body).to.deep.equal(other);
      own = changed.body;
    });

    it('a caller of scope Self can neither create nor delete any entity', async () => {
      const audited = await newestAudit(admin);
      expectRefused(await self.post(path, shop), 403, 'forbidden');
      for (const { Id } of [own, other, { Id: 99_999 }]) {
        expectRefused(await self.delete(`${path}/${Id}`), 403, 'forbidden');
      }
      expect(await newestAudit(admin)).to.equal(audited);
    });

    it('a caller of scope Self without an entity can neither read, change, create nor delete any entity', async () => {
      expect((await selfWithoutEntity.get(path)).body).to.deep.equal([]);
      expectRefused(await selfWithoutEntity.get(`${path}/${own.Id}`), 404, 'not_found');
      expectRefused(await selfWithoutEntity.put(`${path}/${own.Id}`, shop), 404, 'not_found');
      expectRefused(await selfWithoutEntity.post(path, shop), 403, 'forbidden');
      expectRefused(await selfWithoutEntity.delete(`${path}/${own.Id}`), 403, 'forbidden');
    });
  });
});

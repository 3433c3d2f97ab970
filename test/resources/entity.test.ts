import { expect } from 'chai';
import { permissions } from '../../src/control/permissions.ts';
import type { Client } from '../support/client.ts';
import { createWorld, sql, type World } from '../support/world.ts';
import { expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/Entities';
const shop = { Name: 'Corner Shop', EntityType: 'customer' };

describe('Entity', () => {
  let world: World;
  let admin: Client;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
  });
  after(() => world.close());

  const create = async (more: object = {}): Promise<Record<string, never>> => {
    const answer = await admin.post(path, { ...shop, ...more });
    expect(answer.status, JSON.stringify(answer.body)).to.equal(201);
    return answer.body;
  };

  describe('pages', () => {
    let globex: Client;
    let ids: number[];

    before(async () => {
      globex = await world.login(world.globex);
      await sql(
        world.globex,
        `insert into entities (name, entity_type) select 'Entity ' || n, 'customer' from generate_series(1, 1005) n`,
      );
      const rows = await sql<{ id: string }>(world.globex, 'select id from entities order by entities.id');
      ids = rows.map(({ id }) => Number(id));
    });
    const page = async (query: string): Promise<number[]> => {
      const { status, body } = await globex.get(`${path}${query}`);
      expect(status).to.equal(200);
      return body.map(({ Id }: { Id: number }) => Id);
    };

    it('a page has 20 records by default and at most 1,000', async () => {
      expect(await page('')).to.deep.equal(ids.slice(0, 20));
      expect(await page('?limit=1')).to.deep.equal(ids.slice(0, 1));
      expect(await page('?limit=21')).to.deep.equal(ids.slice(0, 21));
      expect(await page('?limit=1000')).to.deep.equal(ids.slice(0, 1_000));
      expect(await page('?limit=1001')).to.deep.equal(ids.slice(0, 1_000));
      expect(await page(`?limit=${'9'.repeat(400)}`)).to.deep.equal(ids.slice(0, 1_000));
    });

    it('consecutive pages have no gap and no repetition, and the last is empty', async () => {
      const seen: number[] = [];
      for (let part = await page('?limit=300'); part.length > 0; part = await page(`?limit=300&after=${seen.at(-1)}`)) {
        seen.push(...part);
      }
      expect(seen).to.deep.equal(ids);
      expect(await page(`?after=${Number.MAX_SAFE_INTEGER}`)).to.deep.equal([]);
    });

    it('a page can start after a deleted record', async () => {
      const [first, gone, next] = ids as [number, number, number];
      await globex.delete(`${path}/${gone}`);
      expect((await page(`?after=${gone}`))[0]).to.equal(next);
      expect((await page(`?after=${first}`))[0]).to.equal(next);
    });

    for (const name of ['limit', 'after'])
      it(`a page is rejected when ${name} is not a positive integer, or is repeated`, async () => {
        const values = ['0', '-1', 'abc', '1e3', '%20', '', '1.5', '01', '+1', ' 1', '0x10', 'NaN', '1%00', '１'];
        for (const value of values) {
          expectRefused(await globex.get(`${path}?${name}=${value}`), 400, 'validation_failed', [name]);
        }
        for (const query of [`${name}=1&${name}=1`, `${name}[]=1`, `${name}[$gt]=0`, `${name}%5B%5D=1`]) {
          expectRefused(await globex.get(`${path}?${query}`), 400, 'validation_failed', [name]);
        }
      });
  });

  it('an entity shows the title of its status, and cannot set it', async () => {
    const entity = await create({ StatusId: 2, StatusTitle: 'Mine' });
    expect(entity).to.include({ StatusId: 2, StatusTitle: 'Active' });
    const changed = await admin.put(`${path}/${entity.Id}`, { ...shop, StatusId: 3 });
    expect(changed.body).to.include({ StatusId: 3, StatusTitle: 'Inactive' });
    const listed = (await admin.get(`${path}?limit=1000`)).body;
    expect(listed).to.deep.include(changed.body);
  });

  it('a reference to a missing or deleted record is rejected by the name of the field, and nothing is stored', async () => {
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
    for (const [field, values] of Object.entries(wrong))
      for (const value of values) {
        expectRefused(await admin.post(path, { ...shop, [field]: value }), 400, 'validation_failed', [field]);
        const changed = await admin.put(`${path}/${entity.Id}`, { ...shop, [field]: value });
        expectRefused(changed, 400, 'validation_failed', [field]);
      }
    expect((await admin.get(`${path}/${entity.Id}`)).body).to.deep.equal(entity);
    expect(await newestAudit(admin)).to.equal(audited);
  });

  it('the country is found in any letter case, and returned in its own spelling', async () => {
    await admin.post('/api/v1/Countries', { CountryCode: 'No', CountryName: 'Norway' });
    expect(await create({ CountryCode: 'NO' })).to.include({ CountryCode: 'No' });
  });

  it('ids up to the largest safe integer of JSON are stored exactly', async () => {
    const largest = Number.MAX_SAFE_INTEGER;
    await sql(world.acme, `insert into entities (id, name, entity_type) values ($1, 'Last', 'customer')`, [largest]);
    const { status, body } = await admin.get(`${path}/${largest}`);
    expect([status, body.Id]).to.deep.equal([200, largest]);
    expect((await admin.delete(`${path}/${largest}`)).status).to.equal(204);
  });

  it('an entity with users cannot be deleted', async () => {
    const { body } = await admin.post('/api/v1/Entities', { Name: 'Employer', EntityType: 'customer' });
    await world.loginAs(world.acme, { scope: 'Self', entityId: body.Id });
    const refused = await admin.delete(`/api/v1/Entities/${body.Id}`);
    expect([refused.status, refused.body.code]).to.deep.equal([400, 'in_use']);
    expect((await admin.get(`/api/v1/Entities/${body.Id}`)).status).to.equal(200);
  });

  it('an entity with a deleted currency and country can be changed, but not to other deleted ones', async () => {
    const currency = (await admin.post('/api/v1/Currency', { Code: 'OLD', Name: 'Old' })).body;
    const other = (await admin.post('/api/v1/Currency', { Code: 'OTH', Name: 'Other' })).body;
    await admin.post('/api/v1/Countries', { CountryCode: 'OLDLAND', CountryName: 'Old land' });
    const record = { Name: 'Keeper', EntityType: 'supplier', CurrencyId: currency.Id, CountryCode: 'OLDLAND' };
    const { body } = await admin.post('/api/v1/Entities', record);
    await admin.delete(`/api/v1/Currency/${currency.Id}`);
    await admin.delete(`/api/v1/Currency/${other.Id}`);
    await admin.delete('/api/v1/Countries/code/OLDLAND');
    const renamed = await admin.put(`/api/v1/Entities/${body.Id}`, { ...record, Name: 'Renamed' });
    expect([renamed.status, renamed.body.Name]).to.deep.equal([200, 'Renamed']);
    const refused = await admin.put(`/api/v1/Entities/${body.Id}`, { ...record, CurrencyId: other.Id });
    expect(refused.body.errors).to.have.property('CurrencyId');
  });

  describe('for a caller of scope Self', () => {
    let own: Record<string, never>;
    let other: Record<string, never>;
    let self: Client;
    let nobody: Client;

    before(async () => {
      own = await create({ Name: 'Own' });
      other = await create({ Name: 'Other' });
      self = await world.loginAs(world.acme, {
        permissions: [...permissions],
        scope: 'Self',
        entityId: own.Id ?? null,
      });
      nobody = await world.loginAs(world.acme, { permissions: [...permissions], scope: 'Self', entityId: null });
    });

    it('only the caller’s own entity is visible', async () => {
      for (const query of ['', '?limit=1000', `?after=${Number(own.Id) - 1}`]) {
        expect((await self.get(`${path}${query}`)).body).to.deep.equal([own]);
      }
      expect((await self.get(`${path}?after=${own.Id}`)).body).to.deep.equal([]);
      expect((await self.get(`${path}/${own.Id}`)).body).to.deep.equal(own);
      expectRefused(await self.get(`${path}/${other.Id}`), 404, 'not_found');
    });

    it('the caller’s own entity can be changed; any other gets 404 and stays unchanged', async () => {
      const changed = await self.put(`${path}/${own.Id}`, { ...shop, Name: 'Renamed' });
      expect([changed.status, changed.body.Name]).to.deep.equal([200, 'Renamed']);
      expectRefused(await self.put(`${path}/${other.Id}`, { ...shop, Name: 'Taken' }), 404, 'not_found');
      expect((await admin.get(`${path}/${other.Id}`)).body).to.deep.equal(other);
      own = changed.body;
    });

    it('no entity can be created or deleted', async () => {
      const audited = await newestAudit(admin);
      expectRefused(await self.post(path, shop), 403, 'forbidden');
      for (const { Id } of [own, other, { Id: 99_999 }]) {
        expectRefused(await self.delete(`${path}/${Id}`), 403, 'forbidden');
      }
      expect(await newestAudit(admin)).to.equal(audited);
    });

    it('no entity is visible when the caller has none', async () => {
      expect((await nobody.get(path)).body).to.deep.equal([]);
      expectRefused(await nobody.get(`${path}/${own.Id}`), 404, 'not_found');
      expectRefused(await nobody.put(`${path}/${own.Id}`, shop), 404, 'not_found');
      expectRefused(await nobody.post(path, shop), 403, 'forbidden');
      expectRefused(await nobody.delete(`${path}/${own.Id}`), 403, 'forbidden');
    });
  });
});

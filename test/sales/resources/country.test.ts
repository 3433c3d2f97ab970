import { expect } from 'chai';
import { useLogin, useWorld } from '../../support/world.ts';
import { auditOf, expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/Countries';

describe('countries', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('a PUT finds a country by the code in the body in any letter case, and keeps the stored spelling', async () => {
    await admin.post(path, { CountryCode: 'No', CountryName: 'Norwegen' });

    for (const CountryCode of ['No', 'NO', ' no ']) {
      const CountryName = `Norway ${CountryCode}`.trim();
      const { status, body } = await admin.put(path, { CountryCode, CountryName });
      expect(status).to.equal(200);
      expect(body.CountryCode).to.equal('No');
      expect(body.CountryName).to.equal(CountryName);
    }

    const actions = (await auditOf(admin, 'Country', 'No')).map(({ Action }) => Action);
    expect(actions).to.deep.equal(['create', 'update', 'update', 'update']);
  });

  it('a country has no PUT with a path, no DELETE of the collection and no GET without /code', async () => {
    await admin.post(path, { CountryCode: 'SE', CountryName: 'Sweden' });
    expectRefused(
      await admin.put(`${path}/code/SE`, { CountryName: 'Other' }),
      405,
      'method_not_allowed',
    );
    expectRefused(await admin.delete(path), 405, 'method_not_allowed');
    expectRefused(await admin.get(`${path}/SE`), 404, 'not_found');
  });

  it('a country code with a composed accent equals the one with a combining accent', async () => {
    const composed = await admin.post(path, { CountryCode: '\u00e9', CountryName: 'Accented' });
    expect(composed.status).to.equal(201);
    expectRefused(
      await admin.post(path, { CountryCode: 'e\u0301', CountryName: 'Again' }),
      400,
      'duplicate',
    );
    expect((await admin.get(`${path}/code/e%CC%81`)).body).to.deep.equal(composed.body);
    expect((await admin.delete(`${path}/code/E%CC%81`)).status).to.equal(204);
  });

  it('the last of several values of a field in a country body is validated, stored, returned and audited', async () => {
    const { status, body } = await admin.post(
      path,
      '{"CountryCode":"AA","CountryName":"Twice","CountryCode":"BB"}',
    );

    expect(status).to.equal(201);
    expect(body.CountryCode).to.equal('BB');
    expectRefused(await admin.get(`${path}/code/AA`), 404, 'not_found');
    expect((await auditOf(admin, 'Country', 'BB'))[0]?.After).to.deep.equal(body);

    expectRefused(
      await admin.post(path, '{"CountryCode":"CC","CountryName":"Twice","CountryCode":""}'),
      400,
      'validation_failed',
      ['CountryCode'],
    );
  });

  it('a country can be deleted while entities refer to it, and the entities do not change', async () => {
    await admin.post(path, { CountryCode: 'DK', CountryName: 'Denmark' });
    const entity = { Name: 'Corner Shop', EntityType: 'customer', CountryCode: 'DK' };
    const { body: holder } = await admin.post('/api/v1/Entities', entity);
    const audited = await newestAudit(admin);
    expect((await admin.delete(`${path}/code/DK`)).status).to.equal(204);
    expect((await admin.get(`/api/v1/Entities/${holder.Id}`)).body).to.deep.equal(holder);
    expect(await newestAudit(admin)).to.equal(audited + 1);
  });

  it('the list of countries is a 404 when all are deleted, and has them with includeDeleted=true', async () => {
    const globex = await world.login(world.globex);
    await globex.post(path, { CountryCode: 'IS', CountryName: 'Iceland' });
    await globex.delete(`${path}/code/IS`);
    expectRefused(await globex.get(path), 404, 'not_found');
    const { status, body } = await globex.get(`${path}?includeDeleted=true`);
    expect(status).to.equal(200);
    expect(body.length).to.equal(1);
    expect(body[0].IsDeleted).to.equal(true);
  });

  it('a reader gets a country or a 404 while countries are created and deleted', async () => {
    const reads: number[] = [];
    let writing = true;
    const reader = (async () => {
      while (writing) {
        reads.push((await admin.get(path)).status, (await admin.get(`${path}/code/FI-1`)).status);
      }
    })();

    for (let n = 0; n < 20; n++) {
      const created = await admin.post(path, { CountryCode: `FI-${n}`, CountryName: 'Finland' });
      expect(created.status).to.equal(201);
      expect((await admin.delete(`${path}/code/FI-${n}`)).status).to.equal(204);
    }

    writing = false;
    await reader;

    expect(reads.filter(status => status !== 200 && status !== 404)).to.deep.equal([]);
  });
});

import { expect } from 'chai';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { auditOf, expectRefused, newestAudit } from './expect.ts';

const path = '/api/v1/EntityStatus';

describe('entity statuses', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('a new tenant has the entity statuses Prospect, Active and Inactive, ordered by weighting, and its next one gets the id 4', async () => {
    const fresh = await world.login(await world.provision('initech'));
    const { status, body } = await fresh.get(path);

    expect(status).to.equal(200);
    expect(
      body.map(({ Id, Title, Weighting }: Record<string, unknown>) => [Id, Title, Weighting]),
    ).to.deep.equal([
      [1, 'Prospect', 0],
      [2, 'Active', 1],
      [3, 'Inactive', 2],
    ]);
    expect((await fresh.post(path, { Title: 'Fourth', Weighting: 100 })).body.Id).to.equal(4);
  });

  it('each change of an entity status writes one audit entry, and a PUT without a change none', async () => {
    const created = await admin.post(path, { Title: 'Lead' });
    expect(created.status).to.equal(201);
    await admin.put(`${path}/${created.body.Id}`, { Title: 'Lead', Weighting: 7 });
    await admin.put(`${path}/${created.body.Id}`, { Title: 'Lead', Weighting: 7 });
    await admin.delete(`${path}/${created.body.Id}`);

    const entries = await sql<Record<string, never>>(
      world.acme,
      'select * from audit_log where record_key = $1 order by id',
      [String(created.body.Id)],
    );

    expect(entries.map(({ action }) => action)).to.deep.equal(['create', 'update', 'delete']);
    expect(entries[1]?.before).to.include({ title: 'Lead', weighting: 0 });
    expect(entries[1]?.after).to.include({ title: 'Lead', weighting: 7 });
  });

  it('a predefined entity status can be renamed, and entities show the new title at once', async () => {
    await admin.put(`${path}/1`, { Title: 'Prospect', Weighting: 0 });
    const entity = await admin.post('/api/v1/Entities', {
      Name: 'Nordic Timber',
      EntityType: 'supplier',
    });
    expect(entity.body).to.include({ StatusId: 1, StatusTitle: 'Prospect' });

    const renamed = await admin.put(`${path}/1`, { Title: 'Newcomer' });
    expect(renamed.status).to.equal(200);
    expect(renamed.body.Title).to.equal('Newcomer');
    expect(renamed.body.Weighting).to.equal(0);
    expect((await admin.get(`/api/v1/Entities/${entity.body.Id}`)).body.StatusTitle).to.equal(
      'Newcomer',
    );

    await admin.put(`${path}/1`, { Title: 'Prospect' });
    await admin.delete(`/api/v1/Entities/${entity.body.Id}`);
  });

  it('a PUT of an entity status changes only the fields that it sends', async () => {
    const { body: status } = await admin.post(path, { Title: 'Lead', Weighting: 5 });
    const url = `${path}/${status.Id}`;

    expect((await admin.put(url, { Title: 'Warm lead' })).body).to.deep.equal({
      ...status,
      Title: 'Warm lead',
    });
    expect((await admin.put(url, { weighting: 0 })).body).to.deep.equal({
      ...status,
      Title: 'Warm lead',
      Weighting: 0,
    });

    expect((await admin.get(url)).body).to.deep.equal({
      ...status,
      Title: 'Warm lead',
      Weighting: 0,
    });
  });

  it('a PUT of an entity status takes the id from the path and ignores one in the body', async () => {
    const { body: status } = await admin.post(path, { Title: 'Lead', Weighting: 5 });
    const response = await admin.put(`${path}/${status.Id}`, { Id: 2, Title: 'Still me' });
    expect(response.body).to.include({ Id: status.Id, Title: 'Still me' });
    expect((await admin.get(`${path}/2`)).body.Title).to.equal('Active');
  });

  it('a PUT of an entity status without a known field or with an empty title changes nothing', async () => {
    const { body: status } = await admin.post(path, { Title: 'Lead', Weighting: 5 });
    const url = `${path}/${status.Id}`;
    const audited = await newestAudit(admin);

    for (const body of [undefined, '', {}, { TITLE: 'Other' }, { Id: 3 }]) {
      expectRefused(await admin.put(url, body), 400, 'validation_failed', ['Title', 'Weighting']);
    }
    expectRefused(await admin.put(url, { Title: ' ', Weighting: 6 }), 400, 'validation_failed', [
      'Title',
    ]);
    expectRefused(
      await admin.put(url, { Title: 'Other', Weighting: '6' }),
      400,
      'validation_failed',
      ['Weighting'],
    );

    expect((await admin.get(url)).body).to.deep.equal(status);
    expect(await newestAudit(admin)).to.equal(audited);
  });

  it('an entity status cannot be deleted while an entity refers to it', async () => {
    const { body: status } = await admin.post(path, { Title: 'Referred to' });
    const entity = { Name: 'Corner Shop', EntityType: 'customer' };
    const { body: holder } = await admin.post('/api/v1/Entities', {
      ...entity,
      StatusId: status.Id,
    });
    const audited = await newestAudit(admin);

    expectRefused(await admin.delete(`${path}/${status.Id}`), 400, 'in_use');
    expect((await admin.get(`${path}/${status.Id}`)).body).to.deep.equal(status);
    expect((await admin.get(`/api/v1/Entities/${holder.Id}`)).body.StatusTitle).to.equal(
      'Referred to',
    );
    expect(await newestAudit(admin)).to.equal(audited);

    await admin.put(`/api/v1/Entities/${holder.Id}`, { ...entity, StatusId: 1 });
    expect((await admin.delete(`${path}/${status.Id}`)).status).to.equal(204);
    expect(
      (await auditOf(admin, 'EntityStatus', status.Id)).map(({ Action }) => Action),
    ).to.deep.equal(['create', 'delete']);
  });

  it('an entity without a StatusId gets the default status, which may be renamed but not deleted', async () => {
    const entity = { Name: 'Corner Shop', EntityType: 'customer' };
    await admin.put(`${path}/1`, { Title: 'Renamed', Weighting: 50 });
    const { body: created } = await admin.post('/api/v1/Entities', entity);
    expect(created).to.include({ StatusId: 1, StatusTitle: 'Renamed' });
    const { body: moved } = await admin.put(`/api/v1/Entities/${created.Id}`, {
      ...entity,
      StatusId: 2,
    });
    expect(moved.StatusId).to.equal(2);
    const { body: reset } = await admin.put(`/api/v1/Entities/${created.Id}`, entity);
    expect(reset.StatusId).to.equal(1);

    const globex = await world.login(world.globex); // no entity refers to a status there
    expectRefused(await globex.delete(`${path}/1`), 400, 'in_use');
    expect((await globex.delete(`${path}/2`)).status).to.equal(204);
    await sql(world.globex, 'update default_entity_status set status_id = 3');
    expect((await globex.delete(`${path}/1`)).status).to.equal(204);
    expect((await globex.post('/api/v1/Entities', entity)).body.StatusTitle).to.equal('Inactive');
    // A tenant that had no status when the default was introduced.
    await sql(world.globex, 'delete from default_entity_status');
    expect((await globex.post('/api/v1/Entities', entity)).body.StatusTitle).to.equal('Inactive');
  });

  it('entity statuses are listed by ascending weighting, negative ones first, and equal ones by id', async () => {
    const create = async (Weighting: number): Promise<number> =>
      (await admin.post(path, { Title: `Weighing ${Weighting}`, Weighting })).body.Id;

    const [b, c, a, d] = [
      await create(-20),
      await create(-10),
      await create(-(2 ** 31)),
      await create(-10),
    ];

    await admin.put(`${path}/${c}`, { Title: 'Moved to the end of the table' });
    const { body } = await admin.get(path);
    expect(body.slice(0, 4).map(({ Id }: { Id: number }) => Id)).to.deep.equal([a, b, c, d]);
  });
});

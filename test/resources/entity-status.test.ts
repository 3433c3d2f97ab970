import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { createWorld, sql, type World } from '../support/world.ts';

describe('EntityStatus', () => {
  let world: World;
  let admin: Client;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
  });
  after(() => world.close());

  it('begins with Prospect, Active and Inactive, in the order of their weighting', async () => {
    const { status, body } = await admin.get('/api/v1/EntityStatus');
    expect(status).to.equal(200);
    expect(body.map(({ Id, Title, Weighting }: Record<string, unknown>) => [Id, Title, Weighting])).to.deep.equal([
      [1, 'Prospect', 0],
      [2, 'Active', 1],
      [3, 'Inactive', 2],
    ]);
  });

  it('writes one audit entry with who, what, before and after for each change', async () => {
    const created = await admin.post('/api/v1/EntityStatus', { Title: 'Lead' });
    expect(created.status).to.equal(201);
    await admin.put(`/api/v1/EntityStatus/${created.body.Id}`, { Title: 'Lead', Weighting: 7 });
    await admin.put(`/api/v1/EntityStatus/${created.body.Id}`, { Title: 'Lead', Weighting: 7 });
    await admin.delete(`/api/v1/EntityStatus/${created.body.Id}`);
    const entries = await sql<Record<string, never>>(
      world.acme,
      'select * from audit_log where record_key = $1 order by id',
      [String(created.body.Id)],
    );
    expect(entries.map(({ action }) => action)).to.deep.equal(['create', 'update', 'delete']);
    expect(entries[1]?.before).to.include({ title: 'Lead', weighting: 0 });
    expect(entries[1]?.after).to.include({ title: 'Lead', weighting: 7 });
  });
});

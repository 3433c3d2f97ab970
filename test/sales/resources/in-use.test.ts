import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import { resources } from '../../../src/sales/resources/index.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { createReferences } from './examples.ts';
import { expectRefused } from './expect.ts';

describe('a record that others refer to', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  const promotion = { Name: 'Sale', DiscountType: 'Percentage', DiscountValue: 5 };
  const entity = { Name: 'Used', EntityType: 'customer' };

  it('in_use names the resources that refer to an entity, and how many records of each do', async () => {
    const { body } = await admin.post('/api/v1/Entities', entity);
    const twin = await globex.post('/api/v1/Entities', entity);
    for (const PromoCode of ['ONE', 'TWO']) {
      await admin.post('/api/v1/Promotions', { ...promotion, PromoCode, EntityIds: [body.Id] });
    }
    const every = await admin.post('/api/v1/Promotions', { ...promotion, PromoCode: 'ALL' });
    await admin.post(`/api/v1/Promotions/${every.body.Id}/entity/${body.Id}/used`);
    await world.loginAs(world.acme, { scope: 'Self', entityId: body.Id });
    const till = { Name: 'Till', Role: 'Member', Scope: 'Self', EntityId: body.Id };
    await admin.post('/api/v1/Programs', till);

    const refused = await admin.delete(`/api/v1/Entities/${body.Id}`);
    const used = await admin.delete(`/api/v1/Promotions/${every.body.Id}`);
    const elsewhere = await globex.delete(`/api/v1/Entities/${twin.body.Id}`);

    expectRefused(refused, 400, 'in_use');
    expect(refused.body.references).to.have.deep.members([
      { resource: 'Promotion', count: 2 },
      { resource: 'PromotionUse', count: 1 },
      { resource: 'User', count: 1 },
      { resource: 'Program', count: 1 },
    ]);
    expect(used.body.references).to.deep.equal([{ resource: 'PromotionUse', count: 1 }]);
    expect(elsewhere.status).to.equal(204);
  });

  it('in_use counts only what the caller may read', async () => {
    const status = (await admin.post('/api/v1/EntityStatus', { Title: 'Counted' })).body;
    const ids: number[] = [];
    for (const Name of ['A', 'B', 'C']) {
      const made = await admin.post('/api/v1/Entities', { ...entity, Name, StatusId: status.Id });
      ids.push(made.body.Id);
    }
    const self = await world.loginAs(world.acme, {
      permissions: [...permissions],
      scope: 'Self',
      entityId: ids[0] ?? 0,
    });
    await world.loginAs(world.acme, { entityId: ids[1] ?? 0 });
    const manager = await world.loginAs(world.acme, { permissions: ['full.manage'] });
    const path = `/api/v1/EntityStatus/${status.Id}`;

    const all = await admin.delete(path);
    const own = await self.delete(path);
    const hidden = await manager.delete(`/api/v1/Entities/${ids[1]}`);

    expect(all.body.references).to.deep.equal([{ resource: 'Entity', count: 3 }]);
    expect(own.body.references).to.deep.equal([{ resource: 'Entity', count: 1 }]);
    expectRefused(hidden, 400, 'in_use');
    expect(hidden.body.references).to.deep.equal([]);
    expect(hidden.body.detail).to.match(/nothing that you may read/);
  });

  it('the default status is in use without a record that refers to it', async () => {
    const made = (await admin.post('/api/v1/EntityStatus', { Title: 'Default' })).body;
    await sql(world.acme, 'update default_entity_status set status_id = $1', [made.Id]);

    const refused = await admin.delete(`/api/v1/EntityStatus/${made.Id}`);

    expectRefused(refused, 400, 'in_use');
    expect(refused.body.references).to.deep.equal([]);
    expect(refused.body.detail).to.match(/default status/);
  });

  it('a role is in use by so many users and programs that have it, for a caller who may read users', async () => {
    const role = (await admin.post('/api/v1/Roles', { Name: 'Used', Permissions: [] })).body;
    const person = { FirstName: 'A', LastName: 'B', Role: 'Used', Scope: 'All' };
    await admin.post('/api/v1/Users', { ...person, Email: 'used@in-use.test' });
    for (const Name of ['Till', 'Import']) {
      await admin.post('/api/v1/Programs', { Name, Role: 'Used', Scope: 'All' });
    }
    const manager = await world.loginAs(world.acme, { permissions: ['users.manage'] });

    const refused = await admin.delete(`/api/v1/Roles/${role.Id}`);
    const hidden = await manager.delete(`/api/v1/Roles/${role.Id}`);

    expectRefused(refused, 400, 'in_use');
    expect(refused.body.references).to.deep.equal([
      { resource: 'User', count: 1 },
      { resource: 'Program', count: 2 },
    ]);
    expectRefused(hidden, 400, 'in_use');
    expect(hidden.body.references).to.deep.equal([]);
  });

  it('every foreign key to the table of a resource has a resource that in_use can name', async () => {
    await createReferences(admin);
    const keys = await sql<{ table: string; target: string }>(
      world.acme,
      `select conrelid::regclass::text as table, confrelid::regclass::text as target
         from pg_constraint where contype = 'f'`,
    );
    const names: Record<string, string> = {
      entities: 'Entity',
      promotions: 'Promotion',
      promotion_uses: 'PromotionUse',
    };

    for (const { table, target } of keys) {
      const resource = resources.find(({ definition }) => definition.table.name === target);
      if (!resource || table === 'default_entity_status') continue;
      const known = resource.definition.referrers.map(({ resource: name }) => name);
      expect(known, `${table} of ${target}`).to.include(names[table]);
    }
  });
});

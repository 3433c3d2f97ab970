import { expect } from 'chai';
import { Client } from '../support/client.ts';
import { controlSql, sql, useLogin, useWorld } from '../support/world.ts';

const entities = '/api/v1/Entities';
const permissions = [
  'full.read',
  'full.manage',
  'users.read',
  'pricing.read',
  'pricing.write',
  'settings.read',
];

describe('a user of scope Self whose entity is lost, and whose number another entity has got', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let id: number;
  let promotionId: number;
  let member: Client;
  let newcomer: Client;
  let memberId: number;

  const idsOf = ({ body }: { body: unknown }): unknown[] =>
    (Array.isArray(body) ? body : []).map(({ Id }) => Id);
  const userIdOf = async (client: Client): Promise<number> => {
    const { body } = await client.get('/api/v1/auth/me');
    const rows = await controlSql<{ id: number }>(
      world,
      'select id::int as id from users where guid = ?',
      [body.userGuid],
    );
    return rows[0]?.id ?? 0;
  };
  const invite = (EntityId: number | null, Email = 'pending@acme.test') =>
    admin.post('/api/v1/Users', {
      Email,
      FirstName: 'Pending',
      LastName: 'x',
      Role: 'Member',
      Scope: 'Self',
      EntityId,
    });

  before(async () => {
    const { body: one } = await admin.post(entities, { Name: 'One', EntityType: 'customer' });
    id = one.Id;
    await globex.post(entities, { Name: 'Theirs', EntityType: 'customer' });
    const { body: promotion } = await admin.post('/api/v1/Promotions', {
      PromoCode: 'ONE',
      Name: 'For one',
      DiscountType: 'Percentage',
      DiscountValue: 5,
      EntityIds: [id],
    });
    promotionId = promotion.Id;
    await admin.post('/api/v1/Activity', { ActivityCode: 1, EntityId: id });
    member = await world.loginAs(world.acme, { permissions, scope: 'Self', entityId: id });
    memberId = await userIdOf(member);
    expect(idsOf(await member.get(entities))).to.deep.equal([id]);
    expect((await invite(id)).status).to.equal(201);

    await sql(
      world.acme,
      `set session_replication_role = replica;
       delete from entities where id = ${id};
       insert into entities (id, name, entity_type) overriding system value values (${id}, 'Two', 'supplier')`,
    );
    newcomer = await world.loginAs(world.acme, { permissions, scope: 'Self', entityId: id });
  });

  it('reads nothing of the other entity: no record, activity, audit entry, change or promotion', async () => {
    expect(idsOf(await member.get(entities))).to.deep.equal([]);
    expect((await member.get(`${entities}/${id}`)).status).to.equal(404);
    expect(idsOf(await member.get(`${entities}?q=Two`))).to.deep.equal([]);
    const { body: csv } = await member.get(`${entities}?sort=Name`, { Accept: 'text/csv' });
    expect(String(csv)).not.to.include('Two');
    expect(idsOf(await member.get('/api/v1/Activity'))).to.deep.equal([]);
    expect(idsOf(await member.get('/api/v1/AuditLog?resource=Entity'))).to.deep.equal([]);
    expect(idsOf(await member.get('/api/v1/Changes?resource=Entity,Activity'))).to.deep.equal([]);
    expect(idsOf(await member.get('/api/v1/Promotions'))).to.deep.equal([]);
    const use = `/api/v1/Promotions/${promotionId}/entity/${id}/used`;
    expect((await member.get(use)).status).to.equal(404);

    expect(idsOf(await newcomer.get(entities))).to.deep.equal([id]);
    expect((await newcomer.get(use)).status).to.equal(200);
  });

  it('writes nothing of the other entity', async () => {
    expect((await member.patch(`${entities}/${id}`, { Name: 'Mine' })).status).to.equal(404);
    const body = { Name: 'Mine', EntityType: 'customer' };
    expect((await member.put(`${entities}/${id}`, body)).status).to.equal(404);
    expect((await member.delete(`${entities}/${id}`)).status).to.equal(403);
    const use = `/api/v1/Promotions/${promotionId}/entity/${id}/used`;
    expect((await member.post(use)).status).to.equal(404);

    const { body: activity } = await member.post('/api/v1/Activity', {
      ActivityCode: 7,
      EntityId: id,
    });

    expect(activity.EntityId).to.equal(null);
    const { body: activities } = await newcomer.get('/api/v1/Activity');
    expect(activities.map((each: { ActivityCode: number }) => each.ActivityCode)).to.deep.equal([
      1,
    ]);
    expect((await newcomer.get(`${entities}/${id}`)).body.Name).to.equal('Two');
  });

  it('has no entity type after the next refresh of its tokens', async () => {
    const { body: refreshed } = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken: member.tokens?.refreshToken },
      { 'X-Tenant': world.acme.guid },
    );

    expect(refreshed.entityType).to.equal(null);
    member = new Client(world.url, refreshed);
  });

  it('is no colleague of the users of the other entity, who see neither the user nor audit entries of the user', async () => {
    const newcomerId = await userIdOf(newcomer);

    expect(idsOf(await newcomer.get('/api/v1/Users'))).to.deep.equal([newcomerId]);
    expect((await newcomer.get(`/api/v1/Users/${memberId}`)).status).to.equal(404);
    const { body: entries } = await newcomer.get('/api/v1/AuditLog?resource=User&limit=100');
    expect(new Set(entries.map(({ Key }: { Key: string }) => Key))).to.deep.equal(
      new Set([String(newcomerId)]),
    );
    expect(idsOf(await member.get('/api/v1/AuditLog?resource=User'))).to.deep.equal([]);
  });

  it('does not get the other entity by an edit or an invitation that repeats the number, until an administrator takes the lost one away', async () => {
    const { body: user } = await admin.get(`/api/v1/Users/${memberId}`);
    const edit = (change: object) => admin.put(`/api/v1/Users/${memberId}`, { ...user, ...change });

    for (const refused of [
      await edit({ LastName: 'Corrected' }),
      await edit({ LastName: '' }),
      await invite(id),
    ]) {
      expect(refused.status, JSON.stringify(refused.body)).to.equal(400);
      expect(refused.body.errorCodes.EntityId).to.deep.equal([{ code: 'ambiguous' }]);
    }
    expect(idsOf(await member.get(entities))).to.deep.equal([]);

    expect((await edit({ EntityId: null })).status).to.equal(200);
    expect((await edit({ EntityId: id })).status).to.equal(200);
    expect((await invite(null)).status).to.equal(201);
    expect((await invite(id)).status).to.equal(201);
    const again = await world.loginAs(world.acme, { permissions, scope: 'Self', entityId: id });
    expect(idsOf(await again.get('/api/v1/Users'))).to.include(memberId);
  });
});

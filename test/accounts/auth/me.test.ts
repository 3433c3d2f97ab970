import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';
import { activeKey, claimsOf, resignToken } from './forge.ts';
import { addSampleUser } from './sample-users.ts';

const path = '/api/v1/auth/me';

describe('current user', () => {
  const world = useWorld();

  const setPermissions = (role: string, granted: string[]) =>
    controlSql(world, 'update roles set permissions = ?::text[] where name = ?', [
      `{${granted.join(',')}}`,
      role,
    ]);
  const createStatus = (client: Client) => client.post('/api/v1/EntityStatus', { Title: 'New' });

  it('the current user has tenant, role, scope, entity, permissions and features, and no other field', async () => {
    const [entity] = await sql<{ id: string }>(
      world.acme,
      `insert into entities (name, entity_type) values ('Own', 'customer') returning id`,
    );
    await controlSql(
      world,
      `update tenants set features = '{alpha,beta}', app_id = 'app-7' where id = ?`,
      [world.acme.id],
    );

    const person = await addSampleUser(world, world.acme, {
      scope: 'Self',
      entityId: Number(entity?.id),
    });
    const client = await world.login(world.acme, person);

    const { status, headers, body } = await eventually(async () => {
      const response = await client.get(path);
      return response.body.appId === 'app-7' && response;
    }, announcedMs);

    expect(status).to.equal(200);
    expect(headers.get('cache-control')).to.equal('no-store');
    expect(body).to.deep.equal({
      tokenId: claimsOf(client.tokens!.accessToken).jti,
      userGuid: person.guid,
      firstName: 'Per',
      lastName: 'Son',
      tenantId: world.acme.id,
      tenantGuid: world.acme.guid,
      tenantName: 'acme Ltd',
      appId: 'app-7',
      userEntityId: Number(entity?.id),
      role: 'Member',
      entityType: 'customer',
      scope: 'Self',
      permissions: permissions.filter(permission => permission.endsWith('.read')),
      features: ['alpha', 'beta'],
    });
  });

  it('the entity and its type are null for a user without an entity', async () => {
    const { body } = await (await world.login(world.globex)).get(path);
    expect(body).to.include({
      userEntityId: null,
      entityType: null,
      scope: 'All',
      role: 'Administrator',
    });
    expect(body.permissions).to.deep.equal([...permissions]);
  });

  it('name, role, scope and entity of the current user change without a new token', async () => {
    const person = await addSampleUser(world, world.acme);
    const client = await world.login(world.acme, person);
    expect((await client.get(path)).body).to.include({
      role: 'Member',
      scope: 'All',
      lastName: 'Son',
    });

    await controlSql(
      world,
      `update users set last_name = 'Newly', scope = 'Self', entity_id = 41, entity_since = now(),
         role_id = (select id from roles where tenant_id = users.tenant_id and name = 'Administrator') where id = ?`,
      [person.id],
    );

    const { body } = await eventually(async () => {
      const response = await client.get(path);
      return response.body.role === 'Administrator' && response;
    }, announcedMs);

    expect(body).to.include({
      lastName: 'Newly',
      scope: 'Self',
      userEntityId: 41,
      role: 'Administrator',
    });
    expect(body.permissions, 'only the next token has further permissions').to.not.include(
      'full.manage',
    );
  });

  it('a permission that a role loses is denied, though the token still has it', async () => {
    const client = await world.loginAs(world.acme, { permissions: ['full.read', 'full.manage'] });
    const { role } = (await client.get(path)).body;
    expect((await createStatus(client)).status).to.equal(201);

    await setPermissions(role, ['full.read']);
    const denied = await eventually(async () => {
      const response = await createStatus(client);
      return response.status !== 201 && response;
    }, announcedMs);

    expect(denied.status).to.equal(403);
    expect(denied.body.code).to.equal('forbidden');
    expect((await client.get(path)).body.permissions).to.deep.equal(['full.read']);
    expect((await client.get('/api/v1/EntityStatus')).status, 'the remaining permission').to.equal(
      200,
    );

    await setPermissions(role, ['full.read', 'full.manage']);
    await eventually(async () => (await createStatus(client)).status === 201, announcedMs);
  });

  it('a permission that only the token has, not the role, is denied', async () => {
    const client = await world.loginAs(world.acme, { permissions: ['full.read'] });
    const forged = world.anonymous.withToken(
      resignToken(
        client.tokens!.accessToken,
        { permissions: ['full.read', 'full.manage'] },
        await activeKey(world, world.acme),
      ),
    );

    expect((await forged.get('/api/v1/EntityStatus')).status, 'the token is valid').to.equal(200);

    const { status, body } = await createStatus(forged);
    expect(status).to.equal(403);
    expect(body.code).to.equal('forbidden');

    expect((await forged.get(path)).body.permissions).to.deep.equal(['full.read']);
  });

  it('a permission that a role gains is granted with the next token, not with the current one', async () => {
    const client = await world.loginAs(world.acme, { permissions: ['full.read'] });
    const { role } = (await client.get(path)).body;
    await setPermissions(role, ['full.read', 'full.manage']);

    let { refreshToken } = client.tokens!;
    const next = await eventually(async () => {
      const { body } = await client.post(
        '/api/v1/auth/refresh',
        { refreshToken },
        { 'X-Tenant': world.acme.guid },
      );
      ({ refreshToken } = body);
      return (
        (claimsOf(body.accessToken).permissions as string[]).includes('full.manage') &&
        body.accessToken
      );
    }, announcedMs);

    expect((await createStatus(world.anonymous.withToken(next))).status).to.equal(201);
    expect((await createStatus(client)).status).to.equal(403);
  });

  it('a role of the same name in another tenant grants no permission', async () => {
    await controlSql(
      world,
      `update roles set permissions = '{}' where name = 'Member' and tenant_id = ?`,
      [world.globex.id],
    );
    const here = await world.login(world.acme, await addSampleUser(world, world.acme));
    const there = await world.login(world.globex, await addSampleUser(world, world.globex));
    expect((await here.get('/api/v1/EntityStatus')).status).to.equal(200);
    expect((await there.get('/api/v1/EntityStatus')).status).to.equal(403);
  });
});

import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { redisInstalled, startRedis } from '../../support/redis.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import {
  addRole,
  changed,
  expectProblem,
  invitation,
  ownRecord,
  rolesPath,
  usersPath,
} from './people-world.ts';

/** The permissions that an administrator needs to manage Members. */
const managing = [
  ...permissions.filter(permission => permission.endsWith('.read')),
  'users.manage',
] as const;

describe('management of people', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  /** An administrator who has `users.manage` and the permissions of a Member, and no others. */
  let manager: Client;
  let self: ApiResponse;

  before(async () => {
    manager = await world.loginAs(world.acme, { permissions: [...managing] });
    self = await ownRecord(world, manager);
  });

  const pathOf = ({ body }: ApiResponse, action = '') => `${usersPath}/${body.Id}${action}`;
  const recordOf = async (user: { id: number }): Promise<ApiResponse> =>
    admin.get(`${usersPath}/${user.id}`);
  const roleOf = async (
    record: ApiResponse,
  ): Promise<{ Id: number; Name: string; Permissions: string[] }> =>
    (await admin.get(rolesPath)).body.find(
      ({ Name }: { Name: string }) => Name === record.body.Role,
    );
  /** The users and roles of both tenants, as they are stored. */
  const snapshot = () =>
    controlSql(
      world,
      `select u.*, r.name, r.permissions from users u full join roles r on r.id = u.role_id order by u.id, r.id`,
    );

  it('nobody grants a permission that they do not have: by a new role, a changed role, an assignment or an invitation', async () => {
    const powerful = await addRole(admin, ['settings.write']);
    const mine = await addRole(manager, ['orders.read']);
    const member = await recordOf(await addSampleUser(world, world.acme));

    const before = await snapshot();

    for (const refused of [
      await manager.post(rolesPath, {
        Name: 'Stronger',
        Permissions: ['orders.read', 'settings.write'],
      }),
      await manager.put(`${rolesPath}/${mine.Id}`, {
        Name: mine.Name,
        Permissions: ['settings.write'],
      }),
      await manager.put(pathOf(member), changed(member, { Role: powerful.Name })),
      await manager.put(pathOf(self), changed(self, { Role: powerful.Name })),
      await manager.put(pathOf(self), changed(self, { Role: 'Administrator' })),
      await manager.post(usersPath, invitation({ Role: powerful.Name })),
      await manager.post(usersPath, invitation({ Role: 'Administrator' })),
    ]) {
      expectProblem(refused, 403, 'forbidden');
      expect(refused.headers.get('www-authenticate')).to.match(
        /^Bearer error="insufficient_scope", scope=".*settings\.write/,
      );
    }

    expect(await snapshot()).to.deep.equal(before);

    expect(
      (await manager.post(usersPath, invitation())).status,
      'a role that the manager may grant',
    ).to.equal(201);
  });

  it('nobody adds a permission to the role that they have', async () => {
    const { Id, Name, Permissions } = await roleOf(self);
    const stronger = { Name, Permissions: [...Permissions, 'full.manage'] };
    expectProblem(await manager.put(`${rolesPath}/${Id}`, stronger), 403, 'forbidden');
  });

  it('nobody changes, renames or deletes a role, or manages a user, with a permission that they do not have', async () => {
    const powerful = await addRole(admin, ['settings.write']);
    const owner = await recordOf(await addSampleUser(world, world.acme, { role: powerful.Name }));

    const unused = await addRole(admin, ['settings.write']);
    const disabled = await recordOf(
      await addSampleUser(world, world.acme, { role: powerful.Name }),
    );
    await admin.post(pathOf(disabled, '/disable'));

    const invited = invitation({ Role: powerful.Name });
    await admin.post(usersPath, invited);

    const before = await snapshot();

    for (const refused of [
      await manager.put(`${rolesPath}/${powerful.Id}`, { Name: powerful.Name, Permissions: [] }),
      await manager.put(`${rolesPath}/${powerful.Id}`, {
        Name: 'Renamed',
        Permissions: powerful.Permissions,
      }),
      await manager.delete(`${rolesPath}/${unused.Id}`),
      await manager.put(pathOf(owner), changed(owner, { Role: 'Member' })),
      await manager.put(pathOf(owner), changed(owner, { FirstName: 'Other' })),
      await manager.post(pathOf(owner, '/disable')),
      await manager.post(pathOf(disabled, '/enable')),
      await manager.delete(pathOf(owner, '/sessions')),
      await manager.post(usersPath, { ...invited, Role: 'Member' }),
    ]) {
      expectProblem(refused, 403, 'forbidden');
    }

    expect(await snapshot()).to.deep.equal(before);
  });

  it('nobody takes users.manage from themselves: by role, scope, role change or disabling', async () => {
    const role = await roleOf(self);
    const without = role.Permissions.filter(permission => permission !== 'users.manage');

    const before = await snapshot();

    for (const refused of [
      await manager.post(pathOf(self, '/disable')),
      await manager.put(pathOf(self), changed(self, { Role: 'Member' })),
      await manager.put(pathOf(self), changed(self, { Scope: 'Self' })),
      await manager.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions: without }),
    ]) {
      expectProblem(refused, 400, 'wrong_state');
    }

    expect(await snapshot()).to.deep.equal(before);

    const renamed = await manager.put(pathOf(self), changed(self, { FirstName: 'Mia' }));
    expect(renamed.status).to.equal(200);
    expect(renamed.body.FirstName).to.equal('Mia');
  });

  it('of administrators who disable or demote each other at the same time, one always stays', async () => {
    for (let round = 0; round < 2; round++) {
      const role = await addRole(admin, [...managing]);
      const clients: Client[] = [];
      for (let i = 0; i < 3; i++) {
        const user = await addSampleUser(world, world.acme, { role: role.Name });
        clients.push(await world.login(world.acme, user));
      }

      const records = await Promise.all(clients.map(client => ownRecord(world, client)));
      const role2 = { Name: role.Name, Permissions: ['users.read'] };

      const responses = await Promise.all(
        clients.flatMap((client, i) => {
          const [victim, other] = [records[(i + 1) % 3], records[(i + 2) % 3]] as [
            ApiResponse,
            ApiResponse,
          ];
          return [
            client.post(pathOf(victim, '/disable')),
            client.put(pathOf(other), changed(other, { Role: 'Member' })),
            client.put(`${rolesPath}/${role.Id}`, role2),
          ];
        }),
      );

      for (const { status, body } of responses) {
        expect([200, 400, 401, 403], JSON.stringify(body)).to.include(status);
        if (status === 400) expect(body.code).to.equal('wrong_state');
      }

      const left = await controlSql<{ id: string }>(
        world,
        `select u.id from users u join roles r on r.id = u.role_id
          where r.id = ? and disabled_at is null and 'users.manage' = any (r.permissions)`,
        [role.Id],
      );
      expect(left, `round ${round}`).to.have.length.above(0);
    }
  });

  it('a caller of scope Self reads the users of its own entity only, and manages nobody', async () => {
    const [entity, other] = await sql<{ id: string }>(
      world.acme,
      `insert into entities (name, entity_type, status_id) values ('One', 'customer', 1), ('Two', 'customer', 1) returning id`,
    );
    const [entityId, otherId] = [Number(entity?.id), Number(other?.id)];

    const colleague = await addSampleUser(world, world.acme, { entityId });
    const stranger = await recordOf(await addSampleUser(world, world.acme, { entityId: otherId }));
    const limited = await world.loginAs(world.acme, {
      permissions: [...permissions],
      scope: 'Self',
      entityId,
    });

    const listed: { Id: number; EntityId: number }[] = (
      await limited.get(`${usersPath}?limit=1000`)
    ).body;
    expect(listed.map(({ Id }) => Id)).to.include(colleague.id);
    expect(new Set(listed.map(({ EntityId }) => EntityId))).to.deep.equal(new Set([entityId]));
    expectProblem(await limited.get(pathOf(stranger)), 404, 'not_found');

    const alone = await world.loginAs(world.acme, {
      permissions: [...permissions],
      scope: 'Self',
    });
    const { userGuid } = (await alone.get('/api/v1/auth/me')).body;
    const seen: { Guid: string }[] = (await alone.get(usersPath)).body;
    expect(seen.map(({ Guid }) => Guid)).to.deep.equal([userGuid]);

    const own = await recordOf(colleague);
    const before = await snapshot();

    for (const refused of [
      await limited.post(usersPath, invitation()),
      await limited.put(pathOf(own), changed(own, { FirstName: 'Other' })),
      await limited.post(pathOf(own, '/disable')),
      await limited.delete(pathOf(own, '/sessions')),
      await limited.post(rolesPath, { Name: 'Own', Permissions: [] }),
    ]) {
      expectProblem(refused, 403, 'forbidden');
    }
    expect(await snapshot()).to.deep.equal(before);

    await admin.put(pathOf(own), changed(own, { FirstName: 'Audited' }));
    await admin.put(pathOf(stranger), changed(stranger, { FirstName: 'Audited' }));
    const entries = (await limited.get('/api/v1/AuditLog?resource=User&limit=1000')).body;
    expect(entries.length).to.be.above(0);
    for (const { After } of entries) expect(After.EntityId).to.equal(entityId);
  });

  it('users, roles, entities and audit entries of another tenant are out of reach by id and by name', async () => {
    const globex = await world.login(world.globex);
    const theirs = await addSampleUser(world, world.globex);
    const role = await addRole(globex, ['orders.read'], 'Only of globex');

    const [entity] = await sql<{ id: string }>(
      world.globex,
      `insert into entities (id, name, entity_type, status_id) overriding system value values (4711, 'Far', 'customer', 1) returning id`,
    );

    const member = await recordOf(await addSampleUser(world, world.acme));
    const before = await snapshot();
    const user = `${usersPath}/${theirs.id}`;

    for (const refused of [
      await admin.get(user),
      await admin.put(user, changed(member)),
      await admin.post(`${user}/disable`),
      await admin.post(`${user}/enable`),
      await admin.delete(`${user}/sessions`),
      await admin.get(`${rolesPath}/${role.Id}`),
      await admin.put(`${rolesPath}/${role.Id}`, { Name: 'Taken', Permissions: [] }),
      await admin.delete(`${rolesPath}/${role.Id}`),
      await admin.get(`${usersPath}/0x1`),
    ]) {
      expectProblem(refused, 404, 'not_found');
    }

    for (const refused of [
      await admin.put(pathOf(member), changed(member, { Role: 'Only of globex' })),
      await admin.put(pathOf(member), changed(member, { EntityId: Number(entity?.id) })),
      await admin.post(usersPath, invitation({ EntityId: Number(entity?.id) })),
    ]) {
      expectProblem(refused, 400, 'validation_failed');
    }

    expect(await snapshot()).to.deep.equal(before);

    expect((await admin.get(`/api/v1/AuditLog?resource=User&key=${theirs.id}`)).body).to.deep.equal(
      [],
    );
    expect((await globex.get(`/api/v1/AuditLog?resource=Role&key=${role.Id}`)).body).to.have.length(
      1,
    );
  });

  it('a user never belongs to an entity that is deleted while the user is changed or invited', async () => {
    const member = await recordOf(await addSampleUser(world, world.acme));

    for (let round = 0; round < 10; round++) {
      const { body: entity } = await admin.post('/api/v1/Entities', {
        Name: 'Brief',
        EntityType: 'customer',
      });
      const fields = { EntityId: entity.Id };

      const [stored, deleted] = await Promise.all([
        round % 2
          ? admin.put(pathOf(member), changed(member, fields))
          : admin.post(usersPath, invitation(fields)),
        admin.delete(`/api/v1/Entities/${entity.Id}`),
      ]);

      if (deleted.status === 204) expectProblem(stored, 400, 'validation_failed');
      else expectProblem(deleted, 400, 'in_use');
      expect(stored.status).to.be.oneOf([200, 201, 400]);
    }
  });

  it('PUT stores no field that it does not declare', async () => {
    const member = await recordOf(await addSampleUser(world, world.acme));

    const secret = {
      Id: 1,
      Guid: self.body.Guid,
      IsDisabled: true,
      ConfirmedAt: null,
      LastLoginAt: null,
    };
    const more = {
      PasswordHash: 'x',
      password_hash: 'x',
      RoleId: 1,
      TenantId: world.globex.id,
      Permissions: ['full.manage'],
    };

    const put = await admin.put(pathOf(member), { ...changed(member), ...secret, ...more });
    expect(put.status).to.equal(200);
    expect(put.body).to.deep.equal(member.body);

    const strict = await admin.put(
      pathOf(member),
      { ...changed(member), ...more },
      { Prefer: 'handling=strict' },
    );
    expectProblem(strict, 400, 'validation_failed');
  });

  it('each change has an audit entry with its actor, which nobody changes or reads without users.read', async () => {
    const member = await recordOf(await addSampleUser(world, world.acme));
    await world.loginAs(world.acme, { permissions: [] });
    const key = `&key=${member.body.Id}`;
    const put = await admin.put(pathOf(member), changed(member, { LastName: 'Audited' }));
    await admin.put(pathOf(member), changed(put)); // changes nothing
    await admin.post(pathOf(member, '/disable'));
    await admin.post(pathOf(member, '/enable'));

    const { body: entries } = await admin.get(`/api/v1/AuditLog?resource=User${key}`);
    expect(entries.map(({ Action }: { Action: string }) => Action)).to.deep.equal([
      'update',
      'update',
      'update',
      'create',
    ]);

    const [enabled, disabled, renamed, created] = entries;
    const { body: me } = await admin.get('/api/v1/auth/me');
    expect(renamed).to.include({
      UserGuid: me.userGuid,
      Resource: 'User',
      Key: String(member.body.Id),
      IPAddress: '127.0.0.1',
    });
    expect(renamed.TraceId).to.equal(put.headers.get('x-request-id'));

    expect(renamed.Before.LastName).to.equal('Son');
    expect(renamed.After.LastName).to.equal('Audited');
    expect(renamed.After.Role).to.equal('Member');

    expect([disabled.After.IsDisabled, enabled.After.IsDisabled]).to.deep.equal([true, false]);
    expect(disabled.After).not.to.have.property('DisabledAt');
    expect(created.UserId).to.equal(null);
    expect(created.Before).to.equal(null);
    expect(JSON.stringify(entries)).to.not.match(/hash|argon/i);

    const role = await addRole(admin, ['orders.read']);
    await admin.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions: [] });
    await admin.delete(`${rolesPath}/${role.Id}`);

    const roleEntries = (await admin.get(`/api/v1/AuditLog?resource=Role&key=${role.Id}`)).body;
    expect(roleEntries.map(({ Action }: { Action: string }) => Action)).to.deep.equal([
      'delete',
      'update',
      'create',
    ]);
    expect((await admin.get('/api/v1/AuditLog?limit=1000')).body).to.satisfy(
      (all: { Resource: string }[]) =>
        all.every(({ Resource }) => Resource !== 'User' && Resource !== 'Role'),
    );

    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    expectProblem(await reader.get('/api/v1/AuditLog?resource=User'), 403, 'forbidden');

    for (const text of [
      'update audit_log set user_id = 1',
      'delete from audit_log',
      'truncate audit_log',
    ]) {
      await controlSql(world, text).then(
        () => expect.fail(`${text} succeeded`),
        error => expect(String(error)).to.match(/append-only/),
      );
    }
  });

  it('an administrator who is disabled, or loses users.manage, changes nothing any more, whatever the token says', async () => {
    const role = await addRole(admin, [...managing]);
    const demoted = await world.login(
      world.acme,
      await addSampleUser(world, world.acme, { role: role.Name }),
    );

    await admin.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions: ['users.read'] });
    expectProblem(await demoted.post(usersPath, invitation()), 403, 'forbidden');
    expectProblem(
      await demoted.post(rolesPath, { Name: 'Back', Permissions: ['users.manage'] }),
      403,
      'forbidden',
    );

    // Changes that no process hears of, as while a notification is on its way: the caches still
    // show the old state.
    const unheard = (text: string, values: unknown[]) =>
      world.control.em.fork().transactional(async em => {
        await em.execute('set local session_replication_role = replica');
        await em.execute(text, values);
      });

    const second = await addRole(admin, [...managing]);
    const user = await addSampleUser(world, world.acme, { role: second.Name });
    const client = await world.login(world.acme, user);
    expect((await client.post(usersPath, invitation())).status).to.equal(201);

    for (const [change, undo] of [
      ['disabled_at = now()', 'disabled_at = null'],
      [`scope = 'Self'`, `scope = 'All'`],
      [
        `role_id = (select id from roles r where r.tenant_id = u.tenant_id and name = 'Member')`,
        `role_id = ${second.Id}`,
      ],
    ]) {
      await unheard(`update users u set ${change} where id = ?`, [user.id]);
      expectProblem(await client.post(usersPath, invitation()), 403, 'forbidden');
      await unheard(`update users u set ${undo} where id = ?`, [user.id]);
    }

    await unheard(
      `update roles set permissions = array_remove(permissions, 'orders.read') where id = ?`,
      [second.Id],
    );
    expectProblem(await client.post(usersPath, invitation()), 403, 'forbidden');
  });

  const environments: [
    string,
    () => Promise<{ environment: Record<string, string>; close(): Promise<void> }>,
  ][] = [['', async () => ({ environment: {}, close: async () => {} })]];
  if (redisInstalled) {
    environments.push([
      ', with Redis',
      async () => {
        const redis = await startRedis();
        return { environment: { REDIS_URL: redis.url }, close: () => redis.close() };
      },
    ]);
  }
  for (const [name, start] of environments) {
    it(`every process applies a change of a user, role or session${name}`, async () => {
      const { environment, close } = await start();
      try {
        const { url } = await world.startAnotherServer(environment);
        const role = await addRole(admin, ['orders.read', 'full.read']);
        const user = await addSampleUser(world, world.acme, { role: role.Name });
        const path = `${usersPath}/${user.id}`;
        const login = async () => (await world.login(world.acme, user)).at(url);
        const statusBecomes = (client: Client, status: number) =>
          eventually(
            async () => (await client.get('/api/v1/EntityStatus')).status === status,
            announcedMs,
          );

        const first = await login();
        await statusBecomes(first, 200);

        await admin.put(`${rolesPath}/${role.Id}`, {
          Name: role.Name,
          Permissions: ['orders.read'],
        });
        await statusBecomes(first, 403);

        await admin.put(`${rolesPath}/${role.Id}`, {
          Name: role.Name,
          Permissions: ['orders.read', 'full.read'],
        });
        await statusBecomes(first, 200);
        expect((await admin.delete(`${path}/sessions`)).status).to.equal(204);
        await statusBecomes(first, 401);

        const second = await login();
        await statusBecomes(second, 200);

        const record = await admin.get(path);
        const other = await addRole(admin, ['orders.read']);
        await admin.put(
          path,
          changed(record, { Role: other.Name, Scope: 'Self', FirstName: 'Now' }),
        );
        await statusBecomes(second, 403);
        const me = await second.get('/api/v1/auth/me');
        expect(me.body).to.include({ firstName: 'Now', scope: 'Self', role: other.Name });

        await admin.post(`${path}/disable`);
        await statusBecomes(second, 401);
        expectProblem(
          await world.anonymous
            .at(url)
            .post('/api/v1/auth/login', user, { 'X-Tenant': world.acme.guid }),
          401,
          'invalid_credentials',
        );

        await admin.post(`${path}/enable`);
        expect((await admin.get(path)).body.IsDisabled).to.equal(false);
        await eventually(
          async () =>
            (
              await world.anonymous
                .at(url)
                .post('/api/v1/auth/login', user, { 'X-Tenant': world.acme.guid })
            ).status === 200,
          announcedMs,
        );

        const sessions = (
          await admin.get(`/api/v1/AuditLog?resource=User&key=${user.id}`)
        ).body.filter(({ After }: { After: object }) => 'SessionId' in After);
        expect(sessions).to.have.length(2);
      } finally {
        await close();
      }
    });
  }
});

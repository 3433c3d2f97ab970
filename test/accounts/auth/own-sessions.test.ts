import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { permissions as allPermissions } from '../../../src/control/permissions.ts';
import { sessionLifetime } from '../../../src/control/token-lifetime.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, type TestTenant, useWorld } from '../../support/world.ts';
import { claimsOf } from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser, type SampleUser } from './sample-users.ts';
import { expectNotLogged } from './secrets.ts';

const path = '/api/v1/auth/sessions';

interface SessionView {
  id: string;
  createdAt: string;
  refreshedAt: string;
  current: boolean;
}

describe('sessions of the current user', () => {
  const world = useWorld();
  /** URL of a second server of the service. */
  let otherUrl: string;
  const secrets = new Set<string>();

  before(async () => {
    otherUrl = (await world.startAnotherServer()).url;
  });

  const addUser = async (tenant: TestTenant = world.acme, role = 'Member'): Promise<SampleUser> => {
    const added = await addSampleUser(world, tenant, { role });
    secrets.add(added.password);
    return added;
  };
  const login = async (user: SampleUser, tenant: TestTenant = world.acme): Promise<Client> => {
    const client = await world.login(tenant, user);
    for (const token of Object.values(client.tokens ?? {})) if (token) secrets.add(token);
    return client;
  };
  const sid = ({ tokens }: Client): string => String(claimsOf(tokens?.accessToken ?? '').sid);
  const list = async (client: Client): Promise<SessionView[]> => {
    const { status, body } = await client.get(path);
    expect(status).to.equal(200);
    return body;
  };
  const isAccepted = async (client: Client): Promise<boolean> =>
    (await client.get('/api/v1/auth/me')).status === 200;
  const findRow = async (client: Client) =>
    (
      await controlSql<{ revoked_at: Date | null; revoked_reason: string | null }>(
        world,
        'select revoked_at, revoked_reason from sessions where id = ?',
        [sid(client)],
      )
    )[0];
  /** Expects that both servers come to reject the session, and that it cannot be refreshed. */
  const expectEnded = async (client: Client, tenant = world.acme): Promise<void> => {
    await eventually(
      async () => !(await isAccepted(client)) && !(await isAccepted(client.at(otherUrl))),
      announcedMs,
    );
    const { refreshToken } = client.tokens ?? {};
    const { status } = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken },
      { 'X-Tenant': tenant.guid },
    );
    expect(status).to.equal(401);
  };
  const expectActive = async (client: Client): Promise<void> => {
    expect(await findRow(client)).to.deep.equal({ revoked_at: null, revoked_reason: null });
    expect([await isAccepted(client), await isAccepted(client.at(otherUrl))]).to.deep.equal([
      true,
      true,
    ]);
  };

  describe('list of sessions', () => {
    it('the list of sessions has the newest first, marks the current one and contains no other data', async () => {
      const user = await addUser();
      const clients = [await login(user), await login(user), await login(user)];
      const expected = clients.map(sid).toReversed();

      for (const client of clients) {
        const sessions = await list(client);
        expect(sessions.map(({ id }) => id)).to.deep.equal(expected);
        expect(sessions.filter(({ current }) => current).map(({ id }) => id)).to.deep.equal([
          sid(client),
        ]);

        for (const session of sessions) {
          expect(session).to.have.all.keys('id', 'createdAt', 'refreshedAt', 'current');
          expect(Math.abs(Date.now() - Date.parse(session.createdAt))).to.be.below(60_000);
        }
      }
    });

    it('a listed session has the time of its last refresh', async () => {
      const client = await login(await addUser());
      await controlSql(
        world,
        `update sessions set refreshed_at = now() - interval '1 day' where id = ?`,
        [sid(client)],
      );

      const [before] = await list(client);
      expect(Date.now() - Date.parse(before?.refreshedAt ?? '')).to.be.closeTo(86_400_000, 60_000);

      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken: client.tokens?.refreshToken },
        { 'X-Tenant': world.acme.guid },
      );
      expect(refreshed.status).to.equal(200);

      const [after] = await list(client);
      expect(after).to.include({ id: before?.id, createdAt: before?.createdAt });
      expect(Date.now() - Date.parse(after?.refreshedAt ?? '')).to.be.below(60_000);
    });

    it('the list of sessions contains neither ended nor expired sessions', async () => {
      const user = await addUser();
      const [ended, idle, old, almostIdle, almostOld, current] = [
        await login(user),
        await login(user),
        await login(user),
        await login(user),
        await login(user),
        await login(user),
      ];

      expect((await ended.post('/api/v1/auth/logout')).status).to.equal(204);
      const setAge = (client: Client, column: string, age: string) =>
        controlSql(world, `update sessions set ${column} = now() - ?::interval where id = ?`, [
          age,
          sid(client),
        ]);
      await setAge(idle, 'refreshed_at', `${sessionLifetime.idle} 1 second`);
      await setAge(old, 'created_at', `${sessionLifetime.total} 1 second`);
      await setAge(almostIdle, 'refreshed_at', `${sessionLifetime.idle} -1 minute`);
      await setAge(almostOld, 'created_at', `${sessionLifetime.total} -1 minute`);

      expect((await list(current)).map(({ id }) => id)).to.deep.equal(
        [current, almostIdle, almostOld].map(sid),
      );
    });

    it('the list of sessions contains no session of another user or tenant, also for an administrator', async () => {
      const [user, admin] = [await addUser(), await addUser(world.acme, 'Administrator')];
      const foreign = await addSampleUser(world, world.globex, {
        email: user.email,
        password: user.password,
      });
      const clients = [await login(user), await login(admin), await login(foreign, world.globex)];
      for (const client of clients) {
        expect((await list(client)).map(({ id }) => id)).to.deep.equal([sid(client)]);
      }
    });

    it('listing and ending sessions without a token gets 401', async () => {
      for (const [method, at] of [
        ['GET', path],
        ['DELETE', `${path}/${randomUUID()}`],
      ] as const) {
        const { status, body } = await world.anonymous.send(method, at, undefined, {
          'X-Tenant': world.acme.guid,
        });

        expect(status).to.equal(401);
        expect(body.code).to.equal('unauthorized');
      }
    });
  });

  describe('end of a session', () => {
    it('a session that its user ends is rejected by all servers, and the others stay active', async () => {
      const user = await addUser();
      const [target, current] = [await login(user), await login(user)];
      await expectActive(target);

      const { status, body } = await current.delete(`${path}/${sid(target)}`);
      expect(status).to.equal(204);
      expect(body).to.equal('');

      await expectEnded(target);
      expect((await findRow(target))?.revoked_reason).to.equal('ended');
      await expectActive(current);
      expect((await list(current)).map(({ id }) => id)).to.deep.equal([sid(current)]);
    });

    it('a session may be ended by its id in capitals', async () => {
      const user = await addUser();
      const [target, current] = [await login(user), await login(user)];
      expect((await current.delete(`${path}/${sid(target).toUpperCase()}`)).status).to.equal(204);
      await expectEnded(target);
    });

    it('the current session may be ended', async () => {
      const client = await login(await addUser());
      expect((await client.delete(`${path}/${sid(client)}`)).status).to.equal(204);
      await expectEnded(client);
    });

    it('ending an ended, unknown or malformed session id gets 204 and changes nothing', async () => {
      const user = await addUser();
      const [target, current] = [await login(user), await login(user)];
      await current.delete(`${path}/${sid(target)}`);
      const before = await findRow(target);

      const ids = [
        sid(target),
        randomUUID(),
        '1',
        'x'.repeat(2_000),
        '%00',
        '%2e%2e%2flogout',
        encodeURIComponent(`' or '1'='1`),
        `${sid(current)}x`,
        sid(current).replaceAll('-', ''),
        `%7B${sid(current)}%7D`,
        '00000000-0000-0000-0000-000000000000',
        '*',
        '%25',
      ];

      for (const id of ids) {
        expect((await current.delete(`${path}/${id}`)).status, id).to.equal(204);
      }
      expect(await findRow(target)).to.deep.equal(before);
      await expectActive(current);
    });
  });

  describe('sessions of other users', () => {
    /** Every permission of the role Member, and the management of users. */
    const managerOfMembers = [
      ...allPermissions.filter(name => name.endsWith('.read')),
      'users.manage',
    ];

    it('without users.manage, the session of another user is treated as an unknown session', async () => {
      const victim = await login(await addUser());
      const other = await world.loginAs(world.acme, {
        permissions: ['users.read', 'users.write', 'full.manage'],
      });
      const unknown = comparable(await other.delete(`${path}/${randomUUID()}`));
      expect(comparable(await other.delete(`${path}/${sid(victim)}`))).to.deep.equal(unknown);
      expect(unknown).to.include({ status: 204 });
      await expectActive(victim);
    });

    it('a user with users.manage ends sessions of other users, on all servers', async () => {
      const victim = await login(await addUser());
      const manager = await world.loginAs(world.acme, { permissions: managerOfMembers });
      expect((await manager.delete(`${path}/${sid(victim)}`)).status).to.equal(204);
      await expectEnded(victim);
      await expectActive(manager);
    });

    it('a user with users.manage cannot end the session of a user who has a permission that the manager lacks', async () => {
      const administrator = await login(await addUser(world.acme, 'Administrator'));
      const manager = await world.loginAs(world.acme, { permissions: managerOfMembers });
      const { status, body, headers } = await manager.delete(`${path}/${sid(administrator)}`);
      expect(status).to.equal(403);
      expect(body.code).to.equal('forbidden');
      expect(headers.get('www-authenticate')).to.match(/scope="[^"]*\bfull\.manage\b[^"]*"/);
      await expectActive(administrator);
    });

    it('a user with users.manage and scope Self ends no session of another user', async () => {
      const victim = await login(await addUser());
      const manager = await world.loginAs(world.acme, {
        permissions: managerOfMembers,
        scope: 'Self',
      });
      expect((await manager.delete(`${path}/${sid(victim)}`)).status).to.equal(204);
      await expectActive(victim);
    });

    it('the session of another tenant is treated as an unknown session, also with users.manage', async () => {
      const foreign = await login(await addUser(world.globex), world.globex);

      for (const permissions of [['users.manage'], []]) {
        const manager = await world.loginAs(world.acme, { permissions });
        const { status, body } = await manager.delete(`${path}/${sid(foreign)}`, {
          'X-Tenant': world.globex.guid,
        });
        expect(status).to.equal(204);
        expect(body).to.equal('');
      }

      await expectActive(foreign);
    });
  });

  it('a legacy token lists and ends sessions of its user, but belongs to none, so its logout ends the token alone', async () => {
    const user = await addUser();
    await controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [
      world.acme.id,
    ]);
    const { id, secret } = await addClient(world.installation, 'acme', user.email, 'Old');

    const issued = await eventually(async () => {
      const response = await world.anonymous.get('/api/Data/GenerateToken', {
        Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
      });
      return response.status === 200 && response;
    }, announcedMs);
    secrets.add(secret).add(issued.body.token);
    const legacy = new Client(world.url).withToken(issued.body.token);

    const [target, other] = [await login(user), await login(user)];
    const sessions = await list(legacy);
    expect(sessions.map(({ current }) => current)).to.deep.equal([false, false]);

    expect((await legacy.delete(`${path}/${sid(target)}`)).status).to.equal(204);
    await expectEnded(target);

    expect((await legacy.post('/api/v1/auth/logout')).status).to.equal(204);
    await expectActive(other);
    expect(await isAccepted(legacy)).to.equal(false);
  });

  // In a group of its own, because Mocha runs the tests outside a group first.
  describe('log of sessions', () => {
    it('no log line of the tests of sessions contains a password or token', async () => {
      await list(await login(await addUser()));

      expectNotLogged(world, secrets);
    });
  });
});

import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { addClient } from '../../src/operator/tenants/clients.ts';
import { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';
import { claimsOf } from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser, controlSql, type SampleUser } from './sample-users.ts';
import { expectNotLogged } from './secrets.ts';

const path = '/api/v1/auth/sessions';

interface SessionView {
  id: string;
  createdAt: string;
  refreshedAt: string;
  current: boolean;
}

describe('One’s own sessions', () => {
  let world: World;
  /** The other process of the service. */
  let elsewhere: string;
  const secrets = new Set<string>();

  before(async () => {
    world = await createWorld();
    elsewhere = (await world.startAnotherServer()).url;
  });
  after(() => world.close());

  const person = async (tenant: TestTenant = world.acme, role = 'Member'): Promise<SampleUser> => {
    const added = await addSampleUser(world, tenant, { role });
    secrets.add(added.password);
    return added;
  };
  const login = async (who: SampleUser, tenant: TestTenant = world.acme): Promise<Client> => {
    const client = await world.login(tenant, who);
    for (const token of Object.values(client.tokens ?? {})) if (token) secrets.add(token);
    return client;
  };
  const sid = ({ tokens }: Client): string => String(claimsOf(tokens?.accessToken ?? '').sid);
  const list = async (client: Client): Promise<SessionView[]> => {
    const { status, body } = await client.get(path);
    expect(status).to.equal(200);
    return body;
  };
  const works = async (client: Client): Promise<boolean> => (await client.get('/api/v1/auth/me')).status === 200;
  const row = async (client: Client) =>
    (
      await controlSql<{ revoked_at: Date | null; revoked_reason: string | null }>(
        world,
        'select revoked_at, revoked_reason from sessions where id = ?',
        [sid(client)],
      )
    )[0];
  /** Refused by every process within a second, also when it is refreshed. */
  const expectEnded = async (client: Client, tenant = world.acme): Promise<void> => {
    await eventually(async () => !(await works(client)) && !(await works(client.at(elsewhere))), 1_000);
    const { refreshToken } = client.tokens ?? {};
    const { status } = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken },
      { 'X-Tenant': tenant.guid },
    );
    expect(status).to.equal(401);
  };
  const expectLives = async (client: Client): Promise<void> => {
    expect(await row(client)).to.deep.equal({ revoked_at: null, revoked_reason: null });
    expect([await works(client), await works(client.at(elsewhere))]).to.deep.equal([true, true]);
  };

  describe('are listed', () => {
    it('the newest first, with the current one marked, and nothing else of them', async () => {
      const one = await person();
      const clients = [await login(one), await login(one), await login(one)];
      const expected = clients.map(sid).toReversed();
      for (const client of clients) {
        const sessions = await list(client);
        expect(sessions.map(({ id }) => id)).to.deep.equal(expected);
        expect(sessions.filter(({ current }) => current).map(({ id }) => id)).to.deep.equal([sid(client)]);
        for (const session of sessions) {
          expect(session).to.have.all.keys('id', 'createdAt', 'refreshedAt', 'current');
          expect(Math.abs(Date.now() - Date.parse(session.createdAt))).to.be.below(60_000);
        }
      }
    });

    it('with the time of the last refresh', async () => {
      const client = await login(await person());
      await controlSql(world, `update sessions set refreshed_at = now() - interval '1 day' where id = ?`, [
        sid(client),
      ]);
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

    it('only while they can be used: neither ended nor expired ones', async () => {
      const one = await person();
      const [ended, idle, old, almostIdle, almostOld, current] = [
        await login(one),
        await login(one),
        await login(one),
        await login(one),
        await login(one),
        await login(one),
      ];
      expect((await ended.post('/api/v1/auth/logout')).status).to.equal(204);
      const age = (client: Client, column: string, by: string) =>
        controlSql(world, `update sessions set ${column} = now() - ?::interval where id = ?`, [by, sid(client)]);
      await age(idle, 'refreshed_at', '7 days 00:00:01');
      await age(old, 'created_at', '30 days 00:00:01');
      await age(almostIdle, 'refreshed_at', '6 days 23:59:00');
      await age(almostOld, 'created_at', '29 days 23:59:00');
      expect((await list(current)).map(({ id }) => id)).to.deep.equal([current, almostIdle, almostOld].map(sid));
    });

    it('and nobody else’s, not to an administrator and not of another tenant', async () => {
      const [one, admin] = [await person(), await person(world.acme, 'Administrator')];
      const foreign = await addSampleUser(world, world.globex, { email: one.email, password: one.password });
      const clients = [await login(one), await login(admin), await login(foreign, world.globex)];
      for (const client of clients) expect((await list(client)).map(({ id }) => id)).to.deep.equal([sid(client)]);
    });

    it('to nobody without a token', async () => {
      for (const [method, at] of [
        ['GET', path],
        ['DELETE', `${path}/${randomUUID()}`],
      ] as const) {
        const { status, body } = await world.anonymous.send(method, at, undefined, { 'X-Tenant': world.acme.guid });
        expect([status, body.code]).to.deep.equal([401, 'unauthorized']);
      }
    });
  });

  describe('are ended', () => {
    it('one by one, everywhere within 1 s; the others go on', async () => {
      const one = await person();
      const [lost, current] = [await login(one), await login(one)];
      await expectLives(lost);
      const { status, body } = await current.delete(`${path}/${sid(lost)}`);
      expect([status, body]).to.deep.equal([204, '']);
      await expectEnded(lost);
      expect((await row(lost))?.revoked_reason).to.equal('ended');
      await expectLives(current);
      expect((await list(current)).map(({ id }) => id)).to.deep.equal([sid(current)]);
    });

    it('by the id in capitals as well', async () => {
      const one = await person();
      const [lost, current] = [await login(one), await login(one)];
      expect((await current.delete(`${path}/${sid(lost).toUpperCase()}`)).status).to.equal(204);
      await expectEnded(lost);
    });

    it('the current one too', async () => {
      const client = await login(await person());
      expect((await client.delete(`${path}/${sid(client)}`)).status).to.equal(204);
      await expectEnded(client);
    });

    it('once: to end it again changes nothing, and an id that is unknown, or none, is as good as ended', async () => {
      const one = await person();
      const [lost, current] = [await login(one), await login(one)];
      await current.delete(`${path}/${sid(lost)}`);
      const before = await row(lost);
      const ids = [
        sid(lost),
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
      for (const id of ids) expect((await current.delete(`${path}/${id}`)).status, id).to.equal(204);
      expect(await row(lost)).to.deep.equal(before);
      await expectLives(current);
    });
  });

  describe('of somebody else', () => {
    it('ending another user’s session without users.manage gets the response for an unknown session and ends nothing', async () => {
      const victim = await login(await person());
      const other = await world.loginAs(world.acme, { permissions: ['users.read', 'users.write', 'full.manage'] });
      const unknown = comparable(await other.delete(`${path}/${randomUUID()}`));
      expect(comparable(await other.delete(`${path}/${sid(victim)}`))).to.deep.equal(unknown);
      expect(unknown).to.include({ status: 204 });
      await expectLives(victim);
    });

    it('are ended by those who have it, everywhere within 1 s', async () => {
      const victim = await login(await person());
      const manager = await world.loginAs(world.acme, { permissions: ['users.manage'] });
      expect((await manager.delete(`${path}/${sid(victim)}`)).status).to.equal(204);
      await expectEnded(victim);
      await expectLives(manager);
    });

    it('of another tenant are untouched, and the answer is that for an unknown one', async () => {
      const foreign = await login(await person(world.globex), world.globex);
      for (const permissions of [['users.manage'], []]) {
        const manager = await world.loginAs(world.acme, { permissions });
        const { status, body } = await manager.delete(`${path}/${sid(foreign)}`, { 'X-Tenant': world.globex.guid });
        expect([status, body]).to.deep.equal([204, '']);
      }
      await expectLives(foreign);
    });
  });

  it('are listed and ended by an old client too, which has none of its own: its logout ends nothing', async () => {
    const one = await person();
    await controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [world.acme.id]);
    const { id, secret } = await addClient(world.installation, 'acme', one.email, 'Old');
    const answer = await eventually(async () => {
      const found = await world.anonymous.get('/api/Data/GenerateToken', {
        Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
      });
      return found.status === 200 && found;
    }, 1_000);
    secrets.add(secret).add(answer.body.token);
    const old = new Client(world.url).withToken(answer.body.token);
    const [lost, kept] = [await login(one), await login(one)];
    const sessions = await list(old);
    expect(sessions.map(({ current }) => current)).to.deep.equal([false, false]);
    expect((await old.delete(`${path}/${sid(lost)}`)).status).to.equal(204);
    await expectEnded(lost);
    expect((await old.post('/api/v1/auth/logout')).status).to.equal(204);
    await expectLives(kept);
    expect(await works(old)).to.equal(true);
  });

  describe('are told in the log', () => {
    it('without any password or token', () => {
      expect(secrets.size).to.be.above(50);
      expectNotLogged(world, secrets);
    });
  });
});

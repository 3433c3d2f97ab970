import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { encodeRefreshToken } from '../../src/auth/refresh-token.ts';
import { setPassword } from '../../src/operator/tenants/users.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { activeKey, claimsOf, resignToken } from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser, controlSql } from './sample-users.ts';

interface SessionRow {
  refresh_generation: number;
  revoked_at: Date | null;
  revoked_reason: string | null;
}

describe('Sessions', () => {
  let world: World;
  /** What every refused refresh looks like. */
  let refusal: Record<string, unknown>;

  const refresh = (refreshToken: unknown, tenant: TestTenant = world.acme): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': tenant.guid });
  const me = (accessToken: string): Promise<ApiResponse> =>
    world.anonymous.withToken(accessToken).get('/api/v1/auth/me');
  const sid = ({ tokens }: Client): string => String(claimsOf(tokens!.accessToken).sid);
  const row = async (client: Client): Promise<SessionRow | undefined> =>
    (await controlSql<SessionRow>(world, 'select * from sessions where id = ?', [sid(client)]))[0];
  /** Makes a session as old as if it had been used, or opened, that long ago. */
  const age = (client: Client, column: 'refreshed_at' | 'created_at', interval: string) =>
    controlSql(world, `update sessions set ${column} = now() - interval '${interval}' where id = ?`, [sid(client)]);
  const refused = async (accessToken: string) =>
    eventually(async () => {
      const answer = await me(accessToken);
      return answer.status === 401 && answer;
    }, 1_000);

  before(async () => {
    world = await createWorld();
    refusal = comparable(await refresh('x'));
  });
  after(() => world.close());

  describe('are refreshed', () => {
    it('a refresh token works once and returns a new pair, and the old access token stays valid', async () => {
      const client = await world.login(world.acme);
      const { accessToken, refreshToken } = client.tokens!;
      const { status, body, headers } = await refresh(refreshToken);
      expect(status).to.equal(200);
      expect(body).to.have.all.keys('accessToken', 'refreshToken', 'entityType');
      expect(headers.get('cache-control')).to.equal('no-store');
      expect(body.accessToken).to.not.equal(accessToken);
      expect(body.refreshToken).to.not.equal(refreshToken);
      const [former, present] = [claimsOf(accessToken), claimsOf(body.accessToken)];
      expect(present.sid).to.equal(former.sid);
      expect(present.jti).to.not.equal(former.jti);
      for (const token of [accessToken, body.accessToken]) expect((await me(token)).status).to.equal(200);
      expect((await refresh(body.refreshToken)).status).to.equal(200);
    });

    it('a repeated refresh within 10 s returns the same successor, for a client that lost the response', async () => {
      const client = await world.login(world.acme);
      const first = await refresh(client.tokens!.refreshToken);
      await age(client, 'refreshed_at', '9 seconds');
      const again = await refresh(client.tokens!.refreshToken);
      expect(again.status).to.equal(200);
      expect(again.body.refreshToken).to.equal(first.body.refreshToken);
      expect((await row(client))?.refresh_generation).to.equal(1);
      expect((await refresh(again.body.refreshToken)).status, 'the successor').to.equal(200);
    });

    it('50 parallel refreshes of one token return the same successor', async () => {
      const client = await world.login(world.acme);
      const answers = await Promise.all(Array.from({ length: 50 }, () => refresh(client.tokens!.refreshToken)));
      expect(new Set(answers.map(({ status }) => status))).to.deep.equal(new Set([200]));
      expect(new Set(answers.map(({ body }) => body.refreshToken))).to.have.property('size', 1);
      expect(await row(client)).to.include({ refresh_generation: 1, revoked_at: null });
      expect((await refresh(answers[0]!.body.refreshToken)).status).to.equal(200);
    });

    it('a session is one row, however often it is refreshed', async () => {
      const person = await addSampleUser(world, world.acme);
      const client = await world.login(world.acme, person);
      let { refreshToken } = client.tokens!;
      for (let i = 0; i < 100; i++) ({ refreshToken } = (await refresh(refreshToken)).body);
      const rows = await controlSql<SessionRow>(world, 'select * from sessions where user_id = ?', [person.id]);
      expect(rows.map(({ refresh_generation }) => refresh_generation)).to.deep.equal([100]);
    });

    it('a refresh returns the current permissions, entity type and user', async () => {
      const [entity] = await sql<{ id: string }>(
        world.acme,
        `insert into entities (name, entity_type) values ('Now', 'supplier') returning id`,
      );
      const person = await addSampleUser(world, world.acme, { scope: 'Self', entityId: Number(entity?.id) });
      const client = await world.login(world.acme, person);
      await sql(world.acme, `update entities set entity_type = 'customer' where id = $1`, [entity?.id]);
      await controlSql(
        world,
        `update users set role_id = (select id from roles where tenant_id = users.tenant_id and name = 'Administrator') where id = ?`,
        [person.id],
      );
      let { refreshToken } = client.tokens!;
      await eventually(async () => {
        const { body } = await refresh(refreshToken);
        ({ refreshToken } = body);
        return (
          (claimsOf(body.accessToken).permissions as string[]).includes('full.manage') && body.entityType === 'customer'
        );
      }, 1_000);
    });

    it('a refresh token is not used up while the database of the tenant is down', async () => {
      const tenant = world.globex;
      const [entity] = await sql<{ id: string }>(
        tenant,
        `insert into entities (name, entity_type) values ('Patient', 'supplier') returning id`,
      );
      const client = await world.login(
        tenant,
        await addSampleUser(world, tenant, { scope: 'Self', entityId: Number(entity?.id) }),
      );
      const version = await controlSql<{ schema_version: string }>(
        world,
        'select schema_version from tenants where id = ?',
        [tenant.id],
      );
      const setVersion = (value: string) =>
        controlSql(world, 'update tenants set schema_version = ? where id = ?', [value, tenant.id]);
      await setVersion('0000-away');
      try {
        await eventually(
          async () => (await world.login(tenant)).get('/api/v1/EntityStatus').then(({ status }) => status === 503),
          1_000,
        );
        expect((await refresh(client.tokens!.refreshToken, tenant)).status).to.equal(503);
        await age(client, 'refreshed_at', '1 minute');
      } finally {
        await setVersion(version[0]!.schema_version);
      }
      await eventually(async () => (await refresh(client.tokens!.refreshToken, tenant)).status === 200, 1_000);
    });
  });

  describe('end', () => {
    /** Whatever was issued for the session is good no more, and the row says why. */
    const expectEnded = async (client: Client, reason: string, newest = client.tokens!): Promise<void> => {
      expect((await row(client))?.revoked_reason).to.equal(reason);
      await refused(newest.accessToken);
      await refused(client.tokens!.accessToken);
      expect(comparable(await refresh(newest.refreshToken)), 'the newest refresh token').to.deep.equal(refusal);
    };

    it('a refresh token that is used again after 10 s ends the session, with its newest tokens', async () => {
      const client = await world.login(world.acme);
      const newest = (await refresh(client.tokens!.refreshToken)).body;
      await age(client, 'refreshed_at', '11 seconds');
      const told = world.logs.length;
      expect(comparable(await refresh(client.tokens!.refreshToken))).to.deep.equal(refusal);
      await expectEnded(client, 'refresh_reuse', newest);
      const events = world.logs
        .slice(told)
        .map(line => JSON.parse(line))
        .filter(({ event }) => event === 'refresh_token_reused');
      expect(events).to.have.length(1);
      expect(events[0])
        .to.include({ tenant: world.acme.guid, session: sid(client) })
        .and.to.have.property('traceId');
    });

    it('a refresh token of an older generation ends the session, also within 10 s', async () => {
      const client = await world.login(world.acme);
      const second = (await refresh(client.tokens!.refreshToken)).body;
      const third = (await refresh(second.refreshToken)).body;
      expect(comparable(await refresh(client.tokens!.refreshToken))).to.deep.equal(refusal);
      await expectEnded(client, 'refresh_reuse', third);
    });

    it('a refresh token that is newer than a restored control database is accepted, and an older one still ends the session', async () => {
      const client = await world.login(world.acme);
      const tokens = [client.tokens!.refreshToken];
      for (let i = 0; i < 3; i++) tokens.push((await refresh(tokens.at(-1))).body.refreshToken);
      await controlSql(world, 'update sessions set refresh_generation = 1 where id = ?', [sid(client)]);
      const { status, body } = await refresh(tokens[3]);
      expect(status).to.equal(200);
      expect(await row(client)).to.include({ refresh_generation: 4, revoked_at: null });
      expect((await refresh(tokens[2])).status).to.equal(401);
      expect((await row(client))?.revoked_reason).to.equal('refresh_reuse');
      expect((await refresh(body.refreshToken)).status).to.equal(401);
    });

    it('a session ends after 7 days without a refresh', async () => {
      const client = await world.login(world.acme);
      await age(client, 'refreshed_at', '6 days 23:59:50');
      const { status, body } = await refresh(client.tokens!.refreshToken);
      expect(status).to.equal(200);
      await age(client, 'refreshed_at', '7 days 00:00:01');
      for (const token of [body.refreshToken, client.tokens!.refreshToken])
        expect(comparable(await refresh(token))).to.deep.equal(refusal);
    });

    it('a session ends 30 days after the login, however active it is', async () => {
      const client = await world.login(world.acme);
      await age(client, 'created_at', '29 days 23:59:50');
      const { status, body } = await refresh(client.tokens!.refreshToken);
      expect(status).to.equal(200);
      await age(client, 'created_at', '30 days 00:00:01');
      expect(comparable(await refresh(body.refreshToken))).to.deep.equal(refusal);
    });

    it('a logout ends its session and no other', async () => {
      const [client, other] = [await world.login(world.acme), await world.login(world.acme)];
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
      const { status, body } = await client.post('/api/v1/auth/logout');
      expect([status, body]).to.deep.equal([204, '']);
      await expectEnded(client, 'logout');
      const again = await client.post('/api/v1/auth/logout');
      expect([again.status, again.body.code]).to.deep.equal([401, 'invalid_token']);
      expect((await other.get('/api/v1/auth/me')).status).to.equal(200);
      expect((await refresh(other.tokens!.refreshToken)).status).to.equal(200);
    });

    it('an expired token cannot end a session', async () => {
      const client = await world.login(world.acme);
      const now = Math.floor(Date.now() / 1000);
      const expired = resignToken(
        client.tokens!.accessToken,
        { iat: now - 1_000, exp: now - 100 },
        await activeKey(world, world.acme),
      );
      const { status, body } = await world.anonymous.withToken(expired).post('/api/v1/auth/logout');
      expect([status, body.code]).to.deep.equal([401, 'token_expired']);
      expect((await row(client))?.revoked_at).to.equal(null);
    });

    it('a password change ends all sessions of the user, and no other user’s', async () => {
      const person = await addSampleUser(world, world.acme);
      const clients = [await world.login(world.acme, person), await world.login(world.acme, person)];
      const other = await world.login(world.acme);
      for (const client of clients) expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
      await setPassword(world.installation, world.passwords, 'acme', person.email, 'a new password');
      for (const client of clients) await expectEnded(client, 'password_changed');
      expect((await other.get('/api/v1/auth/me')).status).to.equal(200);
    });

    it('disabling a user ends their sessions, before their access tokens expire', async () => {
      const person = await addSampleUser(world, world.acme);
      const client = await world.login(world.acme, person);
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [person.id]);
      const answer = await refused(client.tokens!.accessToken);
      expect(answer.body.code).to.equal('invalid_token');
      expect(comparable(await refresh(client.tokens!.refreshToken))).to.deep.equal(refusal);
    });

    it('a revoked session ends in every process within 1 s, permanently', async () => {
      const { url } = await world.startAnotherServer();
      const clients = await Promise.all(Array.from({ length: 10 }, () => world.login(world.acme)));
      await Promise.all(
        clients.map(async client => {
          const everywhere = [client, client.at(url)];
          const ask = () =>
            Promise.all(everywhere.map(each => each.get('/api/v1/auth/me').then(({ status }) => status)));
          expect(await ask()).to.deep.equal([200, 200]);
          const revoking = controlSql(world, 'update sessions set revoked_at = now() where id = ?', [sid(client)]);
          // Asked without a pause, so that look-ups are under way while the row changes.
          await eventually(async () => (await ask()).every(status => status === 401), 1_000);
          await revoking;
          for (let i = 0; i < 20; i++) expect(await ask()).to.deep.equal([401, 401]);
        }),
      );
    });
  });

  describe('are neither refreshed nor ended', () => {
    let client: Client;
    beforeEach(async () => {
      client = await world.login(world.acme);
    });
    afterEach(async () => {
      expect(await row(client)).to.include({ refresh_generation: 0, revoked_at: null });
      expect((await refresh(client.tokens!.refreshToken)).status).to.equal(200);
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
    });

    it('a text that is not a refresh token always gets the same 401', async () => {
      const { refreshToken, accessToken } = client.tokens!;
      expect(refusal).to.include({ status: 401 });
      expect(JSON.parse(String(refusal.body))).to.include({ code: 'invalid_refresh_token' });
      const garbage = [
        'x',
        '.',
        ' ',
        '\0',
        'é',
        '\ud800',
        accessToken,
        sid(client),
        refreshToken.slice(1),
        refreshToken.slice(0, -1),
        refreshToken.slice(0, 27),
        `${refreshToken}A`,
        `${refreshToken}=`,
        `${refreshToken}==`,
        ` ${refreshToken}`,
        `${refreshToken}\n`,
        refreshToken.toLowerCase(),
        Buffer.from(refreshToken, 'base64url').toString('hex'),
        randomBytes(52).toString('base64url'),
        Buffer.alloc(52).toString('base64url'),
        'A'.repeat(6_000),
      ];
      for (const token of garbage)
        expect(comparable(await refresh(token)), JSON.stringify(token)).to.deep.equal(refusal);
    });

    it('a refresh token with any one bit changed is rejected, and the session continues', async () => {
      const bytes = Buffer.from(client.tokens!.refreshToken, 'base64url');
      const changed = Array.from({ length: bytes.length * 8 }, (_, bit) => {
        const copy = Buffer.from(bytes);
        copy[bit >> 3] = copy[bit >> 3]! ^ (1 << (bit & 7));
        return copy.toString('base64url');
      });
      for (let at = 0; at < changed.length; at += 26) {
        const answers = await Promise.all(changed.slice(at, at + 26).map(token => refresh(token)));
        for (const answer of answers) expect(comparable(answer)).to.deep.equal(refusal);
      }
    });

    it('a token of another master key, another tenant or a missing session is rejected', async () => {
      const { secrets } = world.installation;
      const session = { sessionId: sid(client), generation: 0 };
      expect(encodeRefreshToken(session, world.acme.guid, secrets), 'what we forge with').to.equal(
        client.tokens!.refreshToken,
      );
      const stranger = { ...secrets, mac: () => randomBytes(32) };
      for (const token of [
        encodeRefreshToken(session, world.acme.guid, stranger),
        encodeRefreshToken(session, world.globex.guid, secrets),
        encodeRefreshToken({ ...session, sessionId: randomUUID() }, world.acme.guid, secrets),
      ])
        expect(comparable(await refresh(token))).to.deep.equal(refusal);
    });

    it('a valid refresh token is rejected by another tenant', async () => {
      expect(comparable(await refresh(client.tokens!.refreshToken, world.globex))).to.deep.equal(refusal);
      // Even one that has the other tenant's guid in its code is bound to the tenant of the row.
      const moved = encodeRefreshToken(
        { sessionId: sid(client), generation: 0 },
        world.globex.guid,
        world.installation.secrets,
      );
      expect(comparable(await refresh(moved, world.globex))).to.deep.equal(refusal);
    });

    it('a missing refresh token, or one that is not a string, is a validation error', async () => {
      for (const token of [undefined, null, 7, '', [client.tokens!.refreshToken], { token: 'x' }, true]) {
        const { status, body } = await refresh(token);
        expect([status, body.code], JSON.stringify(token)).to.deep.equal([400, 'validation_failed']);
        expect(Object.keys(body.errors)).to.deep.equal(['refreshToken']);
      }
    });

    it('a refresh token as bearer token is rejected', async () => {
      const { status, body, headers } = await me(client.tokens!.refreshToken);
      expect([status, body.code]).to.deep.equal([401, 'invalid_token']);
      expect(headers.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
    });
  });

  it('sessions pause while their tenant is suspended, and continue without a new login', async () => {
    const tenant = world.globex;
    const client = await world.login(tenant);
    const forged = resignToken(
      client.tokens!.accessToken,
      {},
      { ...(await activeKey(world, tenant)), secret: randomBytes(64) },
    );
    expect((await client.get('/api/v1/EntityStatus')).status).to.equal(200);
    for (const status of ['suspended', 'deleted', 'provisioning']) {
      await controlSql(world, 'update tenants set status = ? where id = ?', [status, tenant.id]);
      const answer = await eventually(async () => {
        const found = await client.get('/api/v1/EntityStatus');
        return found.status !== 200 && found;
      }, 1_000);
      expect([answer.status, answer.body.code], status).to.deep.equal([403, 'tenant_inactive']);
      expect((await me(forged)).body.code, 'a forged token is not told').to.equal('invalid_token');
      const required = [
        await refresh(client.tokens!.refreshToken, tenant),
        await world.anonymous.post('/api/v1/auth/login', tenant.admin, { 'X-Tenant': tenant.guid }),
        await world.anonymous.get('/api/v1/auth/me', { 'X-Tenant': tenant.guid }),
      ];
      for (const { status: code, body } of required)
        expect([code, body.code], status).to.deep.equal([403, 'tenant_required']);
    }
    await controlSql(world, `update tenants set status = 'active' where id = ?`, [tenant.id]);
    await eventually(async () => (await client.get('/api/v1/EntityStatus')).status === 200, 1_000);
    expect((await refresh(client.tokens!.refreshToken, tenant)).status).to.equal(200);
  });
});

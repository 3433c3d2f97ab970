import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { encodeRefreshToken } from '../../../src/accounts/auth/refresh-token.ts';
import { SecretBox } from '../../../src/control/secret-box.ts';
import { refreshRepeatSeconds, sessionLifetime } from '../../../src/control/token-lifetime.ts';
import { problem } from '../../../src/lib/problems.ts';
import { requestDeadlineMs } from '../../../src/lib/runtime/deadline.ts';
import { setPassword } from '../../../src/operator/credentials/users.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { lockWaiters } from '../../support/lock-waiters.ts';
import { controlSql, sql, type TestTenant, useWorld } from '../../support/world.ts';
import { activeKey, claimsOf, resignToken } from './forge.ts';
import { comparable } from './responses.ts';
import { addSampleUser } from './sample-users.ts';

interface SessionRow {
  refresh_generation: number;
  revoked_at: Date | null;
  revoked_reason: string | null;
}

describe('sessions', () => {
  const world = useWorld();
  /** The response that every rejected refresh must equal. */
  let rejection: Record<string, unknown>;

  const refresh = (refreshToken: unknown, tenant: TestTenant = world.acme): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': tenant.guid });
  const me = (accessToken: string): Promise<ApiResponse> =>
    world.anonymous.withToken(accessToken).get('/api/v1/auth/me');
  const sid = ({ tokens }: Client): string => String(claimsOf(tokens!.accessToken).sid);
  const findRow = async (client: Client): Promise<SessionRow | undefined> =>
    (await controlSql<SessionRow>(world, 'select * from sessions where id = ?', [sid(client)]))[0];
  /** Moves the last refresh or the creation of a session this long into the past. */
  const setAge = (client: Client, column: 'refreshed_at' | 'created_at', interval: string) =>
    controlSql(
      world,
      `update sessions set ${column} = now() - interval '${interval}' where id = ?`,
      [sid(client)],
    );
  /** Waits until the access token is rejected, and returns the response. */
  const waitForRejection = async (accessToken: string) =>
    eventually(async () => {
      const response = await me(accessToken);
      return response.status === 401 && response;
    }, announcedMs);

  before(async () => {
    rejection = comparable(await refresh('x'));
  });

  describe('refresh of a session', () => {
    it('a refresh returns a new pair of tokens, and the previous access token stays valid', async () => {
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

      for (const token of [accessToken, body.accessToken]) {
        expect((await me(token)).status).to.equal(200);
      }
      expect((await refresh(body.refreshToken)).status).to.equal(200);
    });

    it('a repeated refresh within a minute returns the same successor, for a client that lost the response', async () => {
      const client = await world.login(world.acme);
      const first = await refresh(client.tokens!.refreshToken);
      await setAge(client, 'refreshed_at', `${refreshRepeatSeconds - 5} seconds`);
      const again = await refresh(client.tokens!.refreshToken);
      expect(again.status).to.equal(200);
      expect(again.body.refreshToken).to.equal(first.body.refreshToken);
      expect((await findRow(client))?.refresh_generation).to.equal(1);
      expect((await refresh(again.body.refreshToken)).status, 'the successor').to.equal(200);
    });

    it('a refresh is repeatable for the deadline of a request, its Retry-After, and 30 s more', () => {
      const retryAfterSeconds = Number(problem('unavailable').headers['Retry-After']);

      const repeatedAfter = requestDeadlineMs / 1_000 + retryAfterSeconds;

      expect(refreshRepeatSeconds).to.be.at.least(repeatedAfter + 30);
    });

    it('a refresh that waits for the hanging commit of the same one returns its successor, however long it hung', async () => {
      const client = await world.login(world.acme);
      const em = (await world.installation.control()).em.fork();
      let response: Promise<ApiResponse> | undefined;

      await em.transactional(async hanging => {
        await hanging.execute(
          `update sessions set refresh_generation = 1, refreshed_at = now() - interval '1 hour' where id = ?`,
          [sid(client)],
        );
        response = refresh(client.tokens!.refreshToken);
        await eventually(async () => (await hanging.execute(lockWaiters)).length > 0);
      });

      const { status, body } = (await response)!;
      expect(status).to.equal(200);
      expect(await findRow(client)).to.include({ refresh_generation: 1, revoked_at: null });
      expect((await refresh(body.refreshToken)).status, 'the successor').to.equal(200);
    });

    it('50 concurrent refreshes with one token return the same successor', async () => {
      const client = await world.login(world.acme);
      const responses = await Promise.all(
        Array.from({ length: 50 }, () => refresh(client.tokens!.refreshToken)),
      );
      expect(new Set(responses.map(({ status }) => status))).to.deep.equal(new Set([200]));
      expect(new Set(responses.map(({ body }) => body.refreshToken))).to.have.property('size', 1);
      expect(await findRow(client)).to.include({ refresh_generation: 1, revoked_at: null });
      expect((await refresh(responses[0]!.body.refreshToken)).status).to.equal(200);
    });

    it('a session stays one row, however often it is refreshed', async () => {
      const user = await addSampleUser(world, world.acme);
      const client = await world.login(world.acme, user);
      let { refreshToken } = client.tokens!;
      for (let i = 0; i < 100; i++) ({ refreshToken } = (await refresh(refreshToken)).body);
      const rows = await controlSql<SessionRow>(world, 'select * from sessions where user_id = ?', [
        user.id,
      ]);
      expect(rows.map(({ refresh_generation }) => refresh_generation)).to.deep.equal([100]);
    });

    it('a refresh returns the current permissions, entity type and user', async () => {
      const [entity] = await sql<{ id: string }>(
        world.acme,
        `insert into entities (name, entity_type) values ('Now', 'supplier') returning id`,
      );
      const user = await addSampleUser(world, world.acme, {
        scope: 'Self',
        entityId: Number(entity?.id),
      });
      const client = await world.login(world.acme, user);

      await sql(world.acme, `update entities set entity_type = 'customer' where id = $1`, [
        entity?.id,
      ]);
      await controlSql(
        world,
        `update users
            set role_id = (select id from roles where tenant_id = users.tenant_id and name = 'Administrator')
          where id = ?`,
        [user.id],
      );

      let { refreshToken } = client.tokens!;
      await eventually(async () => {
        const { body } = await refresh(refreshToken);
        ({ refreshToken } = body);
        return (
          (claimsOf(body.accessToken).permissions as string[]).includes('full.manage') &&
          body.entityType === 'customer'
        );
      }, announcedMs);
    });

    it('a refresh that fails with 503 does not use up the refresh token', async () => {
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
          async () =>
            (await world.login(tenant))
              .get('/api/v1/EntityStatus')
              .then(({ status }) => status === 503),
          announcedMs,
        );
        expect((await refresh(client.tokens!.refreshToken, tenant)).status).to.equal(503);
        await setAge(client, 'refreshed_at', '2 minutes');
      } finally {
        await setVersion(version[0]!.schema_version);
      }

      await eventually(
        async () => (await refresh(client.tokens!.refreshToken, tenant)).status === 200,
        announcedMs,
      );
    });
  });

  describe('end of a session', () => {
    /**
     * Expects that every token of the session is rejected, and that its row has this reason.
     */
    const expectEnded = async (
      client: Client,
      reason: string,
      newest = client.tokens!,
    ): Promise<void> => {
      expect((await findRow(client))?.revoked_reason).to.equal(reason);
      await waitForRejection(newest.accessToken);
      await waitForRejection(client.tokens!.accessToken);
      expect(
        comparable(await refresh(newest.refreshToken)),
        'the newest refresh token',
      ).to.deep.equal(rejection);
    };

    it('a refresh token that is reused after a minute revokes the session with its newest tokens', async () => {
      const client = await world.login(world.acme);
      const newest = (await refresh(client.tokens!.refreshToken)).body;
      await setAge(client, 'refreshed_at', `${refreshRepeatSeconds + 1} seconds`);
      const logsBefore = world.logs.length;

      expect(comparable(await refresh(client.tokens!.refreshToken))).to.deep.equal(rejection);
      await expectEnded(client, 'refresh_reuse', newest);

      const events = world.logs
        .slice(logsBefore)
        .map(line => JSON.parse(line))
        .filter(({ event }) => event === 'refresh_token_reused');
      expect(events).to.have.length(1);
      expect(events[0])
        .to.include({ tenant: world.acme.guid, session: sid(client) })
        .and.to.have.property('traceId');
    });

    it('a refresh token of an older generation revokes the session, also within a minute', async () => {
      const client = await world.login(world.acme);
      const second = (await refresh(client.tokens!.refreshToken)).body;
      const third = (await refresh(second.refreshToken)).body;
      expect(comparable(await refresh(client.tokens!.refreshToken))).to.deep.equal(rejection);
      await expectEnded(client, 'refresh_reuse', third);
    });

    it('after a restore, a newer refresh token is accepted, and an older one still revokes the session', async () => {
      const client = await world.login(world.acme);
      const tokens = [client.tokens!.refreshToken];
      for (let i = 0; i < 3; i++) tokens.push((await refresh(tokens.at(-1))).body.refreshToken);
      await controlSql(world, 'update sessions set refresh_generation = 1 where id = ?', [
        sid(client),
      ]);

      const { status, body } = await refresh(tokens[3]);
      expect(status).to.equal(200);
      expect(await findRow(client)).to.include({ refresh_generation: 4, revoked_at: null });

      expect((await refresh(tokens[2])).status).to.equal(401);
      expect((await findRow(client))?.revoked_reason).to.equal('refresh_reuse');
      expect((await refresh(body.refreshToken)).status).to.equal(401);
    });

    it(`a session ends after ${sessionLifetime.idle} without a refresh`, async () => {
      const client = await world.login(world.acme);
      await setAge(client, 'refreshed_at', `${sessionLifetime.idle} -10 seconds`);
      const { status, body } = await refresh(client.tokens!.refreshToken);
      expect(status).to.equal(200);
      await setAge(client, 'refreshed_at', `${sessionLifetime.idle} 1 second`);
      for (const token of [body.refreshToken, client.tokens!.refreshToken]) {
        expect(comparable(await refresh(token))).to.deep.equal(rejection);
      }
    });

    it(`a session ends ${sessionLifetime.total} after the login, however active it is`, async () => {
      const client = await world.login(world.acme);
      await setAge(client, 'created_at', `${sessionLifetime.total} -10 seconds`);
      const { status, body } = await refresh(client.tokens!.refreshToken);
      expect(status).to.equal(200);
      await setAge(client, 'created_at', `${sessionLifetime.total} 1 second`);
      expect(comparable(await refresh(body.refreshToken))).to.deep.equal(rejection);
    });

    it('a logout ends its session and no other', async () => {
      const [client, other] = [await world.login(world.acme), await world.login(world.acme)];
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);

      const { status, body } = await client.post('/api/v1/auth/logout');
      expect(status).to.equal(204);
      expect(body).to.equal('');
      await expectEnded(client, 'logout');

      const again = await client.post('/api/v1/auth/logout');
      expect(again.status).to.equal(401);
      expect(again.body.code).to.equal('invalid_token');
      expect((await other.get('/api/v1/auth/me')).status).to.equal(200);
      expect((await refresh(other.tokens!.refreshToken)).status).to.equal(200);
    });

    it('a logout with an expired access token does not end the session', async () => {
      const client = await world.login(world.acme);
      const now = Math.floor(Date.now() / 1000);
      const expired = resignToken(
        client.tokens!.accessToken,
        { iat: now - 1_000, exp: now - 100 },
        await activeKey(world, world.acme),
      );

      const { status, body } = await world.anonymous.withToken(expired).post('/api/v1/auth/logout');
      expect(status).to.equal(401);
      expect(body.code).to.equal('token_expired');
      expect((await findRow(client))?.revoked_at).to.equal(null);
    });

    it('a password change ends all sessions of the user, and no session of other users', async () => {
      const user = await addSampleUser(world, world.acme);
      const clients = [await world.login(world.acme, user), await world.login(world.acme, user)];
      const other = await world.login(world.acme);
      for (const client of clients) {
        expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
      }

      await setPassword(
        world.installation,
        world.passwords,
        'acme',
        user.email,
        'a new password of it',
      );

      for (const client of clients) await expectEnded(client, 'password_changed');
      expect((await other.get('/api/v1/auth/me')).status).to.equal(200);
    });

    it('the sessions of a disabled user end before their access tokens expire', async () => {
      const user = await addSampleUser(world, world.acme);
      const client = await world.login(world.acme, user);
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [user.id]);
      const rejected = await waitForRejection(client.tokens!.accessToken);
      expect(rejected.body.code).to.equal('invalid_token');
      expect(comparable(await refresh(client.tokens!.refreshToken))).to.deep.equal(rejection);
    });

    it('a revoked session is rejected by all servers, and never accepted again', async () => {
      const { url } = await world.startAnotherServer();
      const clients = await Promise.all(Array.from({ length: 10 }, () => world.login(world.acme)));

      await Promise.all(
        clients.map(async client => {
          const servers = [client, client.at(url)];
          const statuses = () =>
            Promise.all(
              servers.map(server => server.get('/api/v1/auth/me').then(({ status }) => status)),
            );
          expect(await statuses()).to.deep.equal([200, 200]);

          const revoking = controlSql(
            world,
            'update sessions set revoked_at = now() where id = ?',
            [sid(client)],
          );
          // The requests follow each other without a pause, so the session is loaded while its
          // row changes.
          await eventually(
            async () => (await statuses()).every(status => status === 401),
            announcedMs,
          );
          await revoking;

          for (let i = 0; i < 20; i++) expect(await statuses()).to.deep.equal([401, 401]);
        }),
      );
    });
  });

  describe('invalid refresh tokens', () => {
    let client: Client;
    beforeEach(async () => {
      client = await world.login(world.acme);
    });
    afterEach(async () => {
      expect(await findRow(client)).to.include({ refresh_generation: 0, revoked_at: null });
      expect((await refresh(client.tokens!.refreshToken)).status).to.equal(200);
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
    });

    it('every text that is not a refresh token gets the same 401 response', async () => {
      const { refreshToken, accessToken } = client.tokens!;
      expect(rejection).to.include({ status: 401 });
      expect(JSON.parse(String(rejection.body))).to.include({ code: 'invalid_refresh_token' });

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

      for (const token of garbage) {
        expect(comparable(await refresh(token)), JSON.stringify(token)).to.deep.equal(rejection);
      }
    });

    it('a refresh token with one changed bit is rejected, and the session stays active', async () => {
      const bytes = Buffer.from(client.tokens!.refreshToken, 'base64url');
      const changed = Array.from({ length: bytes.length * 8 }, (_, bit) => {
        const copy = Buffer.from(bytes);
        copy[bit >> 3] = copy[bit >> 3]! ^ (1 << (bit & 7));
        return copy.toString('base64url');
      });

      for (let at = 0; at < changed.length; at += 26) {
        const responses = await Promise.all(
          changed.slice(at, at + 26).map(token => refresh(token)),
        );
        for (const response of responses) expect(comparable(response)).to.deep.equal(rejection);
      }
    });

    it('a refresh token of another master key, another tenant or a missing session is rejected', async () => {
      const { secrets } = world.installation;
      const session = { sessionId: sid(client), generation: 0 };
      expect(
        encodeRefreshToken(session, world.acme.guid, secrets),
        'the forged form is right',
      ).to.equal(client.tokens!.refreshToken);

      const foreignSecrets = new SecretBox(randomBytes(32));

      for (const token of [
        encodeRefreshToken(session, world.acme.guid, foreignSecrets),
        encodeRefreshToken(session, world.globex.guid, secrets),
        encodeRefreshToken({ ...session, sessionId: randomUUID() }, world.acme.guid, secrets),
      ]) {
        expect(comparable(await refresh(token))).to.deep.equal(rejection);
      }
    });

    it('a refresh token is rejected in another tenant, even if its code is forged for that tenant', async () => {
      expect(comparable(await refresh(client.tokens!.refreshToken, world.globex))).to.deep.equal(
        rejection,
      );

      // The row of the session names its tenant, so a valid code for the other tenant does not
      // help.
      const moved = encodeRefreshToken(
        { sessionId: sid(client), generation: 0 },
        world.globex.guid,
        world.installation.secrets,
      );
      expect(comparable(await refresh(moved, world.globex))).to.deep.equal(rejection);
    });

    it('a missing refresh token, or one that is no string, gets 400 with the field refreshToken', async () => {
      for (const token of [
        undefined,
        null,
        7,
        '',
        [client.tokens!.refreshToken],
        { token: 'x' },
        true,
      ]) {
        const { status, body } = await refresh(token);

        expect(status, JSON.stringify(token)).to.equal(400);
        expect(body.code, JSON.stringify(token)).to.equal('validation_failed');
        expect(Object.keys(body.errors)).to.deep.equal(['refreshToken']);
      }
    });

    it('a refresh token is rejected as bearer token', async () => {
      const { status, body, headers } = await me(client.tokens!.refreshToken);
      expect(status).to.equal(401);
      expect(body.code).to.equal('invalid_token');
      expect(headers.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
    });
  });

  it('sessions are rejected while their tenant is inactive, and work again once it is active', async () => {
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
      const rejected = await eventually(async () => {
        const response = await client.get('/api/v1/EntityStatus');
        return response.status !== 200 && response;
      }, announcedMs);
      expect(rejected.status, status).to.equal(403);
      expect(rejected.body.code, status).to.equal('tenant_inactive');
      expect((await me(forged)).body.code, 'a forged token').to.equal('invalid_token');

      const withoutToken = [
        await refresh(client.tokens!.refreshToken, tenant),
        await world.anonymous.post('/api/v1/auth/login', tenant.admin, { 'X-Tenant': tenant.guid }),
        await world.anonymous.get('/api/v1/auth/me', { 'X-Tenant': tenant.guid }),
      ];
      for (const { status: code, body } of withoutToken) {
        expect(code, status).to.equal(403);
        expect(body.code, status).to.equal('tenant_required');
      }
    }

    await controlSql(world, `update tenants set status = 'active' where id = ?`, [tenant.id]);
    await eventually(
      async () => (await client.get('/api/v1/EntityStatus')).status === 200,
      announcedMs,
    );
    expect((await refresh(client.tokens!.refreshToken, tenant)).status).to.equal(200);
  });
});

import { expect } from 'chai';
import { addClient, revokeClient } from '../../../src/operator/credentials/clients.ts';
import { listClients } from '../../../src/operator/credentials/read-users.ts';
import { setDisabled } from '../../../src/operator/credentials/users.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { lockWaiters } from '../../support/lock-waiters.ts';
import { controlSql, sql, type TestTenant, useWorld } from '../../support/world.ts';
import { comparable } from './responses.ts';
import { addSampleUser, type SampleUser } from './sample-users.ts';
import { expectNotLogged, expectNotStored } from './secrets.ts';

const path = '/api/Data/GenerateToken';
const data = '/api/v1/EntityStatus';
const ninetyDays = 90 * 24 * 3_600;

interface TestClient {
  id: string;
  secret: string;
  user: SampleUser;
  tenant: TestTenant;
}

describe('legacy tokens', () => {
  const world = useWorld();
  /** URL of the second process of the service. */
  let otherUrl: string;
  let apiClient: TestClient;
  const secrets = new Set<string>();

  before(async () => {
    otherUrl = (await world.startAnotherServer()).url;
    for (const tenant of [world.acme, world.globex]) await enable(tenant, true);
    apiClient = await addTestClient(world.acme);
    await eventually(async () => (await generate(apiClient)).status === 200, announcedMs);
    await eventually(
      async () => (await generate(await addTestClient(world.globex))).status === 200,
      announcedMs,
    );
  });

  const enable = (tenant: TestTenant, on: boolean) =>
    controlSql(world, `update tenants set features = ?::text[] where id = ?`, [
      on ? '{legacyTokens}' : '{}',
      tenant.id,
    ]);
  const addTestClient = async (
    tenant: TestTenant,
    options: { role?: string; scope?: 'Self' | 'All'; entityId?: number } = {},
  ): Promise<TestClient> => {
    const user = await addSampleUser(world, tenant, options);
    const added = await addClient(
      world.installation,
      tenant.slug,
      user.email,
      'Price list of 2009',
    );
    secrets.add(added.secret).add(user.password);
    return { ...added, user, tenant };
  };
  const basic = (id: string, secret: string): string =>
    `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  const generate = async (
    { id, secret }: { id: string; secret: string },
    headers: Record<string, string> = {},
  ): Promise<ApiResponse> => {
    const response = await world.anonymous.get(path, {
      Authorization: basic(id, secret),
      ...headers,
    });
    if (response.status === 200) secrets.add(response.body.token);
    return response;
  };
  const tokenOf = async (owner: TestClient): Promise<string> => {
    const { status, body } = await generate(owner);
    expect(status).to.equal(200);
    return body.token;
  };
  const withToken = (token: string): Client => world.anonymous.withToken(token);
  const statuses = async (token: string, at = data): Promise<number[]> =>
    Promise.all(
      [world.url, otherUrl].flatMap(url => [
        withToken(token).at(url).get(at),
        world.anonymous.at(url).get(at, { 'X-Api-Token': token }),
      ]),
    ).then(responses => responses.map(({ status }) => status));
  /**
   * Waits until every process returns the status, for the token in either header; fails after 1
   * s.
   */
  const becomes = (token: string, status: number, at = data): Promise<boolean> =>
    eventually(async () => (await statuses(token, at)).every(each => each === status), announcedMs);
  const expectAnnounced = ({ headers }: ApiResponse, what: string): void => {
    expect(headers.get('deprecation'), what).to.match(/^@\d{10}$/);
    const sunset = headers.get('sunset') ?? '';
    expect(new Date(sunset).toUTCString(), what).to.equal(sunset);
    expect(Date.parse(sunset), what).to.be.above(Date.parse('2027-01-01'));
  };

  describe('issuing', () => {
    it('an API client gets an opaque token with a checksum, valid for 90 days, for its id and secret', async () => {
      const response = await generate(apiClient);
      const { status, body, headers } = response;

      expect(status).to.equal(200);
      expect(body).to.have.all.keys('token', 'expiresAt');
      expect(body.token).to.match(/^sbl_[\w-]{43}[0-9a-f]{8}$/);
      expect(Date.parse(body.expiresAt) - Date.now()).to.be.within(
        (ninetyDays - 60) * 1_000,
        ninetyDays * 1_000,
      );
      expect(headers.get('cache-control')).to.equal('no-store');
      expectAnnounced(response, 'GenerateToken');

      const [one, two] = [await tokenOf(apiClient), await tokenOf(apiClient)];
      expect(new Set([one, two, body.token]).size).to.equal(3);
      for (const token of [one, two, body.token]) {
        expect((await withToken(token).get(data)).status).to.equal(200);
      }
    });

    it('HEAD checks the credentials and issues no token', async () => {
      const head = async (secret: string) => {
        const headers = { Authorization: basic(apiClient.id, secret) };
        return (await fetch(`${world.url}${path}`, { method: 'HEAD', headers })).status;
      };
      const countTokens = async () =>
        (await controlSql<{ count: string }>(world, 'select count(*) from legacy_tokens'))[0]
          ?.count;

      const before = await countTokens();
      expect(await head(apiClient.secret)).to.equal(200);
      expect(await head('wrong')).to.equal(401);
      expect(await countTokens()).to.equal(before);
    });

    it('the token belongs to the tenant of the API client, whatever X-Tenant says', async () => {
      for (const guid of [world.globex.guid, 'nonsense']) {
        const { body } = await generate(apiClient, { 'X-Tenant': guid });
        expect((await withToken(body.token).get('/api/v1/auth/me')).body.tenantGuid).to.equal(
          world.acme.guid,
        );
      }
    });

    it('any other credentials get the same 401 with a Basic challenge', async () => {
      const revoked = await addTestClient(world.acme);
      await revokeClient(world.installation, 'acme', revoked.id);
      const disabled = await addTestClient(world.acme);
      await setDisabled(world.installation, 'acme', disabled.user.email, true);
      await eventually(async () => (await generate(disabled)).status === 401, announcedMs);
      const other = await addTestClient(world.acme);

      const { id, secret } = apiClient;
      const wrong: Record<string, string> = {
        'no credentials': '',
        'a wrong secret': basic(id, `${secret.slice(0, -1)}${secret.endsWith('A') ? 'B' : 'A'}`),
        'a truncated secret': basic(id, secret.slice(0, -1)),
        'no secret': basic(id, ''),
        'the secret of another client': basic(id, other.secret),
        'an unknown id': basic('client-0000000000000000', secret),
        'no id': basic('', secret),
        'an id in capitals': basic(id.toUpperCase(), secret),
        'an id with a wildcard': basic('%', secret),
        'an id of another kind': basic(`' or '1'='1`, secret),
        'a NUL': basic(`${id}\0`, secret),
        'no colon': `Basic ${Buffer.from(id + secret).toString('base64')}`,
        'credentials that are not base64': `Basic ${id}:${secret}`,
        'nothing after the scheme': 'Basic ',
        'another scheme': basic(id, secret).replace('Basic', 'Digest'),
        'the secret as a bearer token': `Bearer ${secret}`,
        'a user’s name and password': basic(apiClient.user.email, apiClient.user.password),
        'a revoked client': basic(revoked.id, revoked.secret),
        'a client of a disabled user': basic(disabled.id, disabled.secret),
        'a very long id': basic('x'.repeat(3_000), secret),
      };

      const expected = comparable(await world.anonymous.get(path));
      expect(expected.status).to.equal(401);

      for (const [reason, authorization] of Object.entries(wrong)) {
        const response = await world.anonymous.get(path, { Authorization: authorization });
        expect(comparable(response), reason).to.deep.equal(expected);
        expect(response.headers.get('www-authenticate')).to.match(/^Basic realm="[^"]+"/);
        expectAnnounced(response, reason);
      }
    });

    it('credentials in the query are ignored', async () => {
      const { id, secret } = apiClient;
      for (const query of [
        `id=${id}&secret=${secret}`,
        `client_id=${id}&client_secret=${secret}`,
        `token=${secret}`,
      ]) {
        expect((await world.anonymous.get(`${path}?${query}`)).status).to.equal(401);
      }
    });

    it('neither an access token nor a legacy token can be exchanged for a token', async () => {
      const user = await world.login(world.acme);
      for (const client of [user, withToken(await tokenOf(apiClient))]) {
        expect((await client.get(path)).status).to.equal(401);
      }
      const withLegacyToken = await world.anonymous.get(path, {
        'X-Api-Token': await tokenOf(apiClient),
      });
      expect(withLegacyToken.status).to.equal(401);
    });
  });

  describe('requests', () => {
    it('a token in either header authenticates the client as its user, and Authorization wins', async () => {
      const token = await tokenOf(apiClient);

      for (const response of [
        await withToken(token).get('/api/v1/auth/me'),
        await world.anonymous.get('/api/v1/auth/me', { 'X-Api-Token': token }),
        await world.anonymous.get('/api/v1/auth/me', { Authorization: `bearer  ${token}` }),
      ]) {
        expect(response.status).to.equal(200);
        expect(response.body).to.include({
          userGuid: apiClient.user.guid,
          tenantGuid: world.acme.guid,
          role: 'Member',
        });
        expect(token).to.not.include(response.body.tokenId);
        expectAnnounced(response, 'me');
      }

      const both = { Authorization: 'Bearer a.b.c', 'X-Api-Token': token };
      expect((await world.anonymous.get(data, both)).status).to.equal(401);
    });

    it('an API client may change what its user may, and the audit log names the user', async () => {
      const administrator = await addTestClient(world.acme, { role: 'Administrator' });
      const client = withToken(await tokenOf(administrator));

      const created = await client.post(data, { Title: 'By an API client' });
      expect(created.status).to.equal(201);

      const [entry] = await sql<{ user_id: string }>(
        world.acme,
        `select user_id from audit_log where resource = 'EntityStatus' and record_key = $1`,
        [String(created.body.Id)],
      );
      expect(Number(entry?.user_id)).to.equal(administrator.user.id);

      const refused = await withToken(await tokenOf(apiClient)).post(data, {
        Title: 'Not allowed',
      });
      expect(refused.status).to.equal(403);
      expect(refused.body.code).to.equal('forbidden');
    });

    it('a token gives access to its own tenant only, whatever X-Tenant says', async () => {
      const foreign = await addTestClient(world.globex, { role: 'Administrator' });
      const foreignToken = await tokenOf(foreign);

      const title = 'Seen by Globex alone';
      expect(
        (
          await withToken(foreignToken).post(
            data,
            { Title: title },
            { 'X-Tenant': world.acme.guid },
          )
        ).status,
      ).to.equal(201);

      const titles = async (token: string, guid: string): Promise<string[]> => {
        const { body } = await withToken(token).get(data, { 'X-Tenant': guid });
        return (body as { Title: string }[]).map(({ Title }) => Title);
      };

      const ownToken = await tokenOf(apiClient);
      for (const guid of [world.acme.guid, world.globex.guid]) {
        expect(await titles(foreignToken, guid)).to.include(title);
        expect(await titles(ownToken, guid)).to.not.include(title);
      }

      const me = await world.anonymous.get('/api/v1/auth/me', {
        'X-Api-Token': ownToken,
        'X-Tenant': world.globex.guid,
      });
      expect(me.body.tenantGuid).to.equal(world.acme.guid);
    });

    it('a token has the current role, permissions, scope and entity of its user', async () => {
      const [entity] = await sql<{ id: string }>(
        world.acme,
        `insert into entities (name, entity_type) values ('Old & Co', 'supplier') returning id`,
      );

      const owner = await addTestClient(world.acme, { scope: 'All' });
      const token = await tokenOf(owner);
      const me = async () => (await withToken(token).get('/api/v1/auth/me')).body;

      expect(await me()).to.include({ scope: 'All', userEntityId: null, role: 'Member' });
      await becomes(token, 200);

      await controlSql(
        world,
        `update users set scope = 'Self', entity_id = ?, entity_since = now() where id = ?`,
        [entity?.id, owner.user.id],
      );
      await eventually(async () => (await me()).scope === 'Self', announcedMs);
      expect(await me()).to.include({ userEntityId: Number(entity?.id) });

      await controlSql(
        world,
        `with role as (
           insert into roles (tenant_id, name, permissions) values (?, 'Less', '{settings.write}') returning id)
         update users set role_id = (select id from role) where id = ?`,
        [world.acme.id, owner.user.id],
      );
      await becomes(token, 403);
      expect((await me()).permissions).to.deep.equal(['settings.write']);

      await controlSql(world, `update roles set permissions = '{full.read}' where name = 'Less'`);
      await becomes(token, 200);
    });

    it('every response to a legacy token has Deprecation and Sunset, also errors', async () => {
      const token = await tokenOf(apiClient);
      const responses: [ApiResponse, number][] = [
        [await withToken(token).get(data), 200],
        [await withToken(token).get(`${data}/999999`), 404],
        [await withToken(token).get('/api/v1/nothing'), 404],
        [await withToken(token).send('PATCH', data), 405],
        [await withToken(token).post(data, { Title: 'x' }), 403],
        [await withToken(token).get('/api/v1/Activity?limit=0'), 400],
        [await withToken(token).get('/api/v1/auth/me'), 200],
      ];

      for (const [response, status] of responses) {
        expect(response.status).to.equal(status);
        expectAnnounced(response, `${status}`);
      }

      const user = await world.login(world.acme);
      expect(
        (await user.get(data)).headers.has('deprecation'),
        'not with an access token',
      ).to.equal(false);
    });

    it('accepted requests are counted, at the latest when the process stops, and refused ones are not', async () => {
      const owner = await addTestClient(world.acme);
      const token = await tokenOf(owner);
      const uses = async () =>
        (await listClients(world.installation, 'acme')).find(({ id }) => id === owner.id);
      expect(await uses()).to.include({ tokens: 1, uses: 0, lastUsedAt: null, state: 'active' });

      const { service, url } = await world.startAnotherServer();
      for (let i = 0; i < 3; i++) {
        expect((await withToken(token).at(url).get(data)).status).to.equal(200);
      }
      await service.stop();
      expect(await uses()).to.include({ uses: 3 });

      await Promise.all(Array.from({ length: 5 }, () => withToken(token).get(data)));
      await eventually(async () => (await uses())?.uses === 8);
      expect(Date.now() - Date.parse((await uses())?.lastUsedAt ?? '')).to.be.below(60_000);

      await revokeClient(world.installation, 'acme', owner.id);
      await becomes(token, 401);
      const last = await world.startAnotherServer();
      for (let i = 0; i < 3; i++) {
        expect((await withToken(token).at(last.url).get(data)).status).to.equal(401);
      }
      await last.service.stop();
      expect(await uses()).to.include({ uses: 8, state: 'revoked' });
    });
  });

  describe('refusal', () => {
    const expectRefused = async (token: string, status: number, code: string): Promise<void> => {
      await becomes(token, status);
      for (const response of [
        await withToken(token).get(data),
        await world.anonymous.get(data, { 'X-Api-Token': token }),
      ]) {
        expect(response.status).to.equal(status);
        expect(response.body.code).to.equal(code);
        expectAnnounced(response, code);
      }
    };

    it('a changed, truncated, invented or otherwise malformed token is refused', async () => {
      const token = await tokenOf(apiClient);
      const changed = [...token.slice(4)].map(
        (letter, at) => token.slice(0, at + 4) + (letter === '0' ? '1' : '0') + token.slice(at + 5),
      );

      const { createLegacyToken } = await import('../../../src/control/legacy-token.ts');
      const wrong = [
        ...changed,
        createLegacyToken(),
        token.slice(0, -1),
        `${token}0`,
        token.toUpperCase(),
        token.replace('sbl_', 'sbl-'),
        token.slice(4),
        `${token},${token}`,
        'sbl_',
        `sbl_${'x'.repeat(5_000)}`,
      ];

      const responses = await Promise.all(wrong.map(each => withToken(each).get(data)));
      for (const [at, { status, body, headers }] of responses.entries()) {
        expect(status, wrong[at]).to.equal(401);
        expect(body.code, wrong[at]).to.equal('invalid_token');
        expect(headers.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
      }

      const twice = await world.anonymous.get(data, { 'X-Api-Token': `${token}, ${token}` });
      expect(twice.status).to.equal(401);

      // X-Api-Token accepts no other kind of token.
      const { tokens } = await world.login(world.acme);
      const jwt = { 'X-Api-Token': tokens?.accessToken ?? '', 'X-Tenant': world.acme.guid };
      expect((await world.anonymous.get(data, jwt)).body.code).to.equal('unauthorized');
      expect((await withToken(token).get(data)).status).to.equal(200);
    });

    it('a token is refused 90 days after it was issued', async () => {
      const token = await tokenOf(apiClient);

      try {
        world.clock.offsetSeconds = ninetyDays - 60;
        expect((await withToken(token).get(data)).status).to.equal(200);
        world.clock.offsetSeconds = ninetyDays + 1;
        await expectRefused(token, 401, 'invalid_token');
      } finally {
        world.clock.offsetSeconds = 0;
      }

      expect((await withToken(token).get(data)).status).to.equal(200);
    });

    it('a token whose expiry was changed by SQL is refused', async () => {
      const owner = await addTestClient(world.acme);
      const token = await tokenOf(owner);
      await becomes(token, 200);
      await controlSql(world, 'update legacy_tokens set expires_at = now() where client_id = ?', [
        owner.id,
      ]);
      await expectRefused(token, 401, 'invalid_token');
    });

    it('all tokens of a revoked client are refused in every process', async () => {
      const [owner, other] = [await addTestClient(world.acme), await addTestClient(world.acme)];
      const tokens = [await tokenOf(owner), await tokenOf(owner)];
      const otherToken = await tokenOf(other);
      for (const token of [...tokens, otherToken]) await becomes(token, 200);

      await revokeClient(world.installation, 'acme', owner.id);
      const startedAt = performance.now();
      for (const token of tokens) await expectRefused(token, 401, 'invalid_token');
      console.log(
        `      refused in both processes after ${(performance.now() - startedAt).toFixed(0)} ms`,
      );

      expect((await generate(owner)).status).to.equal(401);
      expect(await statuses(otherToken)).to.deep.equal([200, 200, 200, 200]);
    });

    it('a logout with a legacy token ends that token in every process, and no other one of its client', async () => {
      const owner = await addTestClient(world.acme);
      const [token, inHeader, kept] = [
        await tokenOf(owner),
        await tokenOf(owner),
        await tokenOf(owner),
      ];
      for (const each of [token, inHeader, kept]) await becomes(each, 200);

      const ended = await withToken(token).post('/api/v1/auth/logout');
      const named = await world.anonymous.post('/api/v1/auth/logout', undefined, {
        'X-Api-Token': inHeader,
      });

      expect([ended.status, named.status]).to.deep.equal([204, 204]);
      expect((await withToken(token).get(data)).status, 'in this process at once').to.equal(401);
      for (const each of [token, inHeader]) await expectRefused(each, 401, 'invalid_token');
      expect(await statuses(kept)).to.deep.equal([200, 200, 200, 200]);
      expect((await withToken(await tokenOf(owner)).get(data)).status, 'a new one').to.equal(200);
    });

    it('a token that is issued while its client is being revoked is refused too', async () => {
      const owner = await addTestClient(world.acme);
      const { running } = await world.control.em.fork().transactional(async em => {
        await em.execute('update api_clients set revoked_at = now() where id = ?', [owner.id]);
        // The revocation is not committed, so the request finds the client and creates a token.
        const call = generate(owner);
        let hasEnded = false;
        void call.finally(() => (hasEnded = true));
        await eventually(async () => hasEnded || (await em.execute(lockWaiters)).length > 0);
        return { running: call };
      });

      const { status, body } = await running;
      if (status === 200) await expectRefused(body.token, 401, 'invalid_token');
      else expect(status).to.equal(401);
    });

    it('a token is refused while its user is disabled', async () => {
      const owner = await addTestClient(world.acme);
      const token = await tokenOf(owner);
      await becomes(token, 200);
      await setDisabled(world.installation, 'acme', owner.user.email, true);
      await expectRefused(token, 401, 'invalid_token');
      await setDisabled(world.installation, 'acme', owner.user.email, false);
      await becomes(token, 200);
    });

    it('a token is refused while its tenant is not active', async () => {
      const owner = await addTestClient(world.globex);
      const token = await tokenOf(owner);
      await becomes(token, 200);

      for (const state of ['suspended', 'deleted', 'provisioning']) {
        await controlSql(world, 'update tenants set status = ? where id = ?', [
          state,
          world.globex.id,
        ]);
        await expectRefused(token, 403, 'tenant_inactive');

        const response = await generate(owner);
        expect(response.status, state).to.equal(403);
        expect(response.body.code, state).to.equal('tenant_inactive');
        expectAnnounced(response, state);
        expect(
          (await generate({ ...owner, secret: 'wrong' })).status,
          'not reported for a wrong secret',
        ).to.equal(401);
      }

      await controlSql(world, `update tenants set status = 'active' where id = ?`, [
        world.globex.id,
      ]);
      await becomes(token, 200);
    });

    it('a token is refused with 410 when its tenant has legacy tokens disabled', async () => {
      const owner = await addTestClient(world.globex);
      const token = await tokenOf(owner);

      await enable(world.globex, false);
      await expectRefused(token, 410, 'gone');

      const response = await generate(owner);
      expect(response.status).to.equal(410);
      expect(response.body.code).to.equal('gone');
      expectAnnounced(response, 'GenerateToken');

      expect((await generate({ ...owner, secret: 'wrong' })).status).to.equal(401);
      expect(await statuses(await tokenOf(apiClient)), 'a token of another tenant').to.deep.equal([
        200, 200, 200, 200,
      ]);

      await enable(world.globex, true);
      await becomes(token, 200);
    });
  });

  it('the control database stores hashes of secrets and tokens only', async () => {
    await expectNotStored(world, [apiClient.secret, await tokenOf(apiClient)]);
  });

  // In a suite of its own, because mocha runs the tests of a suite before its nested suites.
  describe('log', () => {
    it('the log contains neither secrets nor legacy tokens', async () => {
      await statuses(await tokenOf(apiClient));

      expectNotLogged(world, secrets);
    });
  });
});

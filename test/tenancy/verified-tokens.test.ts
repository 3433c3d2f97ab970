import { expect } from 'chai';
import { clockSkewSeconds } from '../../src/control/token-lifetime.ts';
import { disableKey } from '../../src/operator/credentials/keys.ts';
import { type VerifiedToken, VerifiedTokens } from '../../src/tenancy/verified-tokens.ts';
import { activeKey, claimsOf, forgeToken, resignToken } from '../accounts/auth/forge.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { announcedMs, eventually } from '../support/eventually.ts';
import { controlSql, useTwoProcesses, useWorld } from '../support/world.ts';

const me = '/api/v1/auth/me';

describe('verified tokens', () => {
  const world = useWorld();
  const urls = useTwoProcesses(world);

  const inBoth = (client: Client): Promise<ApiResponse[]> =>
    Promise.all(urls.map(url => client.at(url).get(me)));
  const codes = async (client: Client) =>
    (await inBoth(client)).map(({ status, body }) => body.code ?? status);

  /** Sends enough requests that both processes have cached the token. */
  async function cacheToken(client: Client): Promise<Client> {
    for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal([200, 200]);
    return client;
  }

  describe('revocation', () => {
    const changes: [string, string, string][] = [
      [
        'session is revoked',
        'update sessions set revoked_at = now() where id = $sid',
        'invalid_token',
      ],
      [
        'user is disabled',
        'update users set disabled_at = now() where id = (select user_id from sessions where id = $sid)',
        'invalid_token',
      ],
      [
        'user is deleted',
        'delete from users where id = (select user_id from sessions where id = $sid)',
        'invalid_token',
      ],
      [
        'tenant is suspended',
        `update tenants set status = 'suspended' where id = (select tenant_id from sessions where id = $sid)`,
        'tenant_inactive',
      ],
    ];
    for (const [name, change, code] of changes) {
      it(`a cached token whose ${name} is refused in every process, and stays refused`, async () => {
        const client = await cacheToken(
          await world.loginAs(world.globex, { permissions: ['full.read'] }),
        );

        await controlSql(world, change.replace('$sid', '?'), [
          claimsOf(client.tokens!.accessToken).sid,
        ]);
        await eventually(
          async () => (await codes(client)).every(each => each === code),
          announcedMs,
        );
        for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal([code, code]);

        await controlSql(world, `update tenants set status = 'active' where status = 'suspended'`);
        await eventually(
          async () => (await codes(await world.login(world.globex)))[0] === 200,
          announcedMs,
        );
      });
    }

    it('a cached token whose key is disabled is refused in every process, and stays refused', async () => {
      const client = await cacheToken(await world.login(world.globex));
      const { kid } = await activeKey(world, world.globex);
      await disableKey(world.installation, 'globex', kid);

      await eventually(
        async () => (await codes(client)).every(each => each === 'invalid_token'),
        announcedMs,
      );

      for (let i = 0; i < 4; i++) {
        expect(await codes(client)).to.deep.equal(['invalid_token', 'invalid_token']);
      }
    });

    it('a cached token is refused when it has expired, by the clock at the time of the request', async () => {
      const client = await cacheToken(await world.login(world.acme));
      const expiresAt = Number(claimsOf(client.tokens?.accessToken ?? '').exp);
      const end = expiresAt + clockSkewSeconds - Date.now() / 1_000;

      for (const [seconds, expected] of [
        [end - 10, 200], // two requests on a busy machine take less
        [end + 1, 'token_expired'],
        [86_400, 'token_expired'],
        [0, 200],
      ] as const) {
        world.clock.offsetSeconds = seconds;
        try {
          expect(await codes(client), `${seconds} s later`).to.deep.equal([expected, expected]);
        } finally {
          world.clock.offsetSeconds = 0;
        }
      }
    });
  });

  it('a cached token loses a permission of its role, and regains it', async () => {
    const client = await cacheToken(
      await world.loginAs(world.acme, { permissions: ['full.read', 'full.manage'] }),
    );
    const permissions = async () => (await inBoth(client)).map(({ body }) => body.permissions);
    const role = `update roles set permissions = ?::text[] where id =
      (select role_id from users join sessions on user_id = users.id where sessions.id = ?)`;
    const { sid } = claimsOf(client.tokens!.accessToken);

    await controlSql(world, role, ['{full.read}', sid]);
    await eventually(
      async () => (await permissions()).every(each => each.length === 1),
      announcedMs,
    );
    for (let i = 0; i < 4; i++) {
      expect(await permissions()).to.deep.equal([['full.read'], ['full.read']]);
    }

    await controlSql(world, role, ['{full.read,full.manage}', sid]);
    await eventually(
      async () => (await permissions()).every(each => each.length === 2),
      announcedMs,
    );
  });

  it('a cached token returns its own tenant and user while another tenant calls with its own token', async () => {
    const clients = [await world.login(world.acme), await world.login(world.globex)];

    const bodies = await Promise.all(
      Array.from(
        { length: 100 },
        async (_, i) => (await clients[i % 2]!.at(urls[(i >> 1) % 2]!).get(me)).body,
      ),
    );

    for (const [i, body] of bodies.entries()) {
      const { user_guid } = claimsOf(clients[i % 2]!.tokens!.accessToken);
      expect(body).to.include({
        tenantGuid: [world.acme, world.globex][i % 2]!.guid,
        userGuid: user_guid,
      });
    }
  });

  it('a token that resembles a cached one is refused', async () => {
    const client = await cacheToken(await world.login(world.acme));
    const { accessToken } = client.tokens!;
    const [header = '', payload = '', signed = ''] = accessToken.split('.');

    const [acme, globex] = [
      await activeKey(world, world.acme),
      await activeKey(world, world.globex),
    ];

    const { id, guid } = world.globex;
    const claimed = { ...claimsOf(accessToken), tenant_id: id, tenant_guid: guid };
    const encoded = Buffer.from(JSON.stringify(claimed)).toString('base64url');

    const similar = {
      'another signature': `${header}.${payload}.${signed.slice(0, -4)}AAAA`,
      'its signature over other claims': `${header}.${encoded}.${signed}`,
      'another tenant, signed by the first tenant': resignToken(
        accessToken,
        { tenant_id: id, tenant_guid: guid },
        acme,
      ),
      'another tenant, signed by the other tenant with the kid of the first': forgeToken(
        { alg: 'HS512', typ: 'at+jwt', kid: acme.kid },
        claimed,
        globex.secret,
      ),
      'another tenant, signed by the other tenant': resignToken(
        accessToken,
        { tenant_id: id, tenant_guid: guid },
        globex,
      ),
      'one more segment': `${accessToken}.${signed}`,
    };

    for (const [name, token] of Object.entries(similar)) {
      for (let i = 0; i < 3; i++) {
        expect(await codes(client.withToken(token)), name).to.deep.equal([
          'invalid_token',
          'invalid_token',
        ]);
      }
    }

    await cacheToken(client);
  });

  describe('VerifiedTokens', () => {
    const verified = (jti: number): VerifiedToken =>
      ({ caller: { tokenId: String(jti) }, endsAt: 0 }) as never;

    it('a verified token is found while its records are current, and evicted when they are not', () => {
      let current = true;
      const tokens = new VerifiedTokens({ freshnessCheck: () => () => current });
      tokens.add('a', verified(1));
      expect(tokens.find('a')?.caller.tokenId).to.equal('1');
      expect(tokens.find('b')).to.equal(undefined);
      current = false;
      expect(tokens.find('a')).to.equal(undefined);
      current = true;
      expect(tokens.find('a'), 'a token whose records were not current once').to.equal(undefined);
    });

    it('of 50,000 verified tokens, only the 10,000 most recently used are cached', () => {
      const tokens = new VerifiedTokens({ freshnessCheck: () => () => true });
      for (let i = 0; i < 50_000; i++) {
        tokens.add(`token ${i}`, verified(i));
        expect(tokens.find('token 0')?.caller.tokenId).to.equal('0');
      }
      expect(tokens.size).to.equal(10_000);
      expect(tokens.find('token 1')).to.equal(undefined);
      expect(tokens.find('token 49999')?.caller.tokenId).to.equal('49999');
    });
  });
});

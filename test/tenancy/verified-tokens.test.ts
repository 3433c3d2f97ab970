import { expect } from 'chai';
import { accessTokenLifetimeSeconds, clockSkewSeconds } from '../../src/control/token-lifetime.ts';
import { disableKey } from '../../src/operator/tenants/keys.ts';
import { type VerifiedToken, VerifiedTokens } from '../../src/tenancy/verified-tokens.ts';
import { activeKey, claimsOf, forgeToken, resignToken } from '../auth/forge.ts';
import { controlSql } from '../auth/sample-users.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type World } from '../support/world.ts';

const me = '/api/v1/auth/me';
const atOnceMs = 1_000;

describe('A token that was verified before', () => {
  let world: World;
  /** Two processes of the service. */
  let urls: string[];

  before(async () => {
    world = await createWorld();
    urls = [world.url, (await world.startAnotherServer()).url];
  });
  after(() => world.close());

  const everywhere = (client: Client): Promise<ApiResponse[]> => Promise.all(urls.map(url => client.at(url).get(me)));
  const codes = async (client: Client) => (await everywhere(client)).map(({ status, body }) => body.code ?? status);

  /** Called so often that it is kept, in both processes. */
  async function warm(client: Client): Promise<Client> {
    for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal([200, 200]);
    return client;
  }

  describe('is refused', () => {
    const changes: [string, string, string][] = [
      ['whose session is revoked', 'update sessions set revoked_at = now() where id = $sid', 'invalid_token'],
      [
        'whose user is disabled',
        'update users set disabled_at = now() where id = (select user_id from sessions where id = $sid)',
        'invalid_token',
      ],
      [
        'whose user is gone',
        'delete from users where id = (select user_id from sessions where id = $sid)',
        'invalid_token',
      ],
      [
        'whose tenant is suspended',
        `update tenants set status = 'suspended' where id = (select tenant_id from sessions where id = $sid)`,
        'tenant_inactive',
      ],
    ];
    for (const [name, change, code] of changes) {
      it(`everywhere within 1 s ${name}, and ever after`, async () => {
        const client = await warm(await world.loginAs(world.globex, { permissions: ['full.read'] }));
        await controlSql(world, change.replace('$sid', '?'), [claimsOf(client.tokens!.accessToken).sid]);
        await eventually(async () => (await codes(client)).every(each => each === code), atOnceMs);
        for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal([code, code]);
        await controlSql(world, `update tenants set status = 'active' where status = 'suspended'`);
        await eventually(async () => (await codes(await world.login(world.globex)))[0] === 200, atOnceMs);
      });
    }

    it('everywhere within 1 s whose key is disabled, and ever after', async () => {
      const client = await warm(await world.login(world.globex));
      const { kid } = await activeKey(world, world.globex);
      await disableKey(world.installation, 'globex', kid);
      await eventually(async () => (await codes(client)).every(each => each === 'invalid_token'), atOnceMs);
      for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal(['invalid_token', 'invalid_token']);
    });

    it('when it has expired meanwhile, by the clock of the request', async () => {
      const client = await warm(await world.login(world.acme));
      for (const [seconds, expected] of [
        [accessTokenLifetimeSeconds + clockSkewSeconds - 1, 200],
        [accessTokenLifetimeSeconds + clockSkewSeconds + 1, 'token_expired'],
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

  it('may no more, within 1 s, what its role has lost', async () => {
    const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read', 'full.manage'] }));
    const permissions = async () => (await everywhere(client)).map(({ body }) => body.permissions);
    const role = `update roles set permissions = ?::text[] where id =
      (select role_id from users join sessions on user_id = users.id where sessions.id = ?)`;
    const { sid } = claimsOf(client.tokens!.accessToken);
    await controlSql(world, role, ['{full.read}', sid]);
    await eventually(async () => (await permissions()).every(each => each.length === 1), atOnceMs);
    for (let i = 0; i < 4; i++) expect(await permissions()).to.deep.equal([['full.read'], ['full.read']]);
    await controlSql(world, role, ['{full.read,full.manage}', sid]);
    await eventually(async () => (await permissions()).every(each => each.length === 2), atOnceMs);
  });

  it('gives its own tenant and user, also while another tenant calls with tokens of its own', async () => {
    const clients = [await world.login(world.acme), await world.login(world.globex)];
    const answers = await Promise.all(
      Array.from({ length: 100 }, async (_, i) => (await clients[i % 2]!.at(urls[(i >> 1) % 2]!).get(me)).body),
    );
    for (const [i, body] of answers.entries()) {
      const { user_guid } = claimsOf(clients[i % 2]!.tokens!.accessToken);
      expect(body).to.include({ tenantGuid: [world.acme, world.globex][i % 2]!.guid, userGuid: user_guid });
    }
  });

  it('lends nothing to one that was not, however alike they are', async () => {
    const client = await warm(await world.login(world.acme));
    const { accessToken } = client.tokens!;
    const [header = '', payload = '', signed = ''] = accessToken.split('.');
    const [acme, globex] = [await activeKey(world, world.acme), await activeKey(world, world.globex)];
    const { id, guid } = world.globex;
    const claimed = { ...claimsOf(accessToken), tenant_id: id, tenant_guid: guid };
    const alike = {
      'another signature': `${header}.${payload}.${signed.slice(0, -4)}AAAA`,
      'its signature over another text': `${header}.${Buffer.from(JSON.stringify(claimed)).toString('base64url')}.${signed}`,
      'another tenant, signed by its own': resignToken(accessToken, { tenant_id: id, tenant_guid: guid }, acme),
      'another tenant, signed by that one under the kid of its own': forgeToken(
        { alg: 'HS512', typ: 'at+jwt', kid: acme.kid },
        claimed,
        globex.secret,
      ),
      'another tenant, signed by that one': resignToken(accessToken, { tenant_id: id, tenant_guid: guid }, globex),
      'one more segment': `${accessToken}.${signed}`,
    };
    for (const [name, token] of Object.entries(alike)) {
      for (let i = 0; i < 3; i++) {
        expect(await codes(client.withToken(token)), name).to.deep.equal(['invalid_token', 'invalid_token']);
      }
    }
    await warm(client);
  });

  describe('as a part', () => {
    const verified = (jti: number): VerifiedToken => ({ caller: { tokenId: String(jti) }, expiresAt: 0 }) as never;

    it('is found while its records are the current ones, and forgotten when they are not', () => {
      let current = true;
      const tokens = new VerifiedTokens({ freshnessCheck: () => () => current });
      tokens.add('a', verified(1));
      expect(tokens.find('a')?.caller.tokenId).to.equal('1');
      expect(tokens.find('b')).to.equal(undefined);
      current = false;
      expect(tokens.find('a')).to.equal(undefined);
      current = true;
      expect(tokens.find('a'), 'what was not current once').to.equal(undefined);
    });

    it('takes a bounded place: of 50,000 those used least are forgotten', () => {
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

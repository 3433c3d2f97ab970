import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { useWorld } from '../../support/world.ts';
import { activeKey, claimsOf, forgeToken, resignToken } from './forge.ts';

describe('reason of a 401', () => {
  const world = useWorld();

  const metrics = async (): Promise<string> =>
    (await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)).text();

  it('the log line and the metric of a 401 have its reason, and the response does not', async () => {
    const user = await world.login(world.acme);
    const ended = await world.login(world.acme);
    await ended.post('/api/v1/auth/logout');

    const token = user.tokens?.accessToken ?? '';
    const key = await activeKey(world, world.acme);
    const claims = claimsOf(token);
    const now = Number(claims.iat);
    const head = { alg: 'HS512', typ: 'at+jwt', kid: key.kid };

    const refused: [string, string | undefined][] = [
      ['no_token', undefined],
      ['malformed', 'a.b.c'],
      ['tenant', resignToken(token, { tenant_guid: randomUUID() }, key)],
      ['header', forgeToken({ ...head, typ: 'JWT' }, claims, key.secret)],
      ['key', forgeToken({ ...head, kid: randomUUID() }, claims, key.secret)],
      ['signature', forgeToken(head, claims, 'another secret')],
      ['issuer', resignToken(token, { iss: 'http://elsewhere.test' }, key)],
      ['audience', resignToken(token, { aud: 'elsewhere' }, key)],
      ['claims', resignToken(token, { jti: 7 }, key)],
      ['not_yet_valid', resignToken(token, { nbf: now + 3_600 }, key)],
      ['expired', resignToken(token, { iat: now - 1_000, exp: now - 100 }, key)],
      ['session', ended.tokens?.accessToken],
      [
        'user',
        resignToken(
          token,
          { user_guid: claims.sub, sub: claims.sub, sid: await sessionOfAnother() },
          key,
        ),
      ],
    ];

    for (const [reason, accessToken] of refused) {
      const { status, headers, body } =
        accessToken === undefined
          ? await world.anonymous.get('/api/v1/EntityStatus', { 'X-Tenant': world.acme.guid })
          : await user.withToken(accessToken).get('/api/v1/EntityStatus');

      expect(status, reason).to.equal(401);
      expect(Object.keys(body), reason).not.to.include('reason');

      const traceId = headers.get('x-request-id') ?? '–';
      const line = await eventually(() => world.logs.find(each => each.includes(traceId)));
      expect(JSON.parse(line).reason).to.equal(reason);
    }

    const text = await metrics();
    for (const [reason] of refused) {
      expect(text).to.include(`http_unauthorized_total{reason="${reason}"} 1\n`);
    }
  });

  /** The session of another user of the same tenant. */
  async function sessionOfAnother(): Promise<string> {
    const other = await world.loginAs(world.acme, {});
    return String(claimsOf(other.tokens?.accessToken ?? '').sid);
  }
});

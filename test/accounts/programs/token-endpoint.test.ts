import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, useLogin, useTwoProcesses, useWorld } from '../../support/world.ts';
import { claimsOf } from '../auth/forge.ts';

const path = '/api/v1/auth/token';
const grant = { grant_type: 'client_credentials' };

interface TokenResponse {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert what the service has sent
  body: any;
}

describe('the token endpoint of OAuth for programs', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });
  const admin = useLogin(world, 'acme');
  const other = useLogin(world, 'globex');
  const urls = useTwoProcesses(world);

  async function addProgram(as: Client = admin, changes: object = {}) {
    const body = { Name: 'Till', Role: 'Member', Scope: 'All', ...changes };
    const program = await as.post('/api/v1/Programs', body);
    expect(program.status, JSON.stringify(program.body)).to.equal(201);
    const key = await as.post(`/api/v1/Programs/${program.body.Id}/keys`, {});
    expect(key.status, JSON.stringify(key.body)).to.equal(201);

    return { id: program.body.Id, guid: program.body.Guid, keyId: key.body.Id, key: key.body.Key };
  }
  const request = async (
    fields: Record<string, string> | string | [string, string][],
    headers: Record<string, string> = {},
    url = world.url,
  ): Promise<TokenResponse> => {
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/x-www-form-urlencoded', ...headers },
      body: typeof fields === 'string' ? fields : new URLSearchParams(fields).toString(),
    });
    return { status: response.status, headers: response.headers, body: await response.json() };
  };
  const encoded = (text: string) => ({
    Authorization: `Basic ${Buffer.from(text).toString('base64')}`,
  });
  const basic = (id: string, secret: string) =>
    encoded(`${encodeURIComponent(id)}:${encodeURIComponent(secret)}`);
  const from = (address: string) => ({ 'X-Forwarded-For': address });
  const tokenOf = async ({ guid, key }: { guid: string; key: string }) =>
    (await request({ ...grant, client_id: guid, client_secret: key })).body.access_token as string;
  const statuses = (token: string, headers = {}) =>
    Promise.all(
      urls.map(
        async url =>
          (await world.anonymous.withToken(token).at(url).get('/api/v1/auth/me', headers)).status,
      ),
    );

  it('a key is exchanged for an access token of 15 minutes, by the header or the form, which both processes take', async () => {
    const program = await addProgram();

    for (const response of [
      await request(grant, basic(program.guid, program.key)),
      await request(
        grant,
        encoded(`${program.guid.toUpperCase().replaceAll('-', '%2D')}:${program.key}`),
      ),
      await request({
        ...grant,
        client_id: program.guid,
        client_secret: program.key,
        scope: 'all',
      }),
      await request(
        { ...grant, client_id: program.guid },
        { ...basic(program.guid, program.key), 'X-Tenant': world.globex.guid },
      ),
    ]) {
      expect(response.status, JSON.stringify(response.body)).to.equal(200);
      expect(response.headers.get('cache-control')).to.equal('no-store');
      expect(Object.keys(response.body).sort()).to.deep.equal([
        'access_token',
        'expires_in',
        'scope',
        'token_type',
      ]);
      expect(response.body.token_type).to.equal('Bearer');
      expect(response.body.expires_in).to.equal(900);
      expect(response.body.scope.split(' ')).to.include('users.read');

      const claims = claimsOf(response.body.access_token);
      expect(claims).to.include({
        client_id: program.guid,
        sub: program.guid,
        sid: program.keyId,
        tenant_guid: world.acme.guid,
      });
      expect(claims).not.to.have.property('email');
      expect(await statuses(response.body.access_token)).to.deep.equal([200, 200]);
    }
    const token = await tokenOf(program);
    const { body } = await world.anonymous.withToken(token).get('/api/v1/auth/me');
    expect(body).to.include({ userGuid: program.guid, tokenId: program.keyId, firstName: 'Till' });
    expect(
      await controlSql(world, 'select from sessions where user_id = ?', [program.id]),
    ).to.deep.equal([]);
  });

  it('an access token of a program ends with its key, its program and its rights, and is refused from another network', async () => {
    for (const [change, status] of [
      [(id: number) => admin.post(`/api/v1/Programs/${id}/disable`), 401],
      [(id: number, keyId: string) => admin.delete(`/api/v1/Programs/${id}/keys/${keyId}`), 401],
      [
        (id: number) =>
          admin.put(`/api/v1/Programs/${id}`, {
            Name: 'Till',
            Role: 'Member',
            Scope: 'All',
            Networks: ['10.1.0.0/16'],
          }),
        401,
      ],
    ] as const) {
      const program = await addProgram();
      const token = await tokenOf(program);
      expect(await statuses(token)).to.deep.equal([200, 200]);

      await change(program.id, program.keyId);

      await eventually(
        async () => (await statuses(token)).every(each => each === status),
        announcedMs,
      );
    }
    const limited = await addProgram(admin, { Networks: ['10.1.0.0/16'] });
    const fields = { ...grant, client_id: limited.guid, client_secret: limited.key };
    expect((await request(fields)).body).to.deep.equal({ error: 'invalid_client' });
    const { access_token: token } = (await request(fields, from('10.1.2.3'))).body;
    expect(await statuses(token, from('10.1.2.3'))).to.deep.equal([200, 200]);
    expect(await statuses(token, from('10.2.2.3'))).to.deep.equal([401, 401]);
  });

  it('an access token of a program is refused after 15 minutes, and when its key has ended', async () => {
    const program = await addProgram();
    const token = await tokenOf(program);
    await controlSql(
      world,
      `update program_keys set expires_at = now() + interval '5 minutes' where id = ?`,
      [program.keyId],
    );
    const late = await eventually(async () => {
      const { body } = await request({
        ...grant,
        client_id: program.guid,
        client_secret: program.key,
      });
      return body.expires_in < 301 && body;
    });
    expect(late.expires_in).to.be.within(200, 300);

    world.clock.offsetSeconds = 301;
    expect(await statuses(token)).to.deep.equal([401, 401]);
    world.clock.offsetSeconds = 0;
    await controlSql(
      world,
      `update program_keys set expires_at = now() + interval '5 days' where id = ?`,
      [program.keyId],
    );
    await eventually(async () => (await statuses(token)).every(each => each === 200), announcedMs);
    world.clock.offsetSeconds = 931;
    expect(await statuses(token)).to.deep.equal([401, 401]);
    world.clock.offsetSeconds = 0;
  });

  it('unknown, wrong, revoked and ended keys, disabled programs and isolated tenants get one body', async () => {
    const program = await addProgram();
    const elsewhere = await addProgram(other);
    const second = await addProgram();
    const refusals: TokenResponse[] = [
      await request({ ...grant, client_id: program.guid, client_secret: 'wrong' }),
      await request({ ...grant, client_id: program.guid, client_secret: second.key }),
      await request({ ...grant, client_id: program.guid, client_secret: elsewhere.key }),
      await request({ ...grant, client_id: 'nobody', client_secret: program.key }),
      await request(grant, basic(program.guid, 'wrong')),
      await request(grant, { Authorization: `Bearer ${program.key}` }),
      await request(grant, encoded(`${program.guid}:${program.key}&more`)),
      await request(grant, encoded(`${program.guid}&more:${program.key}`)),
      await request(grant, encoded(`${program.guid}:${program.key}%zz`)),
      await request(grant, encoded(`${program.guid}:${program.key} `)),
      await request(grant, encoded(program.key)),
      await request(grant),
    ];
    for (const change of [
      'update program_keys set revoked_at = now() where id = ?',
      `update program_keys set expires_at = now() - interval '1 second' where id = ?`,
      'update users set disabled_at = now() from program_keys k where users.id = program_id and k.id = ?',
      'update tenants set isolated = true from program_keys k where tenants.id = tenant_id and k.id = ?',
    ]) {
      const lost = await addProgram();
      await controlSql(world, change, [lost.keyId]);
      refusals.push(
        await eventually(async () => {
          const refused = await request({
            ...grant,
            client_id: lost.guid,
            client_secret: lost.key,
          });
          return refused.status === 401 && refused;
        }, announcedMs),
      );
    }
    await controlSql(world, 'update tenants set isolated = false');

    for (const { status, headers, body } of refusals) {
      expect(status).to.equal(401);
      expect(body).to.deep.equal({ error: 'invalid_client' });
      expect(headers.get('www-authenticate')).to.match(/^Basic realm=/);
      expect(headers.get('cache-control')).to.equal('no-store');
    }
    const reasons = world.logs
      .map(line => JSON.parse(line))
      .filter(({ route, status }) => route === path && status === 401)
      .map(({ reason }) => reason);
    expect(new Set(reasons)).to.include.all.keys(
      'client',
      'program_key',
      'expired',
      'user',
      'tenant',
    );
    expect(world.logs.join('')).not.to.include(program.key);
  });

  it('a request that is no request of the grant gets the error of RFC 6749, and a fault of HTTP its problem', async () => {
    const { guid, key } = await addProgram();
    const credentials = { client_id: guid, client_secret: key };

    for (const [fields, headers, error] of [
      [credentials, {}, 'invalid_request'],
      [{ ...credentials, grant_type: 'password' }, {}, 'unsupported_grant_type'],
      [{ ...grant, ...credentials }, basic(guid, key), 'invalid_request'],
      [{ ...grant, client_id: 'other' }, basic(guid, key), 'invalid_request'],
      [
        [
          ['grant_type', 'client_credentials'],
          ['client_id', guid],
          ['client_secret', key],
          ['client_secret', key],
        ],
        {},
        'invalid_request',
      ],
    ] as [Record<string, string>, Record<string, string>, string][]) {
      const { status, body } = await request(fields, headers);
      expect(status, error).to.equal(400);
      expect(body).to.deep.equal({ error });
    }

    const json = await request(JSON.stringify(credentials), { 'Content-Type': 'application/json' });
    expect([json.status, json.body.code]).to.deep.equal([415, 'unsupported_media_type']);
    const large = await request({ ...grant, ...credentials, scope: 'x'.repeat(9_000) });
    expect([large.status, large.body.code]).to.deep.equal([413, 'payload_too_large']);
    const read = await fetch(`${world.url}${path}`);
    expect([read.status, read.headers.get('allow')]).to.deep.equal([405, 'POST']);
  });

  it('60 tokens a minute are issued to one address for one program, and others are not limited by that', async () => {
    const [first, second] = [await addProgram(), await addProgram()];
    const exchange = ({ guid, key }: typeof first, address: string) =>
      request({ ...grant, client_id: guid, client_secret: key }, from(address));

    for (let i = 0; i < 60; i++) {
      expect((await exchange(first, '192.0.2.1')).status).to.equal(200);
    }
    const limited = await exchange(first, '192.0.2.1');

    expect(limited.status).to.equal(429);
    expect(limited.body.code).to.equal('rate_limited');
    expect(Number(limited.headers.get('retry-after'))).to.be.within(1, 60);
    expect(limited.headers.get('ratelimit-policy')).to.include('"ProgramToken";q=60;w=60');
    expect((await exchange(second, '192.0.2.1')).status).to.equal(200);
    expect((await exchange(first, '192.0.2.2')).status).to.equal(200);
  });
});

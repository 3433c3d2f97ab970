import { expect } from 'chai';
import { type ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, useWorld } from '../support/world.ts';

/** Different slugs of one client that no active tenant has. */
const max = 4;

describe('limit of slugs that name no tenant', () => {
  const world = useWorld();
  let url: string;

  before(async () => {
    ({ url } = await world.startAnotherServer({
      TRUSTED_PROXIES: '127.0.0.1',
      RATE_LIMIT_ACCOUNT: `${max}/15m`,
    }));
  });

  const refresh = (address: string, tenant: string): Promise<ApiResponse> =>
    new Client(url).post(
      '/api/v1/auth/refresh',
      { refreshToken: 'wrong' },
      { 'X-Tenant': tenant, 'X-Forwarded-For': address },
    );
  const logIn = (address: string, tenant: string): Promise<ApiResponse> =>
    new Client(url).post(
      '/api/v1/auth/login',
      { email: `${tenant}@nowhere.test`, password: 'wrong password' },
      { 'X-Tenant': tenant, 'X-Forwarded-For': address },
    );
  const codesOf = (responses: ApiResponse[]) => responses.map(({ body }) => body.code);

  it('a client that names other slugs one after the other learns no more of them than the limit, at whatever endpoint', async () => {
    const address = '198.51.100.1';
    const asked = [logIn, refresh, logIn, refresh];
    for (const [at, ask] of asked.entries()) {
      expect((await ask(address, `guess-${at}`)).body.code).to.equal('tenant_required');
    }

    const [unknown, known, knownLogin, byGuid, elsewhere] = await Promise.all([
      refresh(address, 'guess-more'),
      refresh(address, 'acme'),
      logIn(address, 'acme'),
      refresh(address, world.acme.guid),
      refresh('198.51.100.2', 'acme'),
    ]);

    for (const refused of [unknown, known, knownLogin]) {
      expect(refused.status).to.equal(429);
      expect(refused.body.code).to.equal('rate_limited');
      expect(refused.headers.get('ratelimit')).to.match(/, "TenantNames";r=0;t=\d+$/);
      expect(refused.headers.get('ratelimit-policy')).to.match(/, "TenantNames";q=4;w=900$/);
      expect(Number(refused.headers.get('retry-after'))).to.be.within(1, 900);
    }
    expect(codesOf([byGuid, elsewhere])).to.deep.equal([
      'invalid_refresh_token',
      'invalid_refresh_token',
    ]);
  });

  it('slugs that are named at once do not pass the limit together', async () => {
    const guesses = Array.from({ length: 5 * max }, (_, at) =>
      refresh('198.51.100.3', `at-once-${at}`),
    );

    const codes = codesOf(await Promise.all(guesses));

    expect(codes.filter(code => code === 'tenant_required')).to.have.length(max);
    expect(codes.filter(code => code === 'rate_limited')).to.have.length(4 * max);
  });

  it('neither tenants nor one slug again use up the limit, also that of a suspended tenant', async () => {
    const address = '198.51.100.4';
    const { slug } = await world.provision('unpaid');
    await controlSql(world, `update tenants set status = 'suspended' where slug = ?`, [slug]);

    await eventually(async () =>
      expect((await refresh(address, slug)).body.code).to.equal('tenant_required'),
    );

    for (let time = 0; time < 2 * max; time++) {
      const codes = codesOf([
        await refresh(address, slug),
        await refresh(address, 'acme'),
        await refresh(address, 'globex'),
      ]);

      expect(codes).to.deep.equal([
        'tenant_required',
        'invalid_refresh_token',
        'invalid_refresh_token',
      ]);
    }
  });

  it('the addresses of an IPv6 network share a limit', async () => {
    for (let at = 0; at < max; at++) {
      await refresh(`2001:db8:1:1::${at + 1}`, `six-${at}`);
    }

    expect((await refresh('2001:db8:1:1::ff', 'acme')).status).to.equal(429);
    expect((await refresh('2001:db8:2:1::1', 'acme')).body.code).to.equal('invalid_refresh_token');
  });
});

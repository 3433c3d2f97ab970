import { expect } from 'chai';
import { createWorld, type TestTenant, useWorld } from '../../support/world.ts';
import { activeKey, claimsOf, resignToken } from './forge.ts';

const statuses = '/api/v1/EntityStatus';

describe('issuer of access tokens', () => {
  const world = useWorld();

  async function tokenOf(tenant: TestTenant): Promise<string> {
    return (await world.login(tenant)).tokens?.accessToken ?? '';
  }

  async function statusOf(token: string, url = world.url): Promise<number> {
    return (await fetch(`${url}${statuses}`, { headers: { Authorization: `Bearer ${token}` } }))
      .status;
  }

  it('an access token of one server is accepted by another one with another PUBLIC_URL', async () => {
    const token = await tokenOf(world.acme);
    const { url } = await world.startAnotherServer({ PUBLIC_URL: 'http://elsewhere.test' });
    expect(await statusOf(token, url)).to.equal(200);
  });

  it('the issuer differs between installations', async () => {
    const other = await createWorld();
    await other.control.em.fork().execute('update installation set id = gen_random_uuid()');
    const { service, url } = await other.startAnotherServer();

    const login = { method: 'POST', body: JSON.stringify(other.acme.admin) };
    const headers = { 'X-Tenant': other.acme.guid, 'Content-Type': 'application/json' };
    const response = await fetch(`${url}/api/v1/auth/login`, { ...login, headers });
    const { accessToken } = (await response.json()) as { accessToken: string };

    expect(claimsOf(accessToken).iss).not.to.equal(claimsOf(await tokenOf(world.acme)).iss);

    await service.stop();
    await other.close();
  });

  it('a token that names PUBLIC_URL as its issuer is refused', async () => {
    const token = await tokenOf(world.acme);
    const forged = resignToken(
      token,
      { iss: 'http://backoffice.test' },
      await activeKey(world, world.acme),
    );
    expect(await statusOf(forged)).to.equal(401);
    expect(await statusOf(token)).to.equal(200);
  });
});

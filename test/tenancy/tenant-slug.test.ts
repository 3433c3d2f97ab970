import { expect } from 'chai';
import type { ApiResponse } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { sql, useWorld } from '../support/world.ts';

describe('X-Tenant with a slug', () => {
  const world = useWorld();
  const logIn = (tenant: string): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': tenant });
  const control = (text: string) => sql({ adminUrl: world.config.databaseUrl ?? '' }, text);
  /** Gives acme the slug `later`. */
  const rename = async (): Promise<void> => {
    await control(`update tenants set slug = 'later' where slug = 'acme'`);
    await eventually(async () => expect((await logIn('later')).status).to.equal(200));
  };

  afterEach(async () => {
    await control(`update tenants set slug = 'acme' where guid = '${world.acme.guid}'`);
    await control(`update tenants set status = 'active' where guid = '${world.globex.guid}'`);
    await eventually(async () => {
      const { slug, guid } = world.globex;
      const read = await world.anonymous.get('/api/v1/Countries', { 'X-Tenant': guid });
      expect((await logIn('acme')).status).to.equal(200);
      expect(read.status, slug).to.equal(401);
      return true;
    });
  });

  const bodyOf = ({ body: { traceId: _, ...body } }: ApiResponse) => body;

  it('a slug names its tenant, in any letter case, as the guid does', async () => {
    for (const name of [world.acme.guid, 'acme', 'ACME']) {
      const { status, body } = await logIn(name);
      expect(status, name).to.equal(200);
      const me = await world.anonymous.withToken(body.accessToken).get('/api/v1/auth/me');
      expect(me.body.tenantGuid).to.equal(world.acme.guid);
    }

    const refused = await logIn('globex');
    expect(refused.status).to.equal(401);
    expect(refused.body.code).to.equal('invalid_credentials');
  });

  it('an unknown or malformed slug gets the response of an unknown guid', async () => {
    const unknown = await logIn('00000000-0000-4000-8000-000000000000');
    expect(unknown.status).to.equal(403);
    expect(unknown.body.code).to.equal('tenant_required');

    for (const name of [
      'acm',
      'acme-',
      'a',
      '-acme',
      'ac%me',
      "acme'--",
      'acme,globex',
      'a'.repeat(33),
      'a'.repeat(4_000),
    ]) {
      const response = await logIn(name);
      expect(response.status, name).to.equal(403);
      expect(bodyOf(response), name).to.deep.equal(bodyOf(unknown));
    }
  });

  it('a slug counts only where an account is used, so that no other request tells which names are tenants', async () => {
    const read = (tenant: string) =>
      world.anonymous.get('/api/v1/Countries', { 'X-Tenant': tenant });
    const unknown = await read('nobody');

    expect(unknown.status).to.equal(403);
    expect(unknown.body.code).to.equal('tenant_required');
    expect(bodyOf(await read('acme'))).to.deep.equal(bodyOf(unknown));
    expect((await read(world.acme.guid)).status, 'the guid, without a token').to.equal(401);
  });

  it('a slug is found as soon as its tenant has it, and the former one never names another tenant', async () => {
    expect((await logIn('later')).status).to.equal(403);
    await rename();
    expect((await logIn('acme')).status).to.equal(403);
    const given = control(`update tenants set slug = 'acme' where slug = 'globex'`);
    expect(await given.then(() => 'accepted', String)).to.match(/acme is, or was, that of another/);
    expect((await logIn('later')).status).to.equal(200);
  });

  it('an alias leads every process to its tenant until it ends, and then to nobody', async () => {
    await rename();
    const other = await world.startAnotherServer();
    const statusOf = async (url: string): Promise<number> => {
      const client = world.anonymous.at(url);
      const login = { 'X-Tenant': 'Acme' };
      return (await client.post('/api/v1/auth/login', world.acme.admin, login)).status;
    };

    await control(
      `update tenant_slugs set alias_until = now() + interval '1 day' where slug = 'acme'`,
    );
    for (const url of [world.url, other.url]) expect(await statusOf(url)).to.equal(200);
    expect((await logIn('acme-')).status).to.equal(403);

    await control(`update tenant_slugs set alias_until = now() where slug = 'acme'`);
    for (const url of [world.url, other.url]) expect(await statusOf(url)).to.equal(403);
  });

  it('the slug of a suspended tenant gets the response of an unknown one', async () => {
    await control(`update tenants set status = 'suspended' where guid = '${world.globex.guid}'`);
    await eventually(async () =>
      expect((await logIn('globex')).body.code).to.equal('tenant_required'),
    );
  });

  it('the control database accepts no slug that looks like a guid', async () => {
    await rename();
    const change = control(
      `update tenants set slug = 'a0000000-0000-4000-8000-000000000000' where slug = 'later'`,
    );
    expect(
      await change.then(
        () => 'accepted',
        error => String(error),
      ),
    ).to.match(/tenants_slug_check/);
  });

  it('a request whose X-Tenant is a slug that the tenant of its token has or had is not logged as naming another tenant', async () => {
    await rename();
    const { body } = await logIn('later');
    const client = world.anonymous.withToken(body.accessToken);

    const logged = async (tenant: string) => {
      const { headers } = await client.get('/api/v1/auth/me', { 'X-Tenant': tenant });
      const id = headers.get('x-request-id') ?? '';
      return eventually(() => {
        const line = world.logs.find(each => each.includes(id) && each.includes('"status"'));
        expect(line).to.be.a('string');
        return JSON.parse(line ?? '{}');
      });
    };

    expect(await logged('later')).to.not.have.property('otherTenantNamed');
    expect(await logged('acme')).to.not.have.property('otherTenantNamed');
    expect(await logged('globex')).to.have.property('otherTenantNamed');
  });
});

import { expect } from 'chai';
import { addClient, listClients, revokeClient } from '../../src/operator/tenants/clients.ts';
import { setDisabled } from '../../src/operator/tenants/users.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { comparable } from './responses.ts';
import { addSampleUser, controlSql, type SampleUser } from './sample-users.ts';
import { expectNotLogged, expectNotStored } from './secrets.ts';

const path = '/api/Data/GenerateToken';
const data = '/api/v1/EntityStatus';
const ninetyDays = 90 * 24 * 3_600;

interface OldProgram {
  id: string;
  secret: string;
  user: SampleUser;
  tenant: TestTenant;
}

describe('An old client', () => {
  let world: World;
  /** The other process of the service. */
  let elsewhere: string;
  let program: OldProgram;
  const secrets = new Set<string>();

  before(async () => {
    world = await createWorld();
    elsewhere = (await world.startAnotherServer()).url;
    for (const tenant of [world.acme, world.globex]) await enable(tenant, true);
    program = await oldProgram(world.acme);
    await eventually(async () => (await generate(program)).status === 200, 1_000);
    await eventually(async () => (await generate(await oldProgram(world.globex))).status === 200, 1_000);
  });
  after(() => world.close());

  const enable = (tenant: TestTenant, on: boolean) =>
    controlSql(world, `update tenants set features = ?::text[] where id = ?`, [
      on ? '{legacyTokens}' : '{}',
      tenant.id,
    ]);
  const oldProgram = async (
    tenant: TestTenant,
    options: { role?: string; scope?: 'Self' | 'All'; entityId?: number } = {},
  ): Promise<OldProgram> => {
    const user = await addSampleUser(world, tenant, options);
    const added = await addClient(world.installation, tenant.slug, user.email, 'Price list of 2009');
    secrets.add(added.secret).add(user.password);
    return { ...added, user, tenant };
  };
  const basic = (id: string, secret: string): string => `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  const generate = async (
    { id, secret }: { id: string; secret: string },
    headers: Record<string, string> = {},
  ): Promise<ApiResponse> => {
    const answer = await world.anonymous.get(path, { Authorization: basic(id, secret), ...headers });
    if (answer.status === 200) secrets.add(answer.body.token);
    return answer;
  };
  const tokenOf = async (of: OldProgram): Promise<string> => {
    const { status, body } = await generate(of);
    expect(status).to.equal(200);
    return body.token;
  };
  const by = (token: string): Client => world.anonymous.withToken(token);
  const statuses = async (token: string, at = data): Promise<number[]> =>
    Promise.all(
      [world.url, elsewhere].flatMap(url => [
        by(token).at(url).get(at),
        world.anonymous.at(url).get(at, { 'X-Api-Token': token }),
      ]),
    ).then(answers => answers.map(({ status }) => status));
  /** Every process says so, within a second, whichever way the token is sent. */
  const becomes = (token: string, status: number, at = data): Promise<boolean> =>
    eventually(async () => (await statuses(token, at)).every(each => each === status), 1_000);
  const expectAnnounced = ({ headers }: ApiResponse, what: string): void => {
    expect(headers.get('deprecation'), what).to.match(/^@\d{10}$/);
    const sunset = headers.get('sunset') ?? '';
    expect(new Date(sunset).toUTCString(), what).to.equal(sunset);
    expect(Date.parse(sunset), what).to.be.above(Date.parse('2027-01-01'));
  };

  describe('gets a token', () => {
    it('for its id and secret: opaque, with a checksum, good for 90 days', async () => {
      const answer = await generate(program);
      const { status, body, headers } = answer;
      expect(status).to.equal(200);
      expect(body).to.have.all.keys('token', 'expiresAt');
      expect(body.token).to.match(/^sbl_[\w-]{43}[0-9a-f]{8}$/);
      expect(Date.parse(body.expiresAt) - Date.now()).to.be.within((ninetyDays - 60) * 1_000, ninetyDays * 1_000);
      expect(headers.get('cache-control')).to.equal('no-store');
      expectAnnounced(answer, 'GenerateToken');
      const [one, two] = [await tokenOf(program), await tokenOf(program)];
      expect(new Set([one, two, body.token]).size).to.equal(3);
      for (const token of [one, two, body.token]) expect((await by(token).get(data)).status).to.equal(200);
    });

    it('of its own tenant, whatever X-Tenant says', async () => {
      for (const guid of [world.globex.guid, 'nonsense']) {
        const { body } = await generate(program, { 'X-Tenant': guid });
        expect((await by(body.token).get('/api/v1/auth/me')).body.tenantGuid).to.equal(world.acme.guid);
      }
    });

    it('not without the right id and secret: always the same 401, which asks for Basic', async () => {
      const revoked = await oldProgram(world.acme);
      await revokeClient(world.installation, 'acme', revoked.id);
      const disabled = await oldProgram(world.acme);
      await setDisabled(world.installation, 'acme', disabled.user.email, true);
      await eventually(async () => (await generate(disabled)).status === 401, 1_000);
      const other = await oldProgram(world.acme);
      const { id, secret } = program;
      const wrong: Record<string, string> = {
        'no credentials': '',
        'a wrong secret': basic(id, `${secret.slice(0, -1)}${secret.endsWith('A') ? 'B' : 'A'}`),
        'a secret cut off': basic(id, secret.slice(0, -1)),
        'no secret': basic(id, ''),
        'the secret of another': basic(id, other.secret),
        'an unknown id': basic('client-0000000000000000', secret),
        'no id': basic('', secret),
        'an id in capitals': basic(id.toUpperCase(), secret),
        'an id with a wildcard': basic('%', secret),
        'an id of another kind': basic(`' or '1'='1`, secret),
        'a NUL': basic(`${id}\0`, secret),
        'no colon': `Basic ${Buffer.from(id + secret).toString('base64')}`,
        'no base64': `Basic ${id}:${secret}`,
        'nothing after the scheme': 'Basic ',
        'another scheme': basic(id, secret).replace('Basic', 'Digest'),
        'as a bearer token': `Bearer ${secret}`,
        'a user’s name and password': basic(program.user.email, program.user.password),
        'a revoked client': basic(revoked.id, revoked.secret),
        'a client of a disabled user': basic(disabled.id, disabled.secret),
        'a very long one': basic('x'.repeat(3_000), secret),
      };
      const expected = comparable(await world.anonymous.get(path));
      expect(expected.status).to.equal(401);
      for (const [reason, authorization] of Object.entries(wrong)) {
        const answer = await world.anonymous.get(path, { Authorization: authorization });
        expect(comparable(answer), reason).to.deep.equal(expected);
        expect(answer.headers.get('www-authenticate')).to.match(/^Basic realm="[^"]+"/);
        expectAnnounced(answer, reason);
      }
    });

    it('not by credentials in the address', async () => {
      const { id, secret } = program;
      for (const query of [`id=${id}&secret=${secret}`, `client_id=${id}&client_secret=${secret}`, `token=${secret}`])
        expect((await world.anonymous.get(`${path}?${query}`)).status).to.equal(401);
    });

    it('not with the token of a user, or with a token it was given', async () => {
      const user = await world.login(world.acme);
      for (const as of [user, by(await tokenOf(program))]) expect((await as.get(path)).status).to.equal(401);
      const given = await world.anonymous.get(path, { 'X-Api-Token': await tokenOf(program) });
      expect(given.status).to.equal(401);
    });
  });

  describe('calls', () => {
    it('with its token in either header, as its user, and a token in Authorization goes first', async () => {
      const token = await tokenOf(program);
      for (const answer of [
        await by(token).get('/api/v1/auth/me'),
        await world.anonymous.get('/api/v1/auth/me', { 'X-Api-Token': token }),
        await world.anonymous.get('/api/v1/auth/me', { Authorization: `bearer  ${token}` }),
      ]) {
        expect(answer.status).to.equal(200);
        expect(answer.body).to.include({ userGuid: program.user.guid, tenantGuid: world.acme.guid, role: 'Member' });
        expect(token).to.not.include(answer.body.tokenId);
        expectAnnounced(answer, 'me');
      }
      const both = { Authorization: 'Bearer a.b.c', 'X-Api-Token': token };
      expect((await world.anonymous.get(data, both)).status).to.equal(401);
    });

    it('and changes what its user may, in the name of its user', async () => {
      const admin = await oldProgram(world.acme, { role: 'Administrator' });
      const client = by(await tokenOf(admin));
      const created = await client.post(data, { Title: 'By an old client' });
      expect(created.status).to.equal(201);
      const [entry] = await sql<{ user_id: string }>(
        world.acme,
        `select user_id from audit_log where resource = 'EntityStatus' and record_key = $1`,
        [String(created.body.Id)],
      );
      expect(Number(entry?.user_id)).to.equal(admin.user.id);
      const refused = await by(await tokenOf(program)).post(data, { Title: 'Not allowed' });
      expect([refused.status, refused.body.code]).to.deep.equal([403, 'forbidden']);
    });

    it('at its own tenant only, whatever X-Tenant says', async () => {
      const foreign = await oldProgram(world.globex, { role: 'Administrator' });
      const theirs = await tokenOf(foreign);
      const title = 'Seen by Globex alone';
      expect((await by(theirs).post(data, { Title: title }, { 'X-Tenant': world.acme.guid })).status).to.equal(201);
      const titles = async (token: string, guid: string): Promise<string[]> => {
        const { body } = await by(token).get(data, { 'X-Tenant': guid });
        return (body as { Title: string }[]).map(({ Title }) => Title);
      };
      const ours = await tokenOf(program);
      for (const guid of [world.acme.guid, world.globex.guid]) {
        expect(await titles(theirs, guid)).to.include(title);
        expect(await titles(ours, guid)).to.not.include(title);
      }
      const me = await world.anonymous.get('/api/v1/auth/me', { 'X-Api-Token': ours, 'X-Tenant': world.globex.guid });
      expect(me.body.tenantGuid).to.equal(world.acme.guid);
    });

    it('with the role, permissions, scope and entity that its user has now', async () => {
      const [entity] = await sql<{ id: string }>(
        world.acme,
        `insert into entities (name, entity_type) values ('Old & Co', 'supplier') returning id`,
      );
      const old = await oldProgram(world.acme, { scope: 'All' });
      const token = await tokenOf(old);
      const me = async () => (await by(token).get('/api/v1/auth/me')).body;
      expect(await me()).to.include({ scope: 'All', userEntityId: null, role: 'Member' });
      await becomes(token, 200);
      await controlSql(world, `update users set scope = 'Self', entity_id = ? where id = ?`, [entity?.id, old.user.id]);
      await eventually(async () => (await me()).scope === 'Self', 1_000);
      expect(await me()).to.include({ userEntityId: Number(entity?.id) });
      await controlSql(
        world,
        `with role as (insert into roles (tenant_id, name, permissions) values (?, 'Less', '{settings.write}') returning id)
          update users set role_id = (select id from role) where id = ?`,
        [world.acme.id, old.user.id],
      );
      await becomes(token, 403);
      expect((await me()).permissions).to.deep.equal(['settings.write']);
      await controlSql(world, `update roles set permissions = '{full.read}' where name = 'Less'`);
      await becomes(token, 200);
    });

    it('and is told of the end of such tokens by every answer, whatever it is', async () => {
      const token = await tokenOf(program);
      const answers: [ApiResponse, number][] = [
        [await by(token).get(data), 200],
        [await by(token).get(`${data}/999999`), 404],
        [await by(token).get('/api/v1/nothing'), 404],
        [await by(token).send('PATCH', data), 405],
        [await by(token).post(data, { Title: 'x' }), 403],
        [await by(token).get('/api/v1/Activity?limit=0'), 400],
        [await by(token).get('/api/v1/auth/me'), 200],
      ];
      for (const [answer, status] of answers) {
        expect(answer.status).to.equal(status);
        expectAnnounced(answer, `${status}`);
      }
      const user = await world.login(world.acme);
      expect((await user.get(data)).headers.has('deprecation'), 'others are not').to.equal(false);
    });

    it('and its calls are counted, in the end and at the end of a process, but not those that are refused', async () => {
      const old = await oldProgram(world.acme);
      const token = await tokenOf(old);
      const uses = async () => (await listClients(world.installation, 'acme')).find(({ id }) => id === old.id);
      expect(await uses()).to.include({ tokens: 1, uses: 0, lastUsedAt: null, state: 'active' });
      const { service, url } = await world.startAnotherServer();
      for (let i = 0; i < 3; i++) expect((await by(token).at(url).get(data)).status).to.equal(200);
      await service.stop();
      expect(await uses()).to.include({ uses: 3 });
      await Promise.all(Array.from({ length: 5 }, () => by(token).get(data)));
      await eventually(async () => (await uses())?.uses === 8);
      expect(Date.now() - Date.parse((await uses())?.lastUsedAt ?? '')).to.be.below(60_000);
      await revokeClient(world.installation, 'acme', old.id);
      await becomes(token, 401);
      const last = await world.startAnotherServer();
      for (let i = 0; i < 3; i++) expect((await by(token).at(last.url).get(data)).status).to.equal(401);
      await last.service.stop();
      expect(await uses()).to.include({ uses: 8, state: 'revoked' });
    });
  });

  describe('is refused, with its token,', () => {
    const expectRefused = async (token: string, status: number, code: string): Promise<void> => {
      await becomes(token, status);
      for (const answer of [await by(token).get(data), await world.anonymous.get(data, { 'X-Api-Token': token })]) {
        expect([answer.status, answer.body.code]).to.deep.equal([status, code]);
        expectAnnounced(answer, code);
      }
    };

    it('that has one character changed, was cut off, made up or given in another way', async () => {
      const token = await tokenOf(program);
      const changed = [...token.slice(4)].map(
        (letter, at) => token.slice(0, at + 4) + (letter === '0' ? '1' : '0') + token.slice(at + 5),
      );
      const { createLegacyToken } = await import('../../src/control/legacy-token.ts');
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
      const answers = await Promise.all(wrong.map(each => by(each).get(data)));
      for (const [at, { status, body, headers }] of answers.entries()) {
        expect([status, body.code], wrong[at]).to.deep.equal([401, 'invalid_token']);
        expect(headers.get('www-authenticate')).to.equal('Bearer error="invalid_token"');
      }
      const twice = await world.anonymous.get(data, { 'X-Api-Token': `${token}, ${token}` });
      expect(twice.status).to.equal(401);
      // No other kind of token is read from that header.
      const { tokens } = await world.login(world.acme);
      const jwt = { 'X-Api-Token': tokens?.accessToken ?? '', 'X-Tenant': world.acme.guid };
      expect((await world.anonymous.get(data, jwt)).body.code).to.equal('unauthorized');
      expect((await by(token).get(data)).status).to.equal(200);
    });

    it('90 days after it was given, by the clock', async () => {
      const token = await tokenOf(program);
      try {
        world.clock.offsetSeconds = ninetyDays - 60;
        expect((await by(token).get(data)).status).to.equal(200);
        world.clock.offsetSeconds = ninetyDays + 1;
        await expectRefused(token, 401, 'invalid_token');
      } finally {
        world.clock.offsetSeconds = 0;
      }
      expect((await by(token).get(data)).status).to.equal(200);
    });

    it('when its expiry is moved by SQL, within 1 s', async () => {
      const old = await oldProgram(world.acme);
      const token = await tokenOf(old);
      await becomes(token, 200);
      await controlSql(world, 'update legacy_tokens set expires_at = now() where client_id = ?', [old.id]);
      await expectRefused(token, 401, 'invalid_token');
    });

    it('and all the tokens it was given, within 1 s of its revocation, in every process', async () => {
      const [old, other] = [await oldProgram(world.acme), await oldProgram(world.acme)];
      const tokens = [await tokenOf(old), await tokenOf(old)];
      const unconcerned = await tokenOf(other);
      for (const token of [...tokens, unconcerned]) await becomes(token, 200);
      await revokeClient(world.installation, 'acme', old.id);
      const startedAt = performance.now();
      for (const token of tokens) await expectRefused(token, 401, 'invalid_token');
      console.log(`      refused in both processes after ${(performance.now() - startedAt).toFixed(0)} ms`);
      expect((await generate(old)).status).to.equal(401);
      expect(await statuses(unconcerned)).to.deep.equal([200, 200, 200, 200]);
    });

    it('also the one it is given while it is being revoked', async () => {
      const old = await oldProgram(world.acme);
      const { running } = await world.control.em.fork().transactional(async em => {
        await em.execute('update api_clients set revoked_at = now() where id = ?', [old.id]);
        // Not revoked yet to anybody else: the client is found, and its token is made.
        const call = generate(old);
        await Promise.race([
          call,
          eventually(async () => {
            const [row] = await controlSql<{ count: string }>(
              world,
              `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
            );
            return row?.count !== '0';
          }),
        ]);
        return { running: call };
      });
      const { status, body } = await running;
      if (status === 200) await expectRefused(body.token, 401, 'invalid_token');
      else expect(status).to.equal(401);
    });

    it('when its user is disabled, and works again when they are not', async () => {
      const old = await oldProgram(world.acme);
      const token = await tokenOf(old);
      await becomes(token, 200);
      await setDisabled(world.installation, 'acme', old.user.email, true);
      await expectRefused(token, 401, 'invalid_token');
      await setDisabled(world.installation, 'acme', old.user.email, false);
      await becomes(token, 200);
    });

    it('while its tenant is not active', async () => {
      const old = await oldProgram(world.globex);
      const token = await tokenOf(old);
      await becomes(token, 200);
      for (const state of ['suspended', 'deleted', 'provisioning']) {
        await controlSql(world, 'update tenants set status = ? where id = ?', [state, world.globex.id]);
        await expectRefused(token, 403, 'tenant_inactive');
        const answer = await generate(old);
        expect([answer.status, answer.body.code], state).to.deep.equal([403, 'tenant_inactive']);
        expectAnnounced(answer, state);
        expect((await generate({ ...old, secret: 'wrong' })).status, 'and only who has the secret is told').to.equal(
          401,
        );
      }
      await controlSql(world, `update tenants set status = 'active' where id = ?`, [world.globex.id]);
      await becomes(token, 200);
    });

    it('with 410 when its tenant has switched such tokens off', async () => {
      const old = await oldProgram(world.globex);
      const token = await tokenOf(old);
      await enable(world.globex, false);
      await expectRefused(token, 410, 'gone');
      const answer = await generate(old);
      expect([answer.status, answer.body.code]).to.deep.equal([410, 'gone']);
      expectAnnounced(answer, 'GenerateToken');
      expect((await generate({ ...old, secret: 'wrong' })).status).to.equal(401);
      expect(await statuses(await tokenOf(program)), 'another tenant’s').to.deep.equal([200, 200, 200, 200]);
      await enable(world.globex, true);
      await becomes(token, 200);
    });
  });

  it('keeps its secret and its tokens to itself: the control database holds hashes', async () => {
    await expectNotStored(world, [program.secret, await tokenOf(program)]);
  });

  describe('is told in the log', () => {
    it('without its secret and its tokens', () => {
      expect(secrets.size).to.be.above(50);
      expectNotLogged(world, secrets);
    });
  });
});

import { expect } from 'chai';
import { documentedRoutes } from '../../../../src/service/routes.ts';
import type { ApiResponse } from '../../../support/client.ts';
import { announcedMs, eventually } from '../../../support/eventually.ts';
import { controlSql, useLogin, useWorld } from '../../../support/world.ts';
import { expectProblem, insertWithoutTriggers, usersPath } from '../../people/people-world.ts';
import { claimsOf } from '../forge.ts';
import { factorsPath, factorWorld, type Person, verifyPath } from './factor-world.ts';

const accepted = (responses: readonly ApiResponse[]): number =>
  responses.filter(({ status }) => status === 200).length;

describe('a second factor', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1', RATE_LIMIT_LOGIN: '10000/15m' });
  const admin = useLogin(world, 'acme');
  const people = factorWorld(world);
  let urls: string[];

  before(async () => {
    urls = [world.url, (await world.startAnotherServer()).url];
  });

  const challengeOf = async (person: Person, url?: string): Promise<string> => {
    const refused = await people.login(person, url);
    expectProblem(refused, 401, 'second_factor_required');
    expect(refused.body.methods).to.deep.equal(['totp', 'recoveryCode']);
    return refused.body.challenge;
  };
  const verified = async (person: Person, body: object, url?: string): Promise<ApiResponse> =>
    people.verify(person, { challenge: await challengeOf(person, url), ...body }, url);

  it('a person adds an app, confirms it by a code, and then logs in with password and code in each process', async () => {
    const { person, client } = await people.add(world.acme);
    expect((await client.get(factorsPath)).body).to.deep.equal([]);

    const added = await client.post(`${factorsPath}/totp`, { name: 'My phone' });
    expect(added.status).to.equal(201);
    const { id, secret, url } = added.body;
    expect(url).to.match(/^otpauth:\/\/totp\//);
    expect(new URL(url).searchParams.get('secret')).to.equal(secret);
    expect((await people.login(person)).status, 'before it is confirmed').to.equal(200);

    const wrong = await client.post(`${factorsPath}/${id}/confirm`, { code: '000000' });
    expectProblem(wrong, 401, 'invalid_code');
    const confirm = { code: people.code(secret) };
    const confirmed = await client.post(`${factorsPath}/${id}/confirm`, confirm);
    expect(confirmed.status).to.equal(200);
    expect(confirmed.body.recoveryCodes).to.have.length(10);
    expect((await client.get(factorsPath)).body).to.have.length(1);

    for (const url of urls) {
      people.passCode();
      const response = await verified(person, { code: people.code(secret) }, url);
      expect(response.status).to.equal(200);
      const { accessToken } = response.body;
      expect(claimsOf(accessToken).amr).to.deep.equal(['pwd', 'otp', 'mfa']);
      const me = await world.anonymous.withToken(accessToken).get('/api/v1/auth/me');
      expect(me.status).to.equal(200);
    }
  });

  it('a refresh keeps what was proved, and a session without a factor has no such claim', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret } = await people.addTotp(client);
    const { body } = await verified(person, { code: people.code(secret) });
    const refresh = (refreshToken: string) =>
      world.anonymous.post('/api/v1/auth/refresh', { refreshToken }, people.header(world.acme));

    const refreshed = await refresh(body.refreshToken);
    const plain = await refresh(admin.tokens?.refreshToken ?? '');

    expect(claimsOf(refreshed.body.accessToken).amr).to.deep.equal(['pwd', 'otp', 'mfa']);
    expect(claimsOf(plain.body.accessToken)).not.to.have.property('amr');
  });

  it('a code is good once, at two processes at once too, and none before it afterwards', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret } = await people.addTotp(client);
    const challenges = await Promise.all([0, 1, 2, 3].map(() => challengeOf(person)));
    const [before, code] = [people.code(secret), people.code(secret, 1)];

    const responses = await Promise.all(
      challenges.map((challenge, i) => people.verify(person, { challenge, code }, urls[i % 2])),
    );

    expect(accepted(responses)).to.equal(1);
    for (const response of responses.filter(({ status }) => status !== 200)) {
      expectProblem(response, 401, 'invalid_code');
    }
    expectProblem(await verified(person, { code }), 401, 'invalid_code');
    expectProblem(await verified(person, { code: before }), 401, 'invalid_code');
  });

  it('a recovery code is good once, however it is typed, and new ones end the former', async () => {
    const { person, client } = await people.add(world.acme);
    const { recoveryCodes } = await people.addTotp(client);
    const [first = '', second = '', third = ''] = recoveryCodes;

    const challenges = [await challengeOf(person), await challengeOf(person)];
    const responses = await Promise.all(
      challenges.map((challenge, i) =>
        people.verify(person, { challenge, recoveryCode: first }, urls[i]),
      ),
    );
    expect(accepted(responses)).to.equal(1);
    const typed = ` ${second.toUpperCase().replaceAll('-', ' ')} `;
    expect((await verified(person, { recoveryCode: typed })).status).to.equal(200);

    const renewed = await client.post(`${factorsPath}/recovery-codes`);
    expect(renewed.body.recoveryCodes).to.have.length(10);
    expectProblem(await verified(person, { recoveryCode: third }), 401, 'invalid_code');
    const [fresh] = renewed.body.recoveryCodes;
    expect((await verified(person, { recoveryCode: fresh })).status).to.equal(200);
  });

  it('a challenge takes five codes, is good once and for its tenant, and ends with the password', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret, recoveryCodes } = await people.addTotp(client);
    const recoveryCode = recoveryCodes[0] ?? '';
    const code = () => people.code(secret);

    const guessed = await challengeOf(person);
    for (let i = 0; i < 5; i++) {
      const response = await people.verify(person, { challenge: guessed, recoveryCode: 'wrong' });
      expectProblem(response, 401, 'invalid_code');
    }
    const sixth = await people.verify(person, { challenge: guessed, code: code() });
    expectProblem(sixth, 401, 'invalid_challenge');

    const used = await challengeOf(person);
    expect((await people.verify(person, { challenge: used, code: code() })).status).to.equal(200);
    const again = await people.verify(person, { challenge: used, recoveryCode });
    expectProblem(again, 401, 'invalid_challenge');

    people.passCode();
    const body = { challenge: await challengeOf(person), code: code() };
    const elsewhere = await people.verify({ ...person, tenant: world.globex }, body);
    expectProblem(elsewhere, 401, 'invalid_challenge');

    const hash = await world.passwords.hash('another long password');
    const change = 'update users set password_hash = ? where email = ?';
    await controlSql(world, change, [hash, person.email]);
    expectProblem(await people.verify(person, body), 401, 'invalid_challenge');
  });

  it('a challenge that has expired, and any other text, is refused', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret } = await people.addTotp(client);
    const challenge = await challengeOf(person);
    await controlSql(
      world,
      `update login_challenges set expires_at = now() - interval '1 second'
        where user_id = (select id from users where email = ?)`,
      [person.email],
    );

    for (const text of [challenge, `sbc_${'0'.repeat(40)}`, 'sbc_', 'x', secret]) {
      const refused = await people.verify(person, { challenge: text, code: people.code(secret) });
      expectProblem(refused, 401, 'invalid_challenge');
    }
    for (const body of [{}, { code: '123456', recoveryCode: 'x' }]) {
      const refused = await people.verify(person, { challenge, ...body });
      expectProblem(refused, 400, 'validation_failed');
    }
  });

  it('a challenge and a setup token are no bearer tokens, of any route', async () => {
    const { person, client } = await people.add(world.acme);
    await people.addTotp(client);
    const challenge = await challengeOf(person);
    const strict = await people.add(world.acme);
    const require = 'update roles set requires_second_factor = true where id = ?';
    await controlSql(world, require, [strict.roleId]);
    const { setupToken } = (await people.login(strict.person)).body;
    expect(setupToken).to.be.a('string');
    const routes = documentedRoutes().filter(
      ({ access }) => !['anonymous', 'optional', 'client'].includes(access),
    );
    expect(routes.length).to.be.above(100);

    for (const token of [challenge, setupToken]) {
      const holder = world.anonymous.withToken(token);
      for (const { method, path } of routes) {
        const body = method === 'GET' || method === 'DELETE' ? undefined : {};
        const response = await holder.send(method, path.replaceAll(/:\w+/g, '1'), body);
        expect(response.status, `${method} ${path}`).to.equal(401);
      }
    }
  });

  it('at most ten wrong codes are compared in 24 hours, from wherever they come, and recovery codes go on', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret, recoveryCodes } = await people.addTotp(client);
    const other = await people.add(world.acme);
    const { secret: otherSecret } = await people.addTotp(other.client);
    const send = async (code: string, i: number) => {
      const challenge = await challengeOf(person, urls[i % 2]);
      const headers = { ...people.header(world.acme), 'X-Forwarded-For': `192.0.2.${i}` };
      return world.anonymous.at(urls[i % 2] ?? '').post(verifyPath, { challenge, code }, headers);
    };

    const nine = await Promise.all(Array.from({ length: 9 }, (_, i) => send('000000', i)));
    expect(accepted(nine)).to.equal(0);
    const right = await send(people.code(secret), 10);
    expect(right.status, 'the tenth is right, and not counted').to.equal(200);

    people.passCode();
    expectProblem(await send('000000', 11), 401, 'invalid_code');
    expectProblem(await send(people.code(secret), 12), 401, 'invalid_code');
    const recoveryCode = recoveryCodes[0];
    expect((await verified(person, { recoveryCode })).status).to.equal(200);
    const neighbour = await verified(other.person, { code: people.code(otherSecret) });
    expect(neighbour.status, 'of another person').to.equal(200);

    const day = `update wrong_codes set since = since - interval '25 hours'
                  where user_id = (select id from users where email = ?)`;
    await controlSql(world, day, [person.email]);
    expect((await send(people.code(secret), 13)).status, 'a day later').to.equal(200);
  });

  it('a factor is added and removed with a proof of the password and of a factor of the last five minutes', async () => {
    const { person, client } = await people.add(world.acme);
    const verify = (body: object) =>
      client.post('/api/v1/auth/verify', { password: person.password, ...body });

    await people.age(client, 6);
    expectProblem(await client.post(`${factorsPath}/totp`, {}), 403, 'verification_required');
    expect((await verify({})).status).to.equal(200);
    const { id, secret } = await people.addTotp(client);

    await people.age(client, 6);
    expectProblem(await client.delete(`${factorsPath}/${id}`), 403, 'verification_required');
    expectProblem(await verify({}), 401, 'second_factor_required');
    expectProblem(await verify({ code: '000000' }), 401, 'invalid_code');
    expectProblem(await client.delete(`${factorsPath}/${id}`), 403, 'verification_required');
    expect((await verify({ code: people.code(secret) })).status).to.equal(200);
    expect((await client.delete(`${factorsPath}/${id}`)).status).to.equal(204);
    expect((await people.login(person)).status).to.equal(200);
  });

  it('a session that has proved the password alone removes no factor that another session has added', async () => {
    const { person, client } = await people.add(world.acme);
    const other = world.anonymous.withToken((await people.login(person)).body.accessToken);
    const { id } = await people.addTotp(client);

    expectProblem(await other.delete(`${factorsPath}/${id}`), 403, 'verification_required');
    expectProblem(await other.post(`${factorsPath}/totp`, {}), 403, 'verification_required');
    const renewal = await other.post(`${factorsPath}/recovery-codes`);
    expectProblem(renewal, 403, 'verification_required');
  });

  it('an app that somebody with the password alone has begun is not confirmed once there is another factor', async () => {
    const { person, client } = await people.add(world.acme);
    const intruder = world.anonymous.withToken((await people.login(person)).body.accessToken);
    const begun = (await intruder.post(`${factorsPath}/totp`, {})).body;
    const [{ id } = { id: '' }] = await controlSql<{ id: string }>(
      world,
      `insert into factors (tenant_id, user_id, kind, name, confirmed_at)
       select tenant_id, id, 'passkey', 'of the person', now() from users where email = ? returning id`,
      [person.email],
    );

    const body = { code: people.code(begun.secret) };
    const refused = await intruder.post(`${factorsPath}/${begun.id}/confirm`, body);

    expectProblem(refused, 403, 'verification_required');
    const left = (await client.get(factorsPath)).body;
    expect(left.map((factor: { id: string }) => factor.id)).to.deep.equal([id]);
  });

  it('the last factor of a person with a short password stays until the password is longer', async () => {
    const { person, client } = await people.add(world.acme);
    const { id } = await people.addTotp(client);
    const second = await people.addTotp(client, 'Tablet');
    const mark = 'update sessions set password_is_short = true where id = ?';
    await controlSql(world, mark, [claimsOf(client.tokens?.accessToken ?? '').sid]);

    expect((await client.delete(`${factorsPath}/${id}`)).status, 'of two').to.equal(204);
    const refused = await client.delete(`${factorsPath}/${second.id}`);
    expectProblem(refused, 400, 'wrong_state');
    expect(refused.body.detail).to.include('too short');
    expectProblem(await people.login(person), 401, 'second_factor_required');
  });

  it('a person has no part in the factors of another one, of the same tenant or not', async () => {
    const { client } = await people.add(world.acme);
    const { id, secret, recoveryCodes } = await people.addTotp(client);

    for (const tenant of [world.acme, world.globex]) {
      const other = await people.add(tenant);
      expect((await other.client.get(factorsPath)).body).to.deep.equal([]);
      expectProblem(await other.client.delete(`${factorsPath}/${id}`), 404, 'not_found');
      await people.addTotp(other.client);
      for (const body of [{ code: people.code(secret) }, { recoveryCode: recoveryCodes[0] }]) {
        expectProblem(await verified(other.person, body), 401, 'invalid_code');
      }
    }
  });

  it('an administrator who may manage a person, and has proved to be there, removes all factors of the person', async () => {
    const { person, client, userId } = await people.add(world.acme);
    const { recoveryCodes } = await people.addTotp(client);
    const challenge = await challengeOf(person);
    const path = `${usersPath}/${userId}/factors/reset`;
    const manager = await world.loginAs(world.acme, { permissions: ['users.manage'] });
    const stranger = await world.login(world.globex);
    const present = await world.login(world.acme);

    expectProblem(await manager.post(path), 403, 'forbidden');
    expectProblem(await client.post(path), 403, 'forbidden');
    expectProblem(await stranger.post(path), 404, 'not_found');
    await people.age(present, 6);
    expectProblem(await present.post(path), 403, 'verification_required');
    await present.post('/api/v1/auth/verify', { password: world.acme.admin.password });
    const reset = await present.post(path);
    expect(reset.status, JSON.stringify(reset.body)).to.equal(200);
    expect(reset.body).to.deep.equal({ Removed: 1 });

    const recoveryCode = recoveryCodes[0];
    const late = await people.verify(person, { challenge, recoveryCode });
    expectProblem(late, 401, 'invalid_challenge');
    expect((await people.login(person)).status).to.equal(200);
    const { body } = await admin.get('/api/v1/AuditLog?resource=Factor&limit=1');
    expect(body[0].Action).to.equal('delete');
    expect(body[0].UserId).not.to.equal(userId);
  });

  it('a program and a legacy client have no factors', async () => {
    const program = await admin.post('/api/v1/Programs', {
      Name: 'Till',
      Role: 'Member',
      Scope: 'All',
    });
    const { body } = await admin.post(`/api/v1/Programs/${program.body.Id}/keys`, {});
    const client = world.anonymous.withToken(body.Key);

    expect((await client.get(factorsPath)).body).to.deep.equal([]);
    expectProblem(await client.post(`${factorsPath}/totp`, {}), 400, 'wrong_state');
    expectProblem(await client.post(`${factorsPath}/recovery-codes`), 400, 'wrong_state');
  });

  it('the statements of the login of 0.2.0 open no session of a person with a factor, or of a role that requires one', async () => {
    const withFactor = await people.add(world.acme);
    await people.addTotp(withFactor.client);
    const required = await people.add(world.acme);
    await controlSql(world, 'update roles set requires_second_factor = true where id = ?', [
      required.roleId,
    ]);
    const plain = await people.add(world.acme);
    const insert = 'insert into sessions (tenant_id, user_id) values (?, ?)';
    const open = async ({ userId }: { userId: number }): Promise<string> =>
      controlSql(world, insert, [world.acme.id, userId]).then(
        () => 'opened',
        error => String(error.message),
      );

    expect(await open(plain)).to.equal('opened');
    for (const person of [withFactor, required]) {
      expect(await open(person)).to.include('this session needs a second factor');
    }
  });

  it('keys of apps, codes and challenges are in no row, log or audit entry as they are', async () => {
    const { person, client, userId } = await people.add(world.acme);
    const { secret, recoveryCodes } = await people.addTotp(client);
    const challenge = await challengeOf(person);
    const texts = [secret, challenge.slice(4), ...recoveryCodes];

    const rows = await controlSql(
      world,
      `select to_jsonb(f)::text as row from factors f where user_id = ?
        union all select to_jsonb(c)::text from recovery_codes c where user_id = ?
        union all select to_jsonb(c)::text from login_challenges c where user_id = ?
        union all select to_jsonb(a)::text from audit_log a where resource = 'Factor'`,
      [userId, userId, userId],
    );
    const { body } = await admin.get('/api/v1/AuditLog?resource=Factor&limit=1000');

    const everything = JSON.stringify([rows, body, world.logs]);
    expect(rows.length).to.be.at.least(13);
    for (const text of texts) expect(everything).not.to.include(text);
    const entries = body.filter(({ UserId }: { UserId: number }) => UserId === userId);
    expect(entries.map(({ Action }: { Action: string }) => Action)).to.have.members([
      'create',
      'update',
    ]);
    expect(Object.keys(entries[0].After)).to.have.members([
      'Id',
      'UserId',
      'Kind',
      'Name',
      'CreatedAt',
      'ConfirmedAt',
    ]);
  });

  describe('of a role that requires one', () => {
    const requirementOf = (roleId: number) => `/api/v1/Roles/${roleId}/second-factor`;
    const require = async (roleId: number, Required = true): Promise<ApiResponse> => {
      const response = await admin.put(requirementOf(roleId), { Required });
      expect(response.status, JSON.stringify(response.body)).to.equal(200);
      return response;
    };

    it('ends sessions without a factor in each process, and lets them in after a setup from a known network', async () => {
      const { person, client, roleId } = await people.add(world.acme);
      const kept = await people.add(world.acme);
      expect((await admin.get(requirementOf(roleId))).body).to.deep.equal({
        Required: false,
        PeopleWithout: 1,
      });
      const login = await people.login(person);

      expect((await require(roleId)).body).to.deep.equal({ Required: true, PeopleWithout: 1 });
      for (const url of urls) {
        await eventually(
          async () => (await client.at(url).get('/api/v1/auth/me')).status === 401,
          announcedMs,
        );
        expect((await kept.client.at(url).get('/api/v1/auth/me')).status).to.equal(200);
      }
      const { refreshToken } = login.body;
      const header = people.header(world.acme);
      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken },
        header,
      );
      expectProblem(refreshed, 401, 'invalid_refresh_token');

      const refused = await people.login(person);
      expectProblem(refused, 403, 'second_factor_setup_required');
      const { setupToken } = refused.body;
      const asBearer = await world.anonymous.withToken(setupToken).get('/api/v1/auth/me');
      expect(asBearer.status).to.equal(401);
      const asChallenge = await people.verify(person, { challenge: setupToken, code: '123456' });
      expectProblem(asChallenge, 401, 'invalid_challenge');

      const begun = await people.setUp(person, { setupToken });
      expect(begun.status, JSON.stringify(begun.body)).to.equal(201);
      const wrong = await people.setUp(person, { setupToken, code: '000000' }, true);
      expectProblem(wrong, 401, 'invalid_code');
      const code = people.code(begun.body.secret);
      const done = await people.setUp(person, { setupToken, code }, true);
      expect(done.status, JSON.stringify(done.body)).to.equal(200);
      expect(done.body.recoveryCodes).to.have.length(10);
      const me = await world.anonymous.withToken(done.body.accessToken).get('/api/v1/auth/me');
      expect(me.status).to.equal(200);
      expectProblem(await people.setUp(person, { setupToken }), 401, 'invalid_challenge');
      expect((await admin.get(requirementOf(roleId))).body.PeopleWithout).to.equal(0);
    });

    it('gives no setup token in a network from which the person has not logged in', async () => {
      const { person, roleId } = await people.add(world.acme);
      await require(roleId);
      const { email, password } = person;

      const headers = { ...people.header(world.acme), 'X-Forwarded-For': '198.51.100.7' };
      const refused = await world.anonymous.post(
        '/api/v1/auth/login',
        { email, password },
        headers,
      );

      expectProblem(refused, 403, 'second_factor_setup_required');
      expect(refused.body).not.to.have.property('setupToken');
      expect(refused.body.detail).to.include('reset-password');
    });

    it('lets nobody remove the last factor, and everybody log in without one once it requires none', async () => {
      const { person, client, roleId } = await people.add(world.acme);
      const { id } = await people.addTotp(client);
      await require(roleId);
      expect((await client.get('/api/v1/auth/me')).status, 'it has proved the app').to.equal(200);

      expectProblem(await client.delete(`${factorsPath}/${id}`), 400, 'wrong_state');
      await require(roleId, false);
      expect((await client.delete(`${factorsPath}/${id}`)).status).to.equal(204);
      expect((await people.login(person)).status).to.equal(200);
    });

    it('is not required of the own role by who has none, nor by who lacks a permission of the role', async () => {
      const { roleId } = await people.add(world.acme, ['users.manage', 'users.read']);
      const other = await people.add(world.acme, ['users.manage', 'users.read', 'full.read']);
      const roles = (await admin.get('/api/v1/Roles')).body;
      const ofAdmin = roles.find(({ Name }: { Name: string }) => Name === 'Administrator').Id;

      expectProblem(
        await admin.put(requirementOf(ofAdmin), { Required: true }),
        400,
        'wrong_state',
      );
      const lacking = await other.client.put(requirementOf(ofAdmin), { Required: true });
      expectProblem(lacking, 403, 'forbidden');
      const body = { Required: true };
      expect((await other.client.put(requirementOf(roleId), body)).status).to.equal(200);
      const stranger = await world.login(world.globex);
      expectProblem(await stranger.put(requirementOf(roleId), body), 404, 'not_found');
      expectProblem(await stranger.get(requirementOf(roleId)), 404, 'not_found');
    });

    it('is kept by a PUT of the role, and has audit entries of its own', async () => {
      const { roleId, role } = await people.add(world.acme);
      await require(roleId);

      const body = { Name: role, Permissions: ['full.read', 'users.read'] };
      for (const sent of [body, { ...body, RequiresSecondFactor: false }]) {
        const { status, body: replaced } = await admin.put(`/api/v1/Roles/${roleId}`, sent);
        expect(status).to.equal(200);
        expect(replaced.RequiresSecondFactor).to.equal(true);
      }

      expect((await admin.get(requirementOf(roleId))).body.Required).to.equal(true);
      const { body: entries } = await admin.get(`/api/v1/AuditLog?resource=Role&key=${roleId}`);
      const [, changed] = entries;
      expect(changed.Before.RequiresSecondFactor).to.equal(false);
      expect(changed.After.RequiresSecondFactor).to.equal(true);
    });

    it('lets no session go on that was opened or refreshed in the moment in which the role begins to require one', async () => {
      const header = people.header(world.acme);
      for (let round = 0; round < 3; round++) {
        const { person, client, roleId, userId } = await people.add(world.acme);
        const joining = await people.add(world.acme);
        const { refreshToken } = (await people.login(person)).body;
        const join = 'update users set role_id = ? where id = ?';

        const [, , refreshed, ...logins] = await Promise.all([
          require(roleId),
          controlSql(world, join, [roleId, joining.userId]),
          world.anonymous.post('/api/v1/auth/refresh', { refreshToken }, header),
          ...urls.map(url => people.login(person, url)),
          ...urls.map(url => people.login(joining.person, url)),
        ]);

        const opened = [refreshed, ...logins].filter(({ status }) => status === 200);
        const clients = [
          client,
          joining.client,
          ...opened.map(({ body }) => world.anonymous.withToken(body.accessToken)),
        ];
        for (const each of clients) {
          for (const url of urls) {
            await eventually(
              async () => (await each.at(url).get('/api/v1/auth/me')).status === 401,
              announcedMs,
            );
          }
        }
        for (const { body } of opened) {
          const again = { refreshToken: body.refreshToken };
          const response = await world.anonymous.post('/api/v1/auth/refresh', again, header);
          expectProblem(response, 401, 'invalid_refresh_token');
        }
        for (const { person: each } of [{ person }, joining]) {
          expectProblem(await people.login(each), 403, 'second_factor_setup_required');
        }
        const live = `select from sessions where user_id in (?, ?) and revoked_at is null`;
        await require(roleId);
        await eventually(
          async () => (await controlSql(world, live, [userId, joining.userId])).length === 0,
        );
      }
    });

    it('is required of administrators, too, by one who has a factor', async () => {
      const strict = await world.provision('strict');
      const first = await world.login(strict);
      await people.addTotp(first);
      const roles = (await first.get('/api/v1/Roles')).body;
      const { Id } = roles.find(({ Name }: { Name: string }) => Name === 'Administrator');
      const insert = `
        insert into users (tenant_id, role_id, email, password_hash, first_name, last_name, scope, confirmed_at)
        values (?, ?, 'second@strict.test', ?, 'A', 'B', 'All', now())`;
      const password = 'correct horse of the second';
      const hash = await world.passwords.hash(password);
      await controlSql(world, insert, [strict.id, Id, hash]);
      const second = { tenant: strict, email: 'second@strict.test', password };
      const { accessToken } = (await people.login(second)).body;

      const body = { Required: true };
      expect((await first.put(requirementOf(Id), body)).status).to.equal(200);

      const other = world.anonymous.withToken(accessToken);
      await eventually(
        async () => (await other.get('/api/v1/auth/me')).status === 401,
        announcedMs,
      );
      expectProblem(await people.login(second), 403, 'second_factor_setup_required');
      expect((await first.get('/api/v1/auth/me')).status).to.equal(200);
    });

    it('is shown by a role only if it requires one, alone and in the list, and no export has a column for it', async () => {
      const strict = await people.add(world.acme);
      const lax = await people.add(world.acme);
      await require(strict.roleId);
      const read = (roleId: number, headers = {}) => admin.get(`/api/v1/Roles/${roleId}`, headers);

      const shown = await read(strict.roleId);
      expect(shown.body).to.deep.equal({
        Id: strict.roleId,
        Name: strict.role,
        Permissions: ['full.read'],
        RequiresSecondFactor: true,
      });
      expect((await read(lax.roleId)).body).to.have.all.keys('Id', 'Name', 'Permissions');
      for (const query of ['', '?include=etag']) {
        const { body: roles } = await admin.get(`/api/v1/Roles${query}`);
        const of = (roleId: number) => roles.find(({ Id }: { Id: number }) => Id === roleId);
        expect(of(strict.roleId).RequiresSecondFactor).to.equal(true);
        expect(of(lax.roleId)).not.to.have.property('RequiresSecondFactor');
        if (query) expect(of(strict.roleId).ETag).to.equal(shown.headers.get('etag'));
      }
      const csv = await fetch(`${world.url}/api/v1/Roles`, {
        headers: { Authorization: `Bearer ${admin.tokens?.accessToken}`, Accept: 'text/csv' },
      });
      expect((await csv.text()).split('\r\n')[0]).to.equal('Id,Name,Permissions');

      const change = { Name: `${strict.role} 2`, Permissions: ['full.read'] };
      const tag = shown.headers.get('etag') ?? '';
      const path = `/api/v1/Roles/${strict.roleId}`;
      expect((await admin.put(path, change, { 'If-Match': tag })).status).to.equal(200);
      await require(strict.roleId, false);
      expect((await read(strict.roleId)).body).to.have.all.keys('Id', 'Name', 'Permissions');
    });

    it('ends the rows of all sessions without one behind the change, also of a person who gets the role later', async () => {
      const { roleId, role, userId, client } = await people.add(world.acme);
      const late = await people.add(world.acme);
      const proved = await people.add(world.acme);
      await people.addTotp(proved.client);
      const neighbour = await people.add(world.acme);
      const many = 1_203;
      await insertWithoutTriggers(
        world,
        'sessions',
        `insert into sessions (tenant_id, user_id) select tenant_id, id from users, generate_series(1, ${many})
          where id = ${userId}`,
      );
      await controlSql(world, 'update users set role_id = ? where id in (?, ?)', [
        roleId,
        proved.userId,
        userId,
      ]);
      const left = async (id: number) =>
        (
          await controlSql(world, 'select from sessions where user_id = ? and revoked_at is null', [
            id,
          ])
        ).length;
      const marked = () => controlSql(world, 'select from roles where revokes_sessions');
      expect(await left(userId)).to.be.above(many);

      await require(roleId);

      await eventually(async () => (await left(userId)) === 0);
      await eventually(async () => (await marked()).length === 0);
      expect(await left(proved.userId)).to.equal(1);
      expect(await left(neighbour.userId)).to.equal(1);
      expect((await client.get('/api/v1/auth/me')).status).to.equal(401);

      const { FirstName, LastName, Scope, EntityId } = (
        await admin.get(`${usersPath}/${late.userId}`)
      ).body;
      const body = { FirstName, LastName, Scope, EntityId, Role: role };
      expect((await admin.put(`${usersPath}/${late.userId}`, body)).status).to.equal(200);
      await require(roleId); // lets the process look at once, not in ten minutes
      await eventually(async () => (await left(late.userId)) === 0);
      await eventually(async () => (await marked()).length === 0);
    });

    it('ends no session of a role that requires none any more', async () => {
      const { roleId, userId, client } = await people.add(world.acme);
      await controlSql(world, 'update roles set requires_second_factor = true where id = ?', [
        roleId,
      ]);
      await controlSql(world, 'update roles set requires_second_factor = false where id = ?', [
        roleId,
      ]);

      await require((await people.add(world.acme)).roleId);

      const marked = () =>
        controlSql(world, 'select from roles where id = ? and revokes_sessions', [roleId]);
      await eventually(async () => (await marked()).length === 0);
      const revoked = 'select from sessions where user_id = ? and revoked_at is not null';
      expect(await controlSql(world, revoked, [userId])).to.deep.equal([]);
      expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
    });

    it('is asked of a person who gets such a role, at the next request', async () => {
      const { client, userId } = await people.add(world.acme);
      const strict = await people.add(world.acme);
      await require(strict.roleId);
      const { body: user } = await admin.get(`${usersPath}/${userId}`);
      const { FirstName, LastName, Scope, EntityId } = user;

      const body = { FirstName, LastName, Scope, EntityId, Role: strict.role };
      expect((await admin.put(`${usersPath}/${userId}`, body)).status).to.equal(200);

      for (const url of urls) {
        await eventually(
          async () => (await client.at(url).get('/api/v1/auth/me')).status === 401,
          announcedMs,
        );
      }
    });
  });
});

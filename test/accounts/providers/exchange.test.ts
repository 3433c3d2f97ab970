import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { follow } from '../../sales/events/follow.ts';
import { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useTwoProcesses } from '../../support/world.ts';
import { factorWorld } from '../auth/factors/factor-world.ts';
import { claimsOf } from '../auth/forge.ts';
import { expectProblem, rolesPath } from '../people/people-world.ts';
import {
  type ConfiguredProvider,
  identitiesPath,
  newPerson,
  providersPath,
  signInWorld,
  withFormerBuild,
} from './provider-world.ts';

const mePath = '/api/v1/auth/me';
const refreshPath = '/api/v1/auth/refresh';

describe('a login by the provider of a tenant', () => {
  const provider = use(startProvider);
  const world = use(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  const urls = useTwoProcesses(world);
  const people = factorWorld(world);
  const signIns = signInWorld(world, provider);
  let configured: ConfiguredProvider;

  beforeEach(async () => {
    await controlSql(world, 'delete from identity_providers');
    configured = await signIns.configure(world.acme);
  });

  /** Adds a person who has linked an account at the provider. */
  const addLinked = async (tenant = world.acme, claims = {}) => {
    const added = await people.add(tenant);
    const account = newPerson(claims);
    const id = await signIns.link(added.client, account);

    return { ...added, account, id };
  };
  const change = async (changes: object): Promise<void> => {
    const admin = await world.login(world.acme);
    const { body } = await admin.get(`${providersPath}/${configured.Id}`);
    const { Name, ClientIds, IsEnabled, SecondFactor, SessionHours, CreatesUsers } = body;
    const fields = { Name, ClientIds, IsEnabled, SecondFactor, SessionHours, CreatesUsers };
    const changed = await admin.put(`${providersPath}/${configured.Id}`, { ...fields, ...changes });
    expect(changed.status, JSON.stringify(changed.body)).to.equal(200);
  };
  const refresh = (client: Client) =>
    world.anonymous.post(
      refreshPath,
      { refreshToken: client.tokens?.refreshToken },
      { 'X-Tenant': world.acme.guid },
    );
  /** Waits until every process refuses a client, and its refresh token is refused, too. */
  const ended = async (client: Client): Promise<void> => {
    await eventually(async () => {
      const responses = await Promise.all(urls.map(url => client.at(url).get(mePath)));
      return responses.every(({ status }) => status === 401);
    }, announcedMs);
    expectProblem(await refresh(client), 401, 'invalid_refresh_token');
  };

  it('a person links an account, logs in by it in each process, refreshes, and sees the login in the list', async () => {
    const { account, client } = await addLinked();
    const { userGuid } = (await client.get(mePath)).body;

    for (const url of urls) {
      const response = await signIns.exchange(await provider.signIn(account), world.acme, url);
      expect(response.status, JSON.stringify(response.body)).to.equal(200);
      expect(response.body).to.have.keys('accessToken', 'refreshToken', 'entityType');
      const loggedIn = new Client(url, response.body);
      expect((await loggedIn.get(mePath)).body.userGuid).to.equal(userGuid);
      expect(claimsOf(response.body.accessToken).amr).to.deep.equal(['idp']);
      const refreshed = await refresh(loggedIn);
      expect(claimsOf(refreshed.body.accessToken).amr).to.deep.equal(['idp']);
    }

    const { body: logins } = await client.get('/api/v1/auth/logins?limit=2');
    expect(logins.map(({ Method }: { Method: string }) => Method)).to.deep.equal(['idp', 'idp']);
    const { body: identities } = await client.get(identitiesPath);
    expect(identities).to.have.length(1);
    expect(identities[0]).to.include({ provider: 'Staff', issuer: provider.issuer });
    expect(identities[0].lastUsedAt).to.be.a('string');
    expect(identities[0]).not.to.have.property('isHeld');
  });

  it('one person in two tenants with one provider has two accounts, each linked by itself', async () => {
    await signIns.configure(world.globex);
    const { account, client } = await addLinked();

    const before = await signIns.exchange(await provider.signIn(account), world.globex);
    expectProblem(before, 401, 'invalid_id_token');

    const other = await people.add(world.globex);
    await signIns.link(other.client, account);
    const [here, there] = [
      await signIns.signIn(account),
      await signIns.signIn(account, world.globex),
    ];
    const [me, otherMe] = [await here.get(mePath), await there.get(mePath)];
    expect(me.body.userGuid).to.equal((await client.get(mePath)).body.userGuid);
    expect(otherMe.body.userGuid).to.equal((await other.client.get(mePath)).body.userGuid);
    expect(otherMe.body.tenantGuid).to.equal(world.globex.guid);
  });

  it('an equal address at the provider, verified or not, lets nobody into an account', async () => {
    const { person } = await people.add(world.acme);

    for (const email_verified of [true, false, 'true']) {
      const account = newPerson({ email: person.email, email_verified });
      const refused = await signIns.exchange(await provider.signIn(account));
      expectProblem(refused, 401, 'invalid_id_token');
      expect(refused.body).not.to.have.property('detail');
    }
  });

  it('an account that is linked already is linked to nobody else, and a token links once', async () => {
    const { account } = await addLinked();
    const { client } = await people.add(world.acme);

    const taken = await client.post(identitiesPath, { idToken: await provider.signIn(account) });
    expectProblem(taken, 400, 'validation_failed');
    expect(taken.body.errorCodes.idToken[0].code).to.equal('taken');

    const idToken = await provider.signIn(newPerson());
    expect((await client.post(identitiesPath, { idToken })).status).to.equal(201);
    expectProblem(await client.post(identitiesPath, { idToken }), 401, 'invalid_id_token');
    expectProblem(await signIns.exchange(idToken), 401, 'invalid_id_token');
  });

  it('to link, confirm and unlink needs a proof of the last five minutes', async () => {
    const { client, id } = await addLinked();
    await people.age(client, 6);

    const refused = [
      await client.post(identitiesPath, { idToken: await provider.signIn(newPerson()) }),
      await client.post(`${identitiesPath}/${id}/confirm`),
      await client.delete(`${identitiesPath}/${id}`),
    ];

    for (const each of refused) expectProblem(each, 403, 'verification_required');
    expect((await client.get(identitiesPath)).body).to.have.length(1);
  });

  it('a person with a second factor is asked for it, and a provider that has asked for one stands in for it', async () => {
    const { account, client, person } = await addLinked();
    const { secret } = await people.addTotp(client);
    const signIn = (amr: string[] = []) =>
      provider.signIn(account, { amr }).then(token => signIns.exchange(token));

    const asked = await signIn(['mfa']);
    expectProblem(asked, 401, 'second_factor_required');
    expect(asked.body.methods).to.deep.equal(['totp', 'recoveryCode']);
    const wrong = await people.verify(person, { challenge: asked.body.challenge, code: '000000' });
    expectProblem(wrong, 401, 'invalid_code');
    const code = people.code(secret);
    const completed = await people.verify(person, { challenge: asked.body.challenge, code });
    expect(completed.status, JSON.stringify(completed.body)).to.equal(200);
    expect(claimsOf(completed.body.accessToken).amr).to.deep.equal(['idp', 'otp', 'mfa']);

    await change({ SecondFactor: 'hwk mfa' });
    expectProblem(await signIn(['pwd']), 401, 'second_factor_required');
    const trusted = await signIn(['pwd', 'mfa']);
    expect(trusted.status, JSON.stringify(trusted.body)).to.equal(200);
    expect(claimsOf(trusted.body.accessToken).amr).to.deep.equal(['idp', 'mfa']);

    await change({ SecondFactor: 'always' });
    expect((await signIn()).status).to.equal(200);
  });

  it('a role that requires a second factor takes a sign-in for one only as long as the provider is trusted', async () => {
    const { account, roleId, person } = await addLinked();
    await change({ SecondFactor: 'always' });
    const trusted = await signIns.signIn(account);
    const admin = await world.login(world.acme);
    const required = { Required: true };
    const put = await admin.put(`${rolesPath}/${roleId}/second-factor`, required);
    expect(put.status, JSON.stringify(put.body)).to.equal(200);

    expect((await trusted.get(mePath)).status).to.equal(200);
    expect((await refresh(trusted)).status).to.equal(200);

    await change({ SecondFactor: 'never' });
    await eventually(async () => (await trusted.get(mePath)).status === 401, announcedMs);
    const asked = await signIns.exchange(await provider.signIn(account));
    expectProblem(asked, 403, 'second_factor_setup_required');
    const { setupToken } = asked.body;
    const { secret } = (await people.setUp(person, { setupToken })).body;
    const code = people.code(secret);
    const done = await people.setUp(person, { setupToken, code }, true);
    expect(done.status, JSON.stringify(done.body)).to.equal(200);
    expect(claimsOf(done.body.accessToken).amr).to.deep.equal(['idp', 'otp', 'mfa']);
  });

  it('a stricter SecondFactor of a provider takes the second factor from its open sessions, for good, and a laxer one from none', async () => {
    const { account, roleId, client: byPassword, person } = await addLinked();
    const other = await addLinked();
    await people.addTotp(byPassword);
    await change({ SecondFactor: 'always' });
    const [client, withOwn] = [await signIns.signIn(account), await signIns.signIn(other.account)];
    const isFactor = async () =>
      (
        await controlSql<{ isFactor: boolean }>(
          world,
          `select idp_is_factor as "isFactor" from sessions where 'idp' = any (methods) and user_id in
             (select id from users where email in (?, ?))`,
          [person.email, other.person.email],
        )
      ).map(row => row.isFactor);
    const admin = await world.login(world.acme);
    await admin.put(`${rolesPath}/${roleId}/second-factor`, { Required: true });
    expect((await client.get(mePath)).status).to.equal(200);

    await change({ SecondFactor: 'always', Name: 'Renamed' });
    expect(await isFactor()).to.deep.equal([true, true]);
    await change({ SecondFactor: 'mfa' });
    expect(await isFactor()).to.deep.equal([false, false]);
    await ended(client);
    expect((await withOwn.get(mePath)).status).to.equal(200);

    const again = await provider.signIn(account, { amr: ['mfa'] });
    const trusted = new Client(world.url, (await signIns.exchange(again)).body);
    await change({ SecondFactor: 'hwk mfa' });
    expect((await trusted.get(mePath)).status).to.equal(200);
    await change({ SecondFactor: 'always' });
    expect((await trusted.get(mePath)).status).to.equal(200);
    await ended(client);
    await change({ SecondFactor: 'never' });
    await change({ SecondFactor: 'mfa' });
    await ended(trusted);
  });

  it('a login that a change of SecondFactor overtakes counts as a second factor by the new one', async () => {
    const { account, client } = await addLinked();
    await people.addTotp(client);
    await change({ SecondFactor: 'always' });
    const idToken = await provider.signIn(account, { amr: ['pwd'] });

    const response = await withConnection(world.installation.controlUrl, async holder => {
      await holder.query('begin');
      await holder.query(`update identity_providers set second_factor = '{mfa}' where id = $1`, [
        configured.Id,
      ]);
      const answer = signIns.exchange(idToken);
      await eventually(async () => (await readLockWaiters(holder)).length > 0);
      await holder.query('commit');
      return answer;
    });

    expectProblem(response, 401, 'second_factor_required');
  });

  it('a session that is in use ends when the hours of its provider have passed, at uses and at refreshes', async () => {
    const { account } = await addLinked();
    await change({ SessionHours: 1 });
    const [client, later] = [await signIns.signIn(account), await signIns.signIn(account)];
    await people.age(client, 59);
    expect((await refresh(later)).status).to.equal(200);

    await people.age(client, 1);

    await ended(client);
    expect((await later.get(mePath)).status).to.equal(200);
  });

  it('shorter hours of a provider end sessions that are open', async () => {
    const { account } = await addLinked();
    const client = await signIns.signIn(account);
    await people.age(client, 119);
    expect((await client.get(mePath)).status).to.equal(200);

    await change({ SessionHours: 1 });

    await ended(client);
  });

  it('shorter hours of a provider end a stream that one of its sessions has opened', async () => {
    const { account } = await addLinked();
    const client = await signIns.signIn(account);
    await people.age(client, 119);
    const following = await follow(client);
    expect(following.status).to.equal(200);

    await change({ SessionHours: 1 });

    const event = await following.next();
    following.close();
    expect(event?.event).to.equal('end');
    expect(event?.data.Reason).to.equal('access_changed');
  });

  it('a provider that is disabled ends the sessions that it has opened, for good, and lets nobody in', async () => {
    const { account, client: byPassword } = await addLinked();
    const client = await signIns.signIn(account);

    await change({ IsEnabled: false });
    await ended(client);
    const refused = await signIns.exchange(await provider.signIn(account));
    expectProblem(refused, 401, 'invalid_id_token');

    await change({ IsEnabled: true });
    await ended(client);
    expect((await (await signIns.signIn(account)).get(mePath)).status).to.equal(200);
    expect((await byPassword.get(mePath)).status).to.equal(200);
  });

  it('a change of a provider lets the processes look up again what it has opened in its tenant, and no other session', async () => {
    const [{ account, client: byPassword }, atGlobex] = [
      await addLinked(),
      await world.login(world.globex),
    ];
    await signIns.configure(world.globex);
    const linked = await addLinked(world.globex);
    const ofGlobex = await signIns.signIn(linked.account, world.globex);
    const kept = [byPassword, atGlobex, ofGlobex];
    const byProvider = await signIns.signIn(account);
    const inAll = async (client: Client) =>
      Promise.all(urls.map(async url => (await client.at(url).get(mePath)).status));
    for (const client of [...kept, byProvider]) {
      expect(await inAll(client)).to.deep.equal([200, 200]);
    }
    // Revoked without an announcement: what a process has in memory goes on.
    await controlSql(world, 'alter table sessions disable trigger user');
    await controlSql(world, 'update sessions set revoked_at = now()');
    await controlSql(world, 'alter table sessions enable trigger user');
    for (const client of kept) expect(await inAll(client)).to.deep.equal([200, 200]);

    await controlSql(world, 'update identity_providers set session_hours = 9 where id = ?', [
      configured.Id,
    ]);

    await eventually(async () => (await inAll(byProvider)).every(status => status === 401));
    for (const client of kept) expect(await inAll(client)).to.deep.equal([200, 200]);
    await controlSql(world, 'delete from identity_providers where tenant_id = ?', [
      world.globex.id,
    ]);
    await eventually(async () => (await inAll(ofGlobex)).every(status => status === 401));
    expect(await inAll(atGlobex)).to.deep.equal([200, 200]);
    await controlSql(world, 'delete from sessions');
  });

  it('a provider that is deleted ends the sessions that it has opened', async () => {
    const { account, client: byPassword } = await addLinked();
    const client = await signIns.signIn(account);

    await (await world.login(world.acme)).delete(`${providersPath}/${configured.Id}`);

    await ended(client);
    expect((await byPassword.get(identitiesPath)).body).to.deep.equal([]);
  });

  it('an identity that is unlinked ends the sessions that it has opened, and lets nobody in', async () => {
    const { account, client: byPassword, id } = await addLinked();
    const second = newPerson();
    await signIns.link(byPassword, second);
    const [client, other] = [await signIns.signIn(account), await signIns.signIn(second)];

    expect((await byPassword.delete(`${identitiesPath}/${id}`)).status).to.equal(204);

    await ended(client);
    expect((await other.get(mePath)).status).to.equal(200);
    const refused = await signIns.exchange(await provider.signIn(account));
    expectProblem(refused, 401, 'invalid_id_token');
    expectProblem(await byPassword.delete(`${identitiesPath}/${id}`), 404, 'not_found');
  });

  it('nobody unlinks or confirms the identity of somebody else', async () => {
    const { id } = await addLinked();
    const { client } = await people.add(world.acme);

    expectProblem(await client.delete(`${identitiesPath}/${id}`), 404, 'not_found');
    expectProblem(await client.post(`${identitiesPath}/${id}/confirm`), 404, 'not_found');
    expect((await client.get(identitiesPath)).body).to.deep.equal([]);
  });

  it('a person without a password proves by a new ID token who it is, and keeps the last way to log in', async () => {
    const { account, userId, id } = await addLinked();
    await controlSql(world, `update users set password_hash = 'none' where id = ?`, [userId]);
    const client = await signIns.signIn(account);
    const path = `${identitiesPath}/${id}`;

    expectProblem(await client.delete(path), 400, 'wrong_state');
    await people.age(client, 6);
    expectProblem(await client.delete(path), 403, 'verification_required');

    const verify = (idToken: string) => client.post('/api/v1/auth/verify', { idToken });
    expectProblem(await verify(await provider.signIn(newPerson())), 401, 'invalid_id_token');
    const token = await provider.signIn(account);
    expect((await verify(token)).status).to.equal(200);
    expectProblem(await verify(token), 401, 'invalid_id_token');
    expectProblem(await client.delete(path), 400, 'wrong_state');
    await signIns.link(client, newPerson());
    expect((await client.delete(path)).status).to.equal(204);
    await ended(client);
  });

  it('the challenge of a verification by an ID token opens no session, which no provider would end', async () => {
    const { account, client, person, userId } = await addLinked();
    const { secret } = await people.addTotp(client);
    await controlSql(world, `update users set password_hash = 'none' where id = ?`, [userId]);
    const asked = await signIns.exchange(await provider.signIn(account));
    const login = await people.verify(person, {
      challenge: asked.body.challenge,
      code: people.code(secret),
    });
    const byProvider = new Client(world.url, login.body);
    people.passCode();

    const idToken = await provider.signIn(account);
    const wanted = await byProvider.post('/api/v1/auth/verify', { idToken });
    expectProblem(wanted, 401, 'second_factor_required');
    const { challenge } = wanted.body;
    const code = people.code(secret);
    const opened = await people.verify(person, { challenge, code });

    expectProblem(opened, 401, 'invalid_challenge');
    const verified = await byProvider.post('/api/v1/auth/verify', { idToken, code });
    expect(verified.status, JSON.stringify(verified.body)).to.equal(200);
  });

  it('who has a password proves it, whether the session was opened by the provider or not', async () => {
    const { account, person, id } = await addLinked();
    const client = await signIns.signIn(account);

    const path = `${identitiesPath}/${id}`;
    expectProblem(await client.delete(path), 403, 'verification_required');
    const idToken = await provider.signIn(account);
    expectProblem(await client.post('/api/v1/auth/verify', { idToken }), 400, 'wrong_state');
    expectProblem(await client.post('/api/v1/auth/verify', {}), 400, 'validation_failed');
    const { password } = person;
    expect((await client.post('/api/v1/auth/verify', { password })).status).to.equal(200);
    expect((await client.delete(path)).status).to.equal(204);
  });

  it('a person who is disabled gets the 401 of everybody, and the list of logins says why', async () => {
    const { account, userId } = await addLinked();
    const admin = await world.login(world.acme);
    await admin.post(`/api/v1/Users/${userId}/disable`);

    await eventually(async () => {
      const refused = await signIns.exchange(await provider.signIn(account));
      expectProblem(refused, 401, 'invalid_id_token');
      const { body } = await admin.get(`/api/v1/Logins?userId=${userId}&filter[Outcome]=failed`);
      return body[0]?.Method === 'idp' && body[0].FailureReason === 'account_inactive';
    });
  });

  it('the database refuses a session of an identity that is held, of another person, or of none', async () => {
    const { userId, id } = await addLinked();
    const other = await people.add(world.acme);
    const insert = (user: number, identity: number | null, methods: string) =>
      controlSql(
        world,
        `insert into sessions (tenant_id, user_id, identity_id, methods) values (?, ?, ?, ?)`,
        [world.acme.id, user, identity, methods],
      ).then(
        () => 'inserted',
        error => String(error),
      );

    expect(await insert(userId, id, '{idp}')).to.equal('inserted');
    for (const [user, identity, methods] of [
      [other.userId, id, '{idp}'],
      [userId, null, '{idp}'],
      [userId, id, '{pwd}'],
    ] as const) {
      expect(await insert(user, identity, methods)).to.include('identity of this session');
    }
    await controlSql(world, 'update identities set held_at = now() where id = ?', [id]);
    expect(await insert(userId, id, '{idp}')).to.include('identity of this session');
  });

  it('while a build runs that knows no providers, nobody logs in by one or links one', async () => {
    const { account, client } = await addLinked();
    const refused = await withFormerBuild(world, async () => [
      await signIns.exchange(await provider.signIn(account)),
      await client.post(identitiesPath, { idToken: await provider.signIn(newPerson()) }),
    ]);

    for (const each of refused) expectProblem(each, 503, 'migration_pending');
  });
});

import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { type MailServer, startMailServer } from '../../support/mail-server.ts';
import { mailsSettled, tryMailsNow } from '../../support/mails.ts';
import { controlSql, createWorld, type World } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { expectNotLogged, expectNotStored } from '../auth/secrets.ts';
import {
  changed,
  expectProblem,
  invitation,
  newAddress,
  rolesPath,
  usersPath,
} from './people-world.ts';

const password = 'correct horse battery staple';

describe('users of a tenant', () => {
  let mail: MailServer;
  let world: World;
  let admin: Client;
  let globex: Client;

  before(async () => {
    mail = await startMailServer();
    world = await createWorld({ SMTP_URL: mail.url });
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);
    admin = await world.login(world.acme);
    globex = await world.login(world.globex);
  });
  after(async () => {
    await world.close();
    await mail.close();
  });

  const named = () => ({ 'X-Tenant': world.acme.guid });
  const accept = (token: string, newPassword = password, headers = named()): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/reset-password', { token, newPassword }, headers);
  const login = (email: string): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/login', { email, password }, named());
  /** Adds a user who has confirmed the address, and returns the record. */
  const addSampleUserRecord = async (): Promise<ApiResponse> => {
    const { id } = await addSampleUser(world, world.acme);
    return admin.get(`${usersPath}/${id}`);
  };

  it('a user record has the declared fields, and the time of the last login, which is no entry of the audit log', async () => {
    const { id, guid, email, password: own } = await addSampleUser(world, world.acme);
    const entries = await admin.get(`/api/v1/AuditLog?resource=User&key=${id}`);
    const before = await admin.get(`${usersPath}/${id}`);

    expect(before.status).to.equal(200);
    const { CreatedAt, ConfirmedAt, RoleId, ...fields } = before.body;
    const { body: roles } = await admin.get(`${rolesPath}?filter[Name]=Member`);
    expect(RoleId).to.equal(roles[0].Id);
    expect(fields).to.deep.equal({
      Id: id,
      Guid: guid,
      Email: email,
      FirstName: 'Per',
      LastName: 'Son',
      Role: 'Member',
      Scope: 'All',
      EntityId: null,
      IsDisabled: false,
      LastLoginAt: null,
      MailState: null,
      MailReason: null,
      MailAt: null,
    });

    const start = new Date().toISOString();
    await world.login(world.acme, { email, password: own });
    const after = await admin.get(`${usersPath}/${id}`);

    expect(after.body.LastLoginAt >= start, after.body.LastLoginAt).to.equal(true);
    expect(after.body).to.deep.equal({ ...before.body, LastLoginAt: after.body.LastLoginAt });

    const unchanged = await admin.get(`${usersPath}/${id}`, {
      'If-None-Match': after.headers.get('etag') ?? '',
    });
    expect(unchanged.status).to.equal(304);

    expect((await admin.get(`/api/v1/AuditLog?resource=User&key=${id}`)).body).to.deep.equal(
      entries.body,
    );
  });

  it('the pages of the list contain each user of the tenant once, and no user of another tenant', async () => {
    for (let i = 0; i < 3; i++) await addSampleUser(world, world.acme);
    const other = await addSampleUser(world, world.globex);

    const ids: number[] = [];

    for (;;) {
      const after = ids.length > 0 ? `&after=${ids.at(-1)}` : '';
      const page: { Id: number }[] = (await admin.get(`${usersPath}?limit=2${after}`)).body;
      if (page.length === 0) break;
      expect(page.length).to.be.at.most(2);
      ids.push(...page.map(({ Id }) => Id));
    }

    const stored = await controlSql<{ id: string }>(
      world,
      'select id from users where tenant_id = ? order by id',
      [world.acme.id],
    );
    expect(ids).to.deep.equal(stored.map(({ id }) => Number(id)));
    expectProblem(await admin.get(`${usersPath}/${other.id}`), 404, 'not_found');

    const { email } = other;
    for (const query of [
      `filter[Email]=${email}`,
      `q=${email}`,
      `filter[Id][gte]=${other.id}&filter[Id][lte]=${other.id}`,
    ]) {
      expect((await admin.get(`${usersPath}?${query}`)).body, query).to.deep.equal([]);
    }

    const { body: csv } = await admin.get(usersPath, { Accept: 'text/csv' });
    expect(csv.split('\r\n')[0]).to.match(
      /^Id,Guid,Email,FirstName,LastName,Role,Scope,EntityId,IsDisabled,/,
    );
    expect(csv).to.include(world.acme.admin.email).and.not.include(email);
  });

  it('users and roles are sorted, filtered and searched as any list, and a page links to the next one', async () => {
    await admin.post(rolesPath, { Name: 'Auditor', Permissions: ['users.read'] });
    const emails: string[] = [];
    for (const LastName of ['Cole', 'Abel', 'Bell']) {
      const { body } = await admin.post(usersPath, invitation({ LastName, Role: 'Auditor' }));
      emails.push(body.Email);
    }

    await world.login(world.acme);

    const seen: string[] = [];
    let next: string | undefined =
      `${usersPath}?filter[Role]=Auditor&filter[IsDisabled]=false&sort=-LastName&limit=2`;

    for (let pages = 0; next; pages++) {
      expect(pages).to.be.below(3);
      const page = await admin.get(next);
      seen.push(...page.body.map(({ LastName }: { LastName: string }) => LastName));
      next = /^<(.*)>; rel="next"$/.exec(page.headers.get('link') ?? '')?.[1];
    }

    expect(seen).to.deep.equal(['Cole', 'Bell', 'Abel']);

    const found = await admin.get(`${usersPath}?q=${emails[0]?.slice(0, 10).toUpperCase()}`);
    expect(found.body.map(({ Email }: { Email: string }) => Email)).to.deep.equal([emails[0]]);

    const newest = await admin.get(
      `${usersPath}?filter[LastLoginAt][null]=false&sort=-LastLoginAt&limit=1`,
    );
    expect(newest.body[0].Email).to.equal(world.acme.admin.email);

    const roles = await admin.get(`${rolesPath}?filter[Name][prefix]=Aud`);
    expect(roles.body.map(({ Name }: { Name: string }) => Name)).to.deep.equal(['Auditor']);
  });

  it('an invited user sets the first password with the token of the mail, once, and cannot log in before', async () => {
    const sent = invitation({
      Email: 'Nora.Newman@People.Test',
      IsDisabled: true,
      Id: 1,
      ConfirmedAt: '2020-01-01',
    });

    const invited = await admin.post(usersPath, sent);
    expect(invited.status).to.equal(201);
    expect(invited.headers.get('location')).to.equal(`${usersPath}/${invited.body.Id}`);
    const email = 'nora.newman@people.test';
    expect(invited.body).to.include({
      Email: email,
      Role: 'Member',
      Scope: 'All',
      IsDisabled: false,
    });

    expect(invited.body.ConfirmedAt).to.equal(null);
    expect(invited.body.LastLoginAt).to.equal(null);

    const token = await mail.waitForToken(email);
    expect(mail.messagesTo(email)[0]?.content).to.include('acme Ltd').and.not.include(password);

    expectProblem(await login(email), 401, 'invalid_credentials');
    expectProblem(
      await world.anonymous.post('/api/v1/auth/login', { email, password: 'none' }, named()),
      401,
      'invalid_credentials',
    );
    expectProblem(
      await accept(token, password, { 'X-Tenant': world.globex.guid }),
      400,
      'validation_failed',
    );

    expect((await accept(token)).status).to.equal(204);
    expectProblem(await accept(token), 400, 'validation_failed');
    expect((await login(email)).status).to.equal(200);

    const { body } = await admin.get(`${usersPath}/${invited.body.Id}`);
    expect([body.ConfirmedAt, body.LastLoginAt]).to.not.include(null);

    const [confirmed] = (await admin.get(`/api/v1/AuditLog?resource=User&key=${body.Id}&limit=1`))
      .body;
    expect(confirmed).to.include({
      Action: 'update',
      UserId: body.Id,
      UserGuid: body.Guid,
      IPAddress: '127.0.0.1',
    });
    expect(confirmed.Before.ConfirmedAt).to.equal(null);
    expect(confirmed.After.ConfirmedAt).to.equal(body.ConfirmedAt);

    await expectNotStored(world, [token]);
    expectNotLogged(world, [token, email]);
  });

  it('an expired invitation sets no password', async () => {
    const { Email, ...rest } = invitation();
    const { body } = await admin.post(usersPath, { Email, ...rest });
    const token = await mail.waitForToken(Email);
    await controlSql(
      world,
      `update mail_deliveries set expires_at = now() - interval '1 s' where user_id = ?`,
      [body.Id],
    );

    expectProblem(await accept(token), 400, 'validation_failed');
    expectProblem(await login(Email), 401, 'invalid_credentials');
  });

  it('a second invitation replaces the first: its fields are stored, and the first token is no longer valid', async () => {
    const sent = invitation();
    const first = await admin.post(usersPath, sent);
    const firstToken = await mail.waitForToken(sent.Email);

    const again = await admin.post(usersPath, {
      ...sent,
      FirstName: 'Nadia',
      Role: 'Administrator',
      Scope: 'Self',
    });

    expect(again.status).to.equal(201);
    expect(again.body.Id).to.equal(first.body.Id);
    expect(again.body).to.include({ FirstName: 'Nadia', Role: 'Administrator', Scope: 'Self' });

    const token = await mail.waitForToken(sent.Email, 2);
    expectProblem(await accept(firstToken), 400, 'validation_failed');
    expect((await accept(token)).status).to.equal(204);
    expect((await login(sent.Email)).status).to.equal(200);
  });

  it('the token of an invitation stays valid when the mail of a second one is not accepted', async () => {
    const sent = invitation();
    await admin.post(usersPath, sent);
    const token = await mail.waitForToken(sent.Email);
    mail.refuse(sent.Email);
    expect((await admin.post(usersPath, { ...sent, FirstName: 'Nadia' })).status).to.equal(201);
    await eventually(() => mail.refused > 0);
    await mailsSettled(world);
    expect((await accept(token)).status).to.equal(204);
    expect((await login(sent.Email)).status).to.equal(200);
  });

  it('an address that a user of the tenant has cannot be invited, and one of another tenant can', async () => {
    const { email } = await addSampleUser(world, world.acme);
    const refused = await admin.post(usersPath, invitation({ Email: email.toUpperCase() }));

    expectProblem(refused, 400, 'duplicate');
    expect(refused.body.errors).to.deep.equal({ Email: ['is taken'] });

    const other = await globex.post(usersPath, invitation({ Email: email }));
    const fresh = await globex.post(usersPath, invitation());

    const shape = ({ status, headers, body }: ApiResponse) => [
      status,
      Object.keys(body),
      [...headers.keys()].sort(),
    ];

    expect(shape(other)).to.deep.equal(shape(fresh));
    expect(other.body.Guid).to.not.equal(undefined);
  });

  it('a registration of an invited address, before or after the invitation, never sets the password', async () => {
    const attacker = {
      password: 'the password of an attacker',
      firstName: 'Mallory',
      lastName: 'X',
    };

    const before = newAddress();
    await world.anonymous.post('/api/v1/auth/register', { email: before, ...attacker }, named());
    const registered = await mail.waitForToken(before);
    const listed = (await admin.get(`${usersPath}?limit=1000`)).body.find(
      ({ Email }: { Email: string }) => Email === before,
    );
    expect(listed).to.include({ Role: 'Member', Scope: 'Self', ConfirmedAt: null });

    expectProblem(
      await admin.put(`${usersPath}/${listed.Id}`, {
        FirstName: 'N',
        LastName: 'N',
        Role: 'Administrator',
        Scope: 'All',
      }),
      400,
      'wrong_state',
    );

    expect(
      (await admin.post(usersPath, invitation({ Email: before, Role: 'Administrator' }))).status,
    ).to.equal(201);
    const token = await mail.waitForToken(before, 2);

    const confirm = await world.anonymous.post(
      '/api/v1/auth/confirm',
      { token: registered },
      named(),
    );
    expectProblem(confirm, 400, 'validation_failed');

    const after = newAddress();
    await admin.post(usersPath, invitation({ Email: after, Role: 'Administrator' }));
    await mail.waitForToken(after);
    const register = await world.anonymous.post(
      '/api/v1/auth/register',
      { email: after, ...attacker },
      named(),
    );
    expect(register.status).to.equal(202);

    const again = await mail.waitForToken(after, 2);
    const asConfirmation = await world.anonymous.post(
      '/api/v1/auth/confirm',
      { token: again },
      named(),
    );
    expectProblem(asConfirmation, 400, 'validation_failed');

    const chosenByAttacker = { email: after, password: attacker.password };
    expectProblem(
      await world.anonymous.post('/api/v1/auth/login', chosenByAttacker, named()),
      401,
      'invalid_credentials',
    );

    expect((await accept(again)).status).to.equal(204);
    expect((await accept(token)).status).to.equal(204);
    expect((await login(before)).status).to.equal(200);
  });

  it('the address of an invited person is corrected: the former address opens nothing, and the new one gets the invitation', async () => {
    const sent = invitation();
    const { body: invited } = await admin.post(usersPath, sent);
    const former = await mail.waitForToken(sent.Email);
    const path = `${usersPath}/${invited.Id}`;
    const { email: taken } = await addSampleUser(world, world.acme);
    const Email = newAddress();

    expectProblem(await admin.put(path, { ...sent, Email: taken.toUpperCase() }), 400, 'duplicate');
    expectProblem(await admin.put(path, { ...sent, Email: `${Email}.` }), 400, 'validation_failed');
    expectProblem(await globex.put(path, { ...sent, Email }), 404, 'not_found');
    const corrected = await admin.put(path, { ...sent, Email: ` ${Email.toUpperCase()} ` });
    expect(corrected.status).to.equal(200);
    expect(corrected.body).to.include({ Id: invited.Id, Guid: invited.Guid, Email });

    const token = await mail.waitForToken(Email);
    expectProblem(await accept(former), 400, 'validation_failed');
    expect((await accept(token)).status).to.equal(204);
    expect((await login(Email)).status).to.equal(200);
    expectProblem(await login(sent.Email), 401, 'invalid_credentials');
    const { body: entries } = await admin.get(`/api/v1/AuditLog?resource=User&key=${invited.Id}`);
    const addresses = entries.map(({ Before, After }: Record<string, { Email: string }>) => [
      Before?.Email,
      After?.Email,
    ]);
    expect(addresses).to.deep.include([sent.Email, Email]);

    const confirmed = await admin.put(path, { ...sent, Email: newAddress() });
    expect(confirmed.body.errors).to.deep.equal({
      Email: ['cannot be changed, because the person has confirmed it'],
    });
    expect(
      (await admin.put(path, { ...sent, Email: Email.toUpperCase() })).status,
      'the same address',
    ).to.equal(200);
  });

  it('a caller who may manage the person takes an invitation back: its link opens nothing, and the address is free', async () => {
    const sent = invitation({ Role: 'Administrator' });
    const { body: invited } = await admin.post(usersPath, sent);
    const token = await mail.waitForToken(sent.Email);
    const path = `${usersPath}/${invited.Id}`;
    const lesser = await world.loginAs(world.acme, { permissions: ['users.manage'] });
    const reader = await world.loginAs(world.acme, { permissions: ['users.read'] });

    expectProblem(await globex.delete(path), 404, 'not_found');
    expectProblem(await lesser.delete(path), 403, 'forbidden');
    expectProblem(await reader.delete(path), 403, 'forbidden');
    expectProblem(await admin.delete(path, { 'If-Match': '"other"' }), 412, 'precondition_failed');
    expect((await admin.delete(path)).status).to.equal(204);

    expectProblem(await admin.get(path), 404, 'not_found');
    expectProblem(await admin.delete(path), 404, 'not_found');
    expectProblem(await accept(token), 400, 'validation_failed');
    const [entry] = (await admin.get(`/api/v1/AuditLog?resource=User&key=${invited.Id}&limit=1`))
      .body;
    expect(entry).to.include({ Action: 'delete', Resource: 'User' });
    const again = await admin.post(usersPath, sent);
    expect(again.status).to.equal(201);
    expect(again.body.Id).to.not.equal(invited.Id);

    const { id } = await addSampleUser(world, world.acme);
    expectProblem(await admin.delete(`${usersPath}/${id}`), 400, 'wrong_state');
  });

  it('an invitation, and a change of a user, are refused with the errors of role, entity and address at once', async () => {
    const taken = await admin.post(usersPath, invitation());
    const other = await admin.post(usersPath, invitation());
    const { Email } = (await addSampleUserRecord()).body;
    const wrong = { Role: 'nobody', EntityId: 99_999, Email };

    const invited = await admin.post(usersPath, invitation(wrong));
    const moved = await admin.put(`${usersPath}/${other.body.Id}`, {
      ...changed(other, wrong),
      Email: taken.body.Email,
    });

    for (const { status, body } of [invited, moved]) {
      expect(status).to.equal(400);
      expect(body.code).to.equal('validation_failed');
      expect(body.errors).to.deep.equal({
        EntityId: ['is not an entity'],
        Role: ['is not a role'],
        Email: ['is taken'],
      });
    }
  });

  it('an invitation that is repeated with its key makes one user, one audit entry and one mail', async () => {
    const sent = invitation();
    const key = { 'Idempotency-Key': randomUUID() };
    const responses = await Promise.all([1, 2, 3].map(() => admin.post(usersPath, sent, key)));
    responses.push(await admin.post(usersPath, sent, key));

    for (const { status, body } of responses) {
      expect(status).to.equal(201);
      expect(body).to.deep.equal(responses[0]?.body);
    }
    const replayed = responses.map(({ headers }) => headers.get('idempotency-replayed'));
    expect(replayed.sort()).to.deep.equal([null, 'true', 'true', 'true'].sort());

    expectProblem(
      await admin.post(usersPath, { ...sent, FirstName: 'Other' }, key),
      422,
      'idempotency_key_reused',
    );

    await mailsSettled(world);
    expect(mail.messagesTo(sent.Email)).to.have.length(1);
    const audit = await admin.get(`/api/v1/AuditLog?resource=User&key=${responses[0]?.body.Id}`);
    expect(audit.body).to.have.length(1);

    const role = { Name: 'Once', Permissions: ['orders.read'] };
    const once = { 'Idempotency-Key': randomUUID() };
    const [first, second] = [
      await admin.post(rolesPath, role, once),
      await admin.post(rolesPath, role, once),
    ];

    expect(first.status).to.equal(201);
    expect(second.status).to.equal(201);
    expect(second.body).to.deep.equal(first.body);
  });

  it('If-Match refuses a change of a user or role that has changed since', async () => {
    const { id } = await addSampleUser(world, world.acme);
    const path = `${usersPath}/${id}`;
    const read = await admin.get(path);
    const tag = { 'If-Match': read.headers.get('etag') ?? '' };
    const put = await admin.put(path, changed(read, { LastName: 'Changed' }), tag);
    expect(put.status).to.equal(200);
    expect(put.body.LastName).to.equal('Changed');
    expect((await admin.get(path)).headers.get('etag')).to.equal(put.headers.get('etag'));
    expectProblem(await admin.put(path, changed(read), tag), 412, 'precondition_failed');
    expectProblem(await admin.delete(`${path}/sessions`, tag), 412, 'precondition_failed');

    const invited = await admin.post(usersPath, invitation());
    const invitedTag = { 'If-Match': invited.headers.get('etag') ?? '' };
    await mailsSettled(world);
    const invitedPath = `${usersPath}/${invited.body.Id}`;
    expect((await admin.get(invitedPath)).body.MailState).to.equal('sent');
    expect(
      (await admin.put(invitedPath, changed(invited, { LastName: 'Sent' }), invitedTag)).status,
    ).to.equal(200);
    expectProblem(
      await admin.put(invitedPath, changed(invited), invitedTag),
      412,
      'precondition_failed',
    );

    const role = await admin.post(rolesPath, { Name: 'Tagged', Permissions: [] });
    const rolePath = `${rolesPath}/${role.body.Id}`;
    const roleTag = { 'If-Match': role.headers.get('etag') ?? '' };
    expect((await admin.get(rolePath)).headers.get('etag')).to.equal(role.headers.get('etag'));
    const fields = { Name: 'Tagged', Permissions: ['orders.read'] };
    expect((await admin.put(rolePath, fields, roleTag)).status).to.equal(200);
    expectProblem(await admin.put(rolePath, fields, roleTag), 412, 'precondition_failed');
    expectProblem(await admin.delete(rolePath, roleTag), 412, 'precondition_failed');
    expect((await admin.delete(rolePath, { 'If-Match': '*' })).status).to.equal(204);
  });

  it('a login and a mail to a user change the ETag of the user, and If-Match does not compare them', async () => {
    const { id, email, password } = await addSampleUser(world, world.acme);
    const path = `${usersPath}/${id}`;
    const read = await admin.get(path);
    const tag = read.headers.get('etag') ?? '';

    await world.login(world.acme, { email, password });
    await world.anonymous.post(
      '/api/v1/auth/reset-password',
      { email },
      { 'X-Tenant': world.acme.guid },
    );
    await mailsSettled(world);
    const after = await admin.get(path, { 'If-None-Match': tag });
    expect(after.status).to.equal(200);
    expect(after.body.LastLoginAt).to.be.a('string');
    expect(after.body.MailState).to.equal('sent');
    const { body: list } = await admin.get(`${usersPath}?filter[Id]=${id}&include=etag`);
    expect(list[0].ETag).to.equal(after.headers.get('etag'));

    const put = await admin.put(path, changed(read, { LastName: 'Changed' }), { 'If-Match': tag });
    expect(put.status).to.equal(200);
    const stale = { 'If-Match': after.headers.get('etag') ?? '' };
    expectProblem(await admin.put(path, changed(read), stale), 412, 'precondition_failed');
    expectProblem(
      await admin.put(path, changed(read), { 'If-None-Match': put.headers.get('etag') ?? '' }),
      412,
      'precondition_failed',
    );
  });

  it('a role that somebody has is not deleted, and neither Administrator nor Member is changed', async () => {
    const role = await admin.post(rolesPath, {
      Name: 'Held',
      Permissions: ['orders.read', 'orders.read'],
    });
    expect(role.body.Permissions).to.deep.equal(['orders.read']);

    expectProblem(await admin.post(rolesPath, { Name: 'hELD', Permissions: [] }), 400, 'duplicate');
    const invited = await admin.post(usersPath, invitation({ Role: 'Held' }));
    expectProblem(await admin.delete(`${rolesPath}/${role.body.Id}`), 400, 'in_use');

    await admin.put(`${usersPath}/${invited.body.Id}`, changed(invited, { Role: 'Member' }));
    expect((await admin.delete(`${rolesPath}/${role.body.Id}`)).status).to.equal(204);
    expectProblem(await admin.get(`${rolesPath}/${role.body.Id}`), 404, 'not_found');

    const { body: roles } = await admin.get(rolesPath);
    for (const { Id, Name, Permissions } of roles.filter(({ Name }: { Name: string }) =>
      /^(Adm|Mem)/.test(Name),
    )) {
      expectProblem(
        await admin.put(`${rolesPath}/${Id}`, { Name: `${Name}2`, Permissions }),
        400,
        'wrong_state',
      );
      expectProblem(await admin.delete(`${rolesPath}/${Id}`), 400, 'wrong_state');
    }
  });
});

describe('limits of invitations', () => {
  it('an address receives at most 3 invitations in 15 minutes, however often they are corrected or taken back', async () => {
    const mail = await startMailServer();
    const world = await createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '3/15m' });
    try {
      const admin = await world.login(world.acme);
      const victim = newAddress();
      const invite = () => admin.post(usersPath, invitation({ Email: victim }));
      const received = async (count: number): Promise<void> => {
        await mail.waitForToken(victim, count);
        await mailsSettled(world);
      };

      const first = await invite();
      await received(1);
      expect((await admin.delete(`${usersPath}/${first.body.Id}`)).status).to.equal(204);
      const second = await invite();
      await received(2);
      const path = `${usersPath}/${second.body.Id}`;
      const correct = (Email: string) => admin.put(path, changed(second, { Email }));
      expect((await correct(newAddress())).status).to.equal(200);
      expect((await correct(victim)).status).to.equal(200);
      await received(3);
      expect((await correct(newAddress())).status).to.equal(200);

      expectProblem(await correct(victim), 429, 'rate_limited');
      expectProblem(await invite(), 429, 'rate_limited');
      await mailsSettled(world);
      expect(mail.messagesTo(victim)).to.have.length(3);
    } finally {
      await world.close();
      await mail.close();
    }
  });

  it('a mail whose link is withdrawn while the mail server has it counts for the limit, and is not sent again', async () => {
    const mail = await startMailServer();
    const world = await createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '2/15m' });
    try {
      const admin = await world.login(world.acme);
      const victim = newAddress();
      const invite = () => admin.post(usersPath, invitation({ Email: victim }));
      const held = mail.hold(victim);

      const first = await invite();
      await mail.waitForToken(victim, 1);
      expect((await admin.delete(`${usersPath}/${first.body.Id}`)).status).to.equal(204);
      const second = await invite();
      await mail.waitForToken(victim, 2);
      const path = `${usersPath}/${second.body.Id}`;
      const corrected = await admin.put(path, changed(second, { Email: newAddress() }));
      expect(corrected.status).to.equal(200);

      expectProblem(await invite(), 429, 'rate_limited');
      held.release();
      await mailsSettled(world);
      await tryMailsNow(world);
      await mailsSettled(world);
      expectProblem(await invite(), 429, 'rate_limited');
      expect(mail.messagesTo(victim)).to.have.length(2);

      const { findings } = await diagnose(world.installation, { controlOnly: true });
      expect(findings.map(({ check }) => check)).to.not.include('mails_refused');
    } finally {
      await world.close();
      await mail.close();
    }
  });

  it('an address receives at most 3 invitations in 15 minutes; a further one gets 429, a repeated one its response', async () => {
    const mail = await startMailServer();
    const world = await createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '3/15m' });
    try {
      const admin = await world.login(world.acme);
      const sent = invitation();
      const key = { 'Idempotency-Key': randomUUID() };
      const first = await admin.post(usersPath, sent, key);
      await mail.waitForToken(sent.Email, 1);

      for (const count of [2, 3]) {
        expect((await admin.post(usersPath, sent)).status).to.equal(201);
        await mail.waitForToken(sent.Email, count);
      }

      const limited = await admin.post(usersPath, sent);
      expectProblem(limited, 429, 'rate_limited');
      expect(Number(limited.headers.get('retry-after'))).to.be.within(1, 900);

      const again = await admin.post(usersPath, sent, key);
      expect(again.status).to.equal(201);
      expect(again.body).to.deep.equal(first.body);
      expect((await admin.post(usersPath, invitation())).status, 'another address').to.equal(201);
      expect(mail.messagesTo(sent.Email)).to.have.length(3);

      const crowded = invitation();
      await Promise.all(Array.from({ length: 8 }, () => admin.post(usersPath, crowded)));
      await mailsSettled(world);
      // One that waits is replaced by the next one, so that there may be fewer than 3.
      const { length } = mail.messagesTo(crowded.Email);
      expect(length).to.be.within(1, 3);

      const tokens = Array.from({ length }, (_, index) =>
        mail.waitForToken(crowded.Email, index + 1),
      );
      const accepted = [];
      for (const token of await Promise.all(tokens)) {
        const body = { token, newPassword: password };
        accepted.push(
          (
            await world.anonymous.post('/api/v1/auth/reset-password', body, {
              'X-Tenant': world.acme.guid,
            })
          ).status,
        );
      }

      expect(
        accepted.sort(),
        'the newest token that a mail has, after 8 invitations at the same time',
      ).to.deep.equal([204, ...Array(length - 1).fill(400)]);
    } finally {
      await world.close();
      await mail.close();
    }
  });
});

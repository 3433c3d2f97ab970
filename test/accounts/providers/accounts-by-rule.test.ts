import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { readable, startMailServer } from '../../support/mail-server.ts';
import { mailsSettled, tryMailsNow } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useLogin } from '../../support/world.ts';
import { addRole, expectProblem, rolesPath } from '../people/people-world.ts';
import { newPerson, providersPath, signInWorld } from './provider-world.ts';

describe('accounts that the rule of a provider makes', () => {
  const mail = use(startMailServer);
  const provider = use(startProvider);
  const world = use(() => createWorld({ SMTP_URL: mail.url, TRUSTED_PROVIDERS: provider.trusted }));
  const admin = useLogin(world, 'acme');
  const signIns = signInWorld(world, provider);

  beforeEach(() => controlSql(world, 'delete from identity_providers'));

  const address = (domain = 'acme.example'): string =>
    `new-${randomBytes(4).toString('hex')}@${domain}`;
  const known = (claims: object = {}) =>
    newPerson({
      email: address(),
      email_verified: true,
      given_name: 'Nora',
      family_name: 'Newman',
      ...claims,
    });
  const configure = (rule: object = {}, changes: object = {}) =>
    signIns.configure(world.acme, {
      CreatesUsers: {
        Role: 'Member',
        Scope: 'All',
        EntityId: null,
        Domains: ['acme.example'],
        Claims: {},
        ...rule,
      },
      ...changes,
    });
  const exchange = async (person: ReturnType<typeof known>, tenant = world.acme) =>
    signIns.exchange(await provider.signIn(person), tenant);
  const usersWith = (email: unknown) =>
    controlSql<{ id: string; role: string; password_hash: string }>(
      world,
      `select u.id, r.name as role, password_hash from users u join roles r on r.id = u.role_id
        where u.email = ?`,
      [String(email).toLowerCase()],
    );
  /** The reason of the newest line of a refused token. */
  const lastReason = (): string =>
    JSON.parse(world.logs.findLast(line => line.includes('id_token_refused')) ?? '{}').reason;

  it('a person of the domain gets an account without a password at the first login, and the same one later', async () => {
    const { Id } = await configure();
    const person = known({ email: address('ACME.example') });

    const [first, second] = [await signIns.signIn(person), await signIns.signIn(person)];

    const [me, again] = [await first.get('/api/v1/auth/me'), await second.get('/api/v1/auth/me')];
    expect(me.body).to.deep.include({
      firstName: 'Nora',
      lastName: 'Newman',
      role: 'Member',
      scope: 'All',
    });
    expect(again.body.userGuid).to.equal(me.body.userGuid);
    const users = await usersWith(person.email);
    expect(users).to.have.length(1);
    expect(users[0]?.password_hash).to.equal('none');
    const { body: record } = await admin.get(`${providersPath}/${Id}`);
    expect(record.Identities).to.equal(1);
  });

  it('first logins of a person that two processes get at once make one account, and each of them gets tokens of it', async () => {
    const { Id } = await configure();
    const { url } = await world.startAnotherServer();
    const person = known();
    const tokens: string[] = [];
    for (let i = 0; i < 4; i++) tokens.push(await provider.signIn(person));

    // Two of them at least have found no account, and wait for the provider.
    const answers = await withConnection(world.installation.controlUrl, async holder => {
      await holder.query('begin');
      await holder.query('select from identity_providers where id = $1 for no key update', [Id]);
      const sent = tokens.map((token, i) =>
        signIns.exchange(token, world.acme, i % 2 ? url : world.url),
      );
      await eventually(async () => {
        const waiting = await controlSql(
          world,
          `select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock' and query like '%identity_providers%'`,
        );
        return waiting.length > 1;
      });
      await holder.query('commit');
      return Promise.all(sent);
    });

    const statuses = answers.map(({ status }) => status);
    expect(statuses, JSON.stringify(answers)).to.deep.equal([200, 200, 200, 200]);
    expect(await usersWith(person.email)).to.have.length(1);
  });

  it('whoever does not fit the rule gets no account, and the log says why', async () => {
    await configure({ Claims: { department: 'sales', level: 3 } });
    const fits = { department: 'sales', level: 3 };
    const sign = async ({ sub, ...claims }: ReturnType<typeof known>) =>
      signIns.exchange(await provider.sign(provider.claims(sub, claims)));
    const misfits: [object, string][] = [
      [{ ...fits, email_verified: false }, 'email_not_verified'],
      [{ ...fits, email_verified: 'true' }, 'email_not_verified'],
      [{ ...fits, email: undefined }, 'email_not_verified'],
      [{ ...fits, email: address('acme.example.org') }, 'other_domain'],
      [{ ...fits, email: address('sub.acme.example') }, 'other_domain'],
      [{ level: 3 }, 'other_claims'],
      [{ ...fits, level: '3' }, 'other_claims'],
      [{ ...fits, department: ['sales'] }, 'other_claims'],
    ];

    for (const [claims, reason] of misfits) {
      const person = known(claims);
      expectProblem(await sign(person), 401, 'invalid_id_token');
      expect(lastReason(), JSON.stringify(claims)).to.equal(reason);
      expect(await usersWith(person.email)).to.deep.equal([]);
    }
    const fitting = await sign(known(fits));
    expect(fitting.status, lastReason()).to.equal(200);
  });

  it('without a rule, and at another tenant with the same provider, nobody gets an account', async () => {
    await configure();
    await signIns.configure(world.globex);
    const person = known();

    expectProblem(await exchange(person, world.globex), 401, 'invalid_id_token');

    expect(lastReason()).to.equal('unknown_person');
    expect(await usersWith(person.email)).to.deep.equal([]);
  });

  it('an address that an account has is not taken over: the response says to link it', async () => {
    await configure();
    const invited = address();
    const invitation = { FirstName: 'N', LastName: 'N', Role: 'Member', Scope: 'All' };
    await admin.post('/api/v1/Users', { Email: invited, ...invitation });
    const confirmed = address();
    await admin.post('/api/v1/Users', { Email: confirmed, ...invitation });
    await controlSql(world, 'update users set confirmed_at = now() where email = ?', [confirmed]);

    for (const email of [invited, confirmed, confirmed.toUpperCase()]) {
      const refused = await exchange(known({ email }));
      expectProblem(refused, 401, 'invalid_id_token');
      expect(refused.body.detail).to.include('/api/v1/auth/identities');
      expect(await usersWith(email)).to.have.length(1);
    }
  });

  it('a registration that nobody has confirmed does not keep its owner out', async () => {
    await configure();
    const email = address();
    await controlSql(
      world,
      `insert into users (tenant_id, role_id, email, password_hash, first_name, last_name, scope)
       select ?, id, ?, 'somebody', 'Mal', 'Lory', 'All' from roles where tenant_id = ? and name = 'Member'`,
      [world.acme.id, email, world.acme.id],
    );

    const person = known({ email });
    const client = await signIns.signIn(person);

    expect((await client.get('/api/v1/auth/me')).body.firstName).to.equal('Nora');
    expect((await usersWith(email))[0]?.password_hash).to.equal('none');
  });

  it('a role that has got more permissions than the maker of the rule had gives nobody an account', async () => {
    const held = ['users.manage', 'full.read'];
    const role = await addRole(admin, ['full.read']);
    await configure({ Role: role.Name });
    await controlSql(
      world,
      'update identity_providers set creates_permissions = ? where tenant_id = ?',
      [`{${held.join(',')}}`, world.acme.id],
    );
    expect((await exchange(known())).status).to.equal(200);

    const Permissions = ['full.read', 'full.manage'];
    await admin.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions });
    const person = known();
    expectProblem(await exchange(person), 401, 'invalid_id_token');
    expect(lastReason()).to.equal('rights_grown');
    expect(await usersWith(person.email)).to.deep.equal([]);

    await admin.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions: ['full.read'] });
    expect((await exchange(person)).status).to.equal(200);
  });

  it('a rule that is changed while it makes an account makes none by what it was', async () => {
    const { Id } = await configure();
    const person = known();
    const idToken = await provider.signIn(person);
    const change = `
      update identity_providers set creates_domains = creates_domains || '{b.example}'::text[]
       where id = $1`;

    const refused = await withConnection(world.config.databaseUrl ?? '', async client => {
      await client.query('begin');
      await client.query(change, [Id]);
      const exchanged = signIns.exchange(idToken);
      await eventually(async () => (await readLockWaiters(client)).length > 0);
      await client.query('commit');
      return exchanged;
    });

    expectProblem(refused, 401, 'invalid_id_token');
    expect(lastReason()).to.equal('no_rule');
    expect(await usersWith(person.email)).to.deep.equal([]);
    expect((await signIns.exchange(idToken)).status, 'the token is good still').to.equal(200);
  });

  it('an ID token of before a logout makes no account, and one of after it does', async () => {
    const { Guid } = await configure();
    const { sub, ...claims } = known();
    const before = await provider.signIn({ sub, ...claims });
    const logout = await provider.sign(provider.logoutClaims({ sub }));
    const { status } = await fetch(`${world.url}/api/v1/auth/logout/${Guid}`, {
      method: 'POST',
      body: new URLSearchParams({ logout_token: logout }),
    });
    expect(status).to.equal(200);

    expectProblem(await signIns.exchange(before), 401, 'invalid_id_token');

    expect(lastReason()).to.equal('logged_out');
    expect(await usersWith(claims.email)).to.deep.equal([]);
    const iat = Math.floor(Date.now() / 1_000) + 1;
    const after = await provider.sign(provider.claims(sub, { ...claims, iat }));
    expect((await signIns.exchange(after)).status).to.equal(200);
  });

  it('a rule with an entity that is gone gives nobody an account', async () => {
    const entity = await admin.post('/api/v1/Entities', { Name: 'Shop', EntityType: 'customer' });
    expect(entity.status, JSON.stringify(entity.body)).to.equal(201);
    await configure({ Scope: 'Self', EntityId: entity.body.Id });
    const client = await signIns.signIn(known());
    expect((await client.get('/api/v1/auth/me')).body).to.deep.include({
      userEntityId: entity.body.Id,
      entityType: 'customer',
    });

    await controlSql(
      world,
      `update identity_providers set creates_entity_since = creates_entity_since - interval '1 second'`,
    );
    expectProblem(await exchange(known()), 401, 'invalid_id_token');
    expect(lastReason()).to.equal('entity_gone');
  });

  it('a provider makes at most 100 accounts an hour', async () => {
    const { Id } = await configure();
    const first = await signIns.signIn(known());
    const { userGuid } = (await first.get('/api/v1/auth/me')).body;
    await controlSql(
      world,
      `insert into identities (tenant_id, user_id, provider_id, subject, is_by_rule)
       select tenant_id, id, ?, 'sub-' || n, true from users, generate_series(1, 99) n where guid = ?`,
      [Id, userGuid],
    );

    expectProblem(await exchange(known()), 401, 'invalid_id_token');
    expect(lastReason()).to.equal('too_many_accounts');

    await controlSql(world, `update identities set created_at = created_at - interval '1 hour'`);
    expect((await exchange(known())).status).to.equal(200);
  });

  it('a provider that is open to everybody needs a claim, and its rule is stored with one', async () => {
    const body = {
      Name: 'Google',
      Issuer: 'https://accounts.google.com',
      ClientIds: ['one'],
      CreatesUsers: { Role: 'Member', Scope: 'All', Domains: ['acme.example'], Claims: {} },
    };
    expectProblem(await admin.post(providersPath, body), 400, 'validation_failed');

    body.CreatesUsers.Claims = { hd: 'acme.example' };
    expect((await admin.post(providersPath, body)).status).to.equal(201);
  });

  it('the administrators get one mail a day with the accounts of that day', async () => {
    const textsTo = (email: string): string[] =>
      mail
        .messagesTo(email)
        .map(({ content }) => readable(content))
        .filter(text => text.includes('#accounts-at-the-first-login'));
    await controlSql(world, 'delete from account_notices');
    await configure();
    const people = [known(), known()];
    for (const person of people) await signIns.signIn(person);
    await mailsSettled(world).catch(() => {});
    expect(textsTo(world.acme.admin.email)).to.deep.equal([]);

    await controlSql(
      world,
      `update account_notices set next_attempt_at = now(), created_at = now() where kind = 'accounts_made'`,
    );
    await tryMailsNow(world);

    await eventually(() => textsTo(world.acme.admin.email).length > 0);
    const [text, ...others] = textsTo(world.acme.admin.email);
    expect(others).to.deep.equal([]);
    for (const person of people) expect(text).to.include(String(person.email));
    expect(textsTo(world.globex.admin.email)).to.deep.equal([]);
  });
});

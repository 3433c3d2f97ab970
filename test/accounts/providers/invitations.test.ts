import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useLogin } from '../../support/world.ts';
import { factorWorld } from '../auth/factors/factor-world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { expectProblem, invitation, newAddress, usersPath } from '../people/people-world.ts';
import { identitiesPath, newPerson, providersPath, signInWorld } from './provider-world.ts';

const password = 'correct horse battery staple';

describe('an invitation that an ID token accepts', () => {
  const provider = use(startProvider);
  const mail = use(startMailServer);
  const world = use(() =>
    createWorld({
      TRUSTED_PROVIDERS: provider.trusted,
      SMTP_URL: mail.url,
      RATE_LIMIT_ACCOUNT: '1000/1m',
    }),
  );
  const admin = useLogin(world, 'acme');

  before(async () => {
    for (const tenant of [world.acme, world.globex]) {
      await signInWorld(world, provider).configure(tenant);
    }
  });

  const invite = async () => {
    const email = newAddress();
    const { status } = await admin.post(usersPath, invitation({ Email: email }));
    expect(status).to.equal(201);
    return { email, token: await mail.waitForToken(email) };
  };
  const accept = (body: object, tenant = world.acme) =>
    world.anonymous.post('/api/v1/auth/reset-password', body, { 'X-Tenant': tenant.guid });

  it('its person logs in by the provider, and by no password', async () => {
    const { email, token } = await invite();
    const person = newPerson({ email });

    const accepted = await accept({ token, idToken: await provider.signIn(person) });

    expect(accepted.status, JSON.stringify(accepted.body)).to.equal(204);
    const client = await signInWorld(world, provider).signIn(person);
    expect((await client.get('/api/v1/auth/identities')).body).to.have.length(1);
    const [user] = await controlSql<{ hash: string; confirmed: boolean }>(
      world,
      'select password_hash as hash, confirmed_at is not null as confirmed from users where email = ?',
      [email],
    );
    expect(user).to.deep.equal({ hash: 'none', confirmed: true });
  });

  it('it is good once, as its ID token is', async () => {
    const [one, two] = [await invite(), await invite()];
    const idToken = await provider.signIn(newPerson());
    expect((await accept({ token: one.token, idToken })).status).to.equal(204);

    const usedToken = await accept({ token: two.token, idToken });
    const usedLink = await accept({
      token: one.token,
      idToken: await provider.signIn(newPerson()),
    });

    expectProblem(usedToken, 401, 'invalid_id_token');
    expectProblem(usedLink, 400, 'validation_failed');
    const again = await accept({ token: two.token, idToken: await provider.signIn(newPerson()) });
    expect(again.status, 'the refusals have used nothing').to.equal(204);
  });

  it('an ID token of before a logout accepts nothing, and leaves the link good, in this tenant alone', async () => {
    const [provided] = (await admin.get(providersPath)).body;
    const { email, token } = await invite();
    const person = newPerson();
    const [before, ofGlobex] = [await provider.signIn(person), await provider.signIn(person)];
    const logout = await provider.sign(provider.logoutClaims({ sub: person.sub }));
    await fetch(`${world.url}/api/v1/auth/logout/${provided.Guid}`, {
      method: 'POST',
      body: new URLSearchParams({ logout_token: logout }),
    });

    const refused = await accept({ token, idToken: before });
    const { client } = await factorWorld(world).add(world.globex);
    const linked = await client.post(identitiesPath, { idToken: ofGlobex });

    expectProblem(refused, 401, 'invalid_id_token');
    expect(linked.status, JSON.stringify(linked.body)).to.equal(201);
    expect((await accept({ token, newPassword: password })).status, email).to.equal(204);
  });

  it('an ID token that met a link that is not good is good still', async () => {
    const person = newPerson();
    const user = await addSampleUser(world, world.acme);
    await signInWorld(world, provider).link(await world.login(world.acme, user), person);
    const idToken = await provider.signIn(person);

    expectProblem(await accept({ token: 'a text', idToken }), 400, 'validation_failed');

    expect((await signInWorld(world, provider).exchange(idToken)).status).to.equal(200);
  });

  it('an account at the provider that is linked to somebody else takes no second one', async () => {
    const person = newPerson();
    const user = await addSampleUser(world, world.acme);
    await signInWorld(world, provider).link(await world.login(world.acme, user), person);
    const { token } = await invite();

    const refused = await accept({ token, idToken: await provider.signIn(person) });

    expectProblem(refused, 400, 'validation_failed');
    expect(Object.keys(refused.body.errors)).to.deep.equal(['idToken']);
    expect((await accept({ token, newPassword: password })).status).to.equal(204);
  });

  it('its link is good in its own tenant only, whose provider may be that of another one', async () => {
    const { token } = await invite();

    const elsewhere = await accept(
      { token, idToken: await provider.signIn(newPerson()) },
      world.globex,
    );

    expectProblem(elsewhere, 400, 'validation_failed');
    const idToken = await provider.signIn(newPerson());
    expect((await accept({ token, idToken })).status).to.equal(204);
  });

  it('a link for a new password takes no ID token: it links nothing to an account', async () => {
    const { email } = await addSampleUser(world, world.acme);
    await accept({ email });
    const token = await mail.waitForToken(email);

    const refused = await accept({ token, idToken: await provider.signIn(newPerson()) });

    expectProblem(refused, 400, 'validation_failed');
    expect((await accept({ token, newPassword: password })).status).to.equal(204);
  });

  it('a body has one of a password and an ID token', async () => {
    const { token } = await invite();
    const idToken = await provider.signIn(newPerson());

    const both = await accept({ token, idToken, newPassword: password });
    const neither = await accept({ token });
    const alone = await accept({ idToken });

    expect(Object.keys(both.body.errors)).to.deep.equal(['idToken']);
    expect(Object.keys(neither.body.errors)).to.deep.equal(['newPassword']);
    expect(Object.keys(alone.body.errors)).to.deep.equal(['token']);
  });

  it('the person is the actor in the audit log, and is told of the identity by mail', async () => {
    const { email, token } = await invite();
    await accept({ token, idToken: await provider.signIn(newPerson()) });

    const { body: users } = await admin.get(`${usersPath}?filter[Email]=${email}`);
    const { body: entries } = await admin.get(
      `/api/v1/AuditLog?resource=User&key=${users[0].Id}&limit=1`,
    );

    expect(entries[0].UserId).to.equal(users[0].Id);
    expect(entries[0].After.ConfirmedAt).to.be.a('string');
    await eventually(() =>
      mail.noticesTo(email).some(text => /sign-in by a provider was added/.test(text)),
    );
  });
});

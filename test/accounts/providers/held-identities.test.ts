import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { factorWorld, type Person } from '../auth/factors/factor-world.ts';
import { expectProblem } from '../people/people-world.ts';
import { identitiesPath, newPerson, signInWorld } from './provider-world.ts';

const resetPath = '/api/v1/auth/reset-password';

describe('identities and their mails', () => {
  const mail = use(startMailServer);
  const provider = use(startProvider);
  const world = use(() => createWorld({ SMTP_URL: mail.url, TRUSTED_PROVIDERS: provider.trusted }));
  const signIns = signInWorld(world, provider);
  let people: ReturnType<typeof factorWorld>;

  before(async () => {
    people = factorWorld(world);
    await signIns.configure(world.acme);
  });

  const resetPassword = async (person: Person): Promise<Person> => {
    const { email, tenant } = person;
    const headers = { 'X-Tenant': tenant.guid };
    const before = mail.messagesTo(email).length;
    await world.anonymous.post(resetPath, { email }, headers);
    const token = await mail.waitForToken(email, before + 1);
    const password = `a new password ${randomBytes(6).toString('hex')}`;
    const body = { token, newPassword: password };
    expect((await world.anonymous.post(resetPath, body, headers)).status).to.equal(204);
    return { ...person, password };
  };
  const logIn = async (person: Person): Promise<Client> => {
    const { status, body } = await people.login(person);
    expect(status, JSON.stringify(body)).to.equal(200);
    return new Client(world.url, body);
  };

  it('a new password by a link holds the identities of the last 30 days until the person confirms them', async () => {
    const { person, client } = await people.add(world.acme);
    const [old, recent] = [newPerson(), newPerson()];
    const oldId = await signIns.link(client, old);
    const recentId = await signIns.link(client, recent);
    await controlSql(
      world,
      `update identities set created_at = now() - interval '31 days' where id = ?`,
      [oldId],
    );

    const renewed = await resetPassword(person);

    expect((await signIns.exchange(await provider.signIn(old))).status).to.equal(200);
    const held = await signIns.exchange(await provider.signIn(recent));
    expectProblem(held, 401, 'invalid_id_token');

    const byProvider = await signIns.signIn(old);
    const path = `${identitiesPath}/${recentId}/confirm`;
    expectProblem(await byProvider.post(path), 403, 'verification_required');

    const loggedIn = await logIn(renewed);
    const { body: identities } = await loggedIn.get(identitiesPath);
    expect(identities.map((each: { isHeld?: true }) => each.isHeld)).to.deep.equal([
      undefined,
      true,
    ]);
    await eventually(async () => {
      const { body } = await loggedIn.get('/api/v1/auth/logins?filter[Outcome]=failed');
      return body[0]?.FailureReason === 'identity_held';
    });
    expect((await loggedIn.post(path)).status).to.equal(204);
    expect((await signIns.exchange(await provider.signIn(recent))).status).to.equal(200);
  });

  it('the mail on a new password by a link names the identities that stay, and those that are held', async () => {
    const { person, client } = await people.add(world.acme);
    const oldId = await signIns.link(client, newPerson({ email: 'old@acme.example' }));
    await signIns.link(client, newPerson({ email: 'recent@acme.example' }));
    await controlSql(
      world,
      `update identities set created_at = now() - interval '31 days' where id = ?`,
      [oldId],
    );

    await resetPassword(person);

    const text = await eventually(() =>
      mail.noticesTo(person.email).find(each => each.includes('was changed')),
    );
    expect(text).to.match(/sign-ins by a provider stay[^:]*:\s+old@acme.example, Staff/);
    expect(text).to.match(
      /refused until you log in and confirm them:\s+recent@acme.example, Staff/,
    );
  });

  it('a person gets a mail on an identity that is linked, and on one that is unlinked, and a neighbour none', async () => {
    const { person, client } = await people.add(world.acme);
    const { person: neighbour } = await people.add(world.globex);
    const id = await signIns.link(client, newPerson({ email: 'nora@login.example' }));
    await client.delete(`${identitiesPath}/${id}`);

    await eventually(() => mail.noticesTo(person.email).length === 2);
    await mailsSettled(world);
    const [linked, unlinked] = mail.noticesTo(person.email);
    expect(linked).to.include('Added: nora@login.example, Staff');
    expect(unlinked).to.include('Removed: nora@login.example, Staff');
    expect(mail.noticesTo(neighbour.email)).to.deep.equal([]);
  });
});

import { randomInt } from 'node:crypto';
import { expect } from 'chai';
import { createRegistration } from '../../src/auth/registration-token.ts';
import { removeUnconfirmed } from '../../src/auth/remove-expired.ts';
import { addClient } from '../../src/operator/people/clients.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { announcedMs, eventually } from '../support/eventually.ts';
import { readLockWaiters } from '../support/lock-waiters.ts';
import { startMailServer } from '../support/mail-server.ts';
import { use } from '../support/use.ts';
import { controlSql, createWorld } from '../support/world.ts';
import { addSampleUser } from './sample-users.ts';

describe('expired tokens and users who never confirm', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '3/15m' }));

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration,legacyTokens}' where id = ?`, [
      world.acme.id,
    ]);
  });

  const count = async (table: string): Promise<number> =>
    Number((await controlSql<{ count: string }>(world, `select count(*) from ${table}`))[0]?.count);
  const account = (path: string, body: object) =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': world.acme.guid });
  const register = (email: string) =>
    account('register', { email, password: 'correct horse battery', firstName: 'Nora', lastName: 'Newman' });

  it('a 21st legacy token of a client ends the oldest one, and removes up to 100 expired ones', async () => {
    const user = await addSampleUser(world, world.acme);
    const { id, secret } = await addClient(world.installation, 'acme', user.email, 'Old program');
    const headers = { Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}` };
    const generate = async (): Promise<string> => {
      const { status, body } = await world.anonymous.get('/api/Data/GenerateToken', headers);
      expect(status).to.equal(200);
      return body.token;
    };
    const status = async (token: string) => (await world.anonymous.withToken(token).get('/api/v1/auth/me')).status;
    await eventually(async () => (await world.anonymous.get('/api/Data/GenerateToken', headers)).status === 200);
    const [first, ...others] = await Promise.all(Array.from({ length: 19 }, generate));
    await controlSql(
      world,
      `update legacy_tokens set created_at = now() - interval '1 day' where hash = sha256(?::bytea)`,
      [Buffer.from(first ?? '')],
    );
    expect(await count('legacy_tokens')).to.equal(20);
    expect(await status(first ?? '')).to.equal(200);
    await Promise.all([generate(), generate()]);
    expect(await count('legacy_tokens')).to.equal(20);
    await eventually(async () => (await status(first ?? '')) === 401, announcedMs);
    expect(await status(others.at(-1) ?? '')).to.equal(200);

    await controlSql(
      world,
      `insert into legacy_tokens (hash, tenant_id, user_id, client_id, expires_at)
         select sha256(i::text::bytea), tenant_id, user_id, id, now() - interval '1 s'
           from api_clients, generate_series(1, 150) i`,
    );
    await generate();
    expect(await count('legacy_tokens where expires_at <= now()')).to.equal(50);
    await generate();
    expect(await count('legacy_tokens')).to.equal(20);
  });

  it('a request for a mail removes expired mail tokens', async () => {
    const users = await Promise.all([1, 2].map(() => addSampleUser(world, world.acme)));
    for (const { email } of users) {
      await account('reset-password', { email });
      await mail.waitForToken(email);
    }
    await controlSql(world, `update mail_tokens set expires_at = now() - interval '1 s'`);
    const { email } = await addSampleUser(world, world.acme);
    await account('reset-password', { email });
    await mail.waitForToken(email);
    expect(await count('mail_tokens')).to.equal(1);
  });

  it('a registration removes users who did not confirm within a day, and no other users', async () => {
    const [late, again, disabled, withClient] = ['late', 'again', 'disabled', 'client'].map(
      name => `${name}@people.test`,
    );
    for (const email of [late, again, disabled, withClient] as string[]) {
      await register(email);
      await mail.waitForToken(email);
    }
    await controlSql(world, `update users set created_at = now() - interval '25 hours'`);
    await controlSql(world, `update registrations set expires_at = now() - interval '1 s'`);
    await controlSql(world, 'update users set disabled_at = now() where email = ?', [disabled]);
    await controlSql(
      world,
      `insert into api_clients (id, tenant_id, user_id, name, secret_hash)
         select 'unconfirmed', tenant_id, id, 'x', '' from users where email = ?`,
      [withClient],
    );
    const confirmed = await count('users where confirmed_at is not null');
    await register(again as string);
    await mail.waitForToken(again as string, 2);
    const left = await controlSql<{ email: string }>(
      world,
      `select email from users where email like '%@people.test' order by 1`,
    );
    expect(left.map(({ email }) => email)).to.deep.equal([again, withClient, disabled]);
    expect(await count('registrations')).to.equal(1);
    expect(await count('users where confirmed_at is not null')).to.equal(confirmed);
    // Who was removed can register again.
    await register(late as string);
    await mail.waitForToken(late as string, 2);
  });

  it('a user who registers again while expired users are removed stays, and the new token confirms', async () => {
    const [barrier, email] = ['barrier@people.test', 'returning@people.test'];
    for (const address of [barrier, email]) {
      await register(address);
      await mail.waitForToken(address);
    }
    await controlSql(
      world,
      `update users set created_at = now() - case email when ? then interval '26 hours' else interval '25 hours' end
        where email in (?, ?)`,
      [barrier, barrier, email],
    );
    await controlSql(
      world,
      `update registrations r set expires_at = now() - interval '1 s'
         from users u where u.id = r.user_id and email = ?`,
      [email],
    );
    const [user] = await controlSql<{ id: number }>(world, 'select id from users where email = ?', [email]);
    // Reading registrations waits for the lock, except for a superuser: this holds the removal after its snapshot.
    const key = randomInt(2 ** 31);
    const { controlUrl } = world.installation;
    await withConnection(controlUrl, client =>
      client.query(`
        create function wait_for_test() returns boolean language plpgsql as
          $$ begin perform pg_advisory_xact_lock_shared(${key}); return true; end $$;
        create policy wait_for_test on registrations using (wait_for_test());
        alter table registrations enable row level security`),
    );
    try {
      await withConnection(controlUrl, async holder => {
        await holder.query('select pg_advisory_lock($1)', [key]);
        const [{ role } = { role: '' }] = await controlSql<{ role: string }>(
          world,
          `select current_database() || '_service' as role`,
        );
        const removal = world.control.em.fork().transactional(async em => {
          await em.execute(`set local role "${role}"`);
          await removeUnconfirmed(em);
        });
        await eventually(async () => (await readLockWaiters(holder)).length === 1);
        const data = { passwordHash: 'x', firstName: 'Nora', lastName: 'Newman', actor: null };
        const token = await world.control.em.fork().transactional(async em => {
          await em.execute('select from users where id = ? for update', [user?.id]);
          return createRegistration(em, { id: Number(user?.id), tenantId: world.acme.id }, data);
        });
        await holder.query('select pg_advisory_unlock($1)', [key]);
        await removal;
        expect(await count(`users where email = '${email}'`)).to.equal(1);
        expect((await account('confirm', { token })).status).to.equal(204);
      });
    } finally {
      await withConnection(controlUrl, client =>
        client.query(`
          alter table registrations disable row level security;
          drop policy wait_for_test on registrations;
          drop function wait_for_test`),
      );
    }
  });

  it('after 3 mails in 15 minutes an account gets the same response, no mail, and keeps its last token', async () => {
    const { email } = await addSampleUser(world, world.acme);
    const responses = [];
    for (let i = 1; i <= 3; i++) {
      responses.push(await account('reset-password', { email }));
      await mail.waitForToken(email, i);
    }
    const token = await mail.waitForToken(email, 3);
    responses.push(await account('reset-password', { email: email.toUpperCase() }));
    const another = await addSampleUser(world, world.acme);
    await account('reset-password', { email: another.email });
    await mail.waitForToken(another.email); // sent later than a fourth mail would have been
    expect(mail.messagesTo(email)).to.have.length(3);
    for (const { status, body } of responses) expect([status, body]).to.deep.equal([202, { status: 'accepted' }]);
    const password = { token, newPassword: 'a new password of mine' };
    expect((await account('reset-password', password)).status).to.equal(204);

    const unknown = 'flooded@people.test';
    for (let i = 1; i <= 4; i++) expect((await register(unknown)).status).to.equal(202);
    await eventually(() => mail.messagesTo(unknown).length === 3);
    await register('after@people.test');
    await mail.waitForToken('after@people.test');
    expect(mail.messagesTo(unknown)).to.have.length(3);
    world.clock.monotonicOffsetMs += 901_000;
    await register(unknown);
    await mail.waitForToken(unknown, 4);
  });
});

import { randomInt } from 'node:crypto';
import { expect } from 'chai';
import { linkToken, newLink } from '../../../src/accounts/mails/mail-link.ts';
import { removeUnconfirmed } from '../../../src/accounts/mails/remove-old-deliveries.ts';
import { transactControl } from '../../../src/control/database.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { addSampleUser } from './sample-users.ts';

describe('expired tokens and users who never confirm', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '3/15m' }));

  before(async () => {
    await controlSql(
      world,
      `update tenants set features = '{selfRegistration,legacyTokens}' where id = ?`,
      [world.acme.id],
    );
  });
  afterEach(async () => {
    await mailsSettled(world);
    for (const table of ['legacy_tokens', 'api_clients', 'mail_deliveries', 'registrations']) {
      await controlSql(world, `delete from ${table}`);
    }
    await controlSql(world, `delete from users where email like '%@people.test'`);
  });

  const count = async (table: string): Promise<number> =>
    Number((await controlSql<{ count: string }>(world, `select count(*) from ${table}`))[0]?.count);
  const account = (path: string, body: object) =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': world.acme.guid });
  const register = (email: string) =>
    account('register', {
      email,
      password: 'correct horse battery',
      firstName: 'Nora',
      lastName: 'Newman',
    });

  it('a 21st legacy token of a client ends the oldest one, and removes up to 100 expired ones', async () => {
    const user = await addSampleUser(world, world.acme);
    const { id, secret } = await addClient(world.installation, 'acme', user.email, 'Old program');
    const headers = { Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}` };
    const generate = async (): Promise<string> => {
      const { status, body } = await world.anonymous.get('/api/Data/GenerateToken', headers);
      expect(status).to.equal(200);
      return body.token;
    };
    const status = async (token: string) =>
      (await world.anonymous.withToken(token).get('/api/v1/auth/me')).status;

    await eventually(
      async () => (await world.anonymous.get('/api/Data/GenerateToken', headers)).status === 200,
    );

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

  it('a request for a mail removes deliveries whose links ended a month ago, and keeps later ones', async () => {
    const users = await Promise.all([1, 2].map(() => addSampleUser(world, world.acme)));
    for (const { email } of users) {
      await account('reset-password', { email });
      await mail.waitForToken(email);
    }

    await controlSql(
      world,
      `update mail_deliveries set expires_at = now() - case user_id when ? then interval '30 days' else interval '29 days' end`,
      [users[0]?.id],
    );

    const { email } = await addSampleUser(world, world.acme);
    await account('reset-password', { email });
    await mail.waitForToken(email);
    await mailsSettled(world);

    expect(await count('mail_deliveries')).to.equal(2);
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
    await mailsSettled(world);
    await controlSql(world, `update mail_deliveries set expires_at = now() - interval '1 s'`);
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

    // A user who was removed can register again.
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
      `update mail_deliveries d set expires_at = now() - interval '1 s'
         from users u where u.id = d.user_id and email = ?`,
      [email],
    );
    await mailsSettled(world);

    const [user] = await controlSql<{ id: number; guid: string }>(
      world,
      'select id, guid from users where email = ?',
      [email],
    );

    // Reading deliveries waits for the lock in the transaction of the removal: this holds it
    // after its snapshot.
    const key = randomInt(2 ** 31);
    const { controlUrl } = world.installation;
    await withConnection(controlUrl, client =>
      client.query(`
        create function wait_for_test() returns boolean language plpgsql as
          $$ begin
            if current_setting('test.waits', true) = 'on' then
              perform pg_advisory_xact_lock_shared(${key});
            end if;
            return true;
          end $$;
        create policy wait_for_test on mail_deliveries using (wait_for_test());
        alter table mail_deliveries enable row level security`),
    );

    try {
      await withConnection(controlUrl, async holder => {
        await holder.query('select pg_advisory_lock($1)', [key]);
        const [{ role } = { role: '' }] = await controlSql<{ role: string }>(
          world,
          `select current_database() || '_service' as role`,
        );

        const removal = transactControl(world.control, async query => {
          await query('', `set local role "${role}"`, []);
          await query('', `set local test.waits = 'on'`, []);
          await removeUnconfirmed(query);
        });
        await eventually(async () => (await readLockWaiters(holder)).length === 1);

        const link = newLink();
        await controlSql(
          world,
          `with delivery as (
             insert into mail_deliveries (link, tenant_id, user_id, kind, state, expires_at)
             values (?, ?, ?, 'registration', 'sent', now() + interval '1 day') returning id)
           insert into registrations (delivery_id, password_hash, first_name, last_name)
           select id, 'x', 'Nora', 'Newman' from delivery`,
          [link, world.acme.id, user?.id],
        );

        const token = linkToken(world.installation.secrets, {
          link,
          kind: 'registration',
          tenantGuid: world.acme.guid,
          userGuid: user?.guid ?? '',
        });

        await holder.query('select pg_advisory_unlock($1)', [key]);
        await removal;

        expect(await count(`users where email = '${email}'`)).to.equal(1);
        expect((await account('confirm', { token })).status).to.equal(204);
      });
    } finally {
      await withConnection(controlUrl, client =>
        client.query(`
          alter table mail_deliveries disable row level security;
          drop policy wait_for_test on mail_deliveries;
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
    await mail.waitForToken(another.email);
    await mailsSettled(world);

    expect(mail.messagesTo(email)).to.have.length(3);
    for (const { status, body } of responses) {
      expect(status).to.equal(202);
      expect(body).to.deep.equal({ status: 'accepted' });
    }

    const password = { token, newPassword: 'a new password of mine' };
    expect((await account('reset-password', password)).status).to.equal(204);

    const unknown = 'flooded@people.test';
    for (let i = 1; i <= 4; i++) {
      expect((await register(unknown)).status).to.equal(202);
      await mailsSettled(world);
    }
    expect(mail.messagesTo(unknown)).to.have.length(3);

    const limited = world.logs
      .map(line => JSON.parse(line))
      .filter(({ event }) => event === 'mail_limited');
    expect(limited.map(({ kind, tenant }) => [kind, tenant])).to.deep.equal([
      ['reset', world.acme.guid],
      ['registration', world.acme.guid],
    ]);

    await controlSql(
      world,
      `update mail_deliveries set settled_at = settled_at - interval '15 minutes'`,
    );
    await register(unknown);
    await mail.waitForToken(unknown, 4);
  });
});

import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { eventually } from '../../support/eventually.ts';
import { readable, startMailServer } from '../../support/mail-server.ts';
import { mailsSettled, tryMailsNow } from '../../support/mails.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant, useLogin } from '../../support/world.ts';
import { addSampleUser, type SampleUser } from '../auth/sample-users.ts';
import { usersPath } from '../people/people-world.ts';
import { storeKey, storeProgram } from '../programs/stored-programs.ts';
import { setIsolated } from './set-isolated.ts';

const dayMs = 24 * 3_600_000;

describe('notices of programs, keys and people', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_PEOPLE: '1000/1m' }));
  const admin = useLogin(world, 'acme');

  beforeEach(async () => {
    world.clock.offsetSeconds = 0;
    await controlSql(world, 'delete from account_notices');
    await controlSql(world, `delete from users where kind = 'program'`);
  });

  const addManager = (tenant = world.acme) =>
    addSampleUser(world, tenant, { role: 'Administrator' });
  /** The notices that a person has got, without mails on webhooks that the service disables. */
  const textsTo = ({ email }: Pick<SampleUser, 'email'>): string[] =>
    mail
      .messagesTo(email)
      .map(({ content }) => readable(content))
      .filter(text => text.includes('/docs/guide/programs#'));
  const disable = async ({ id }: Pick<SampleUser, 'id'>, client = admin) => {
    const response = await client.post(`${usersPath}/${id}/disable`);
    expect(response.status, JSON.stringify(response.body)).to.equal(200);
    return response.body;
  };
  /** Stores a key that a person has made, of a program of its own. */
  const addKeyOf = async ({ id }: Pick<SampleUser, 'id'>, tenant: TestTenant = world.acme) =>
    storeKey(world, tenant, (await storeProgram(world, tenant)).id, { madeBy: id });

  /** Runs a statement as superuser, outside of the databases of the world. */
  const onServer = (text: string) =>
    withConnection(postgresUrl(), async client => void (await client.query(text)));
  /** Waits until the notices of everything that was written have come to an end. */
  const settled = () => mailsSettled(world);

  describe('when a person is disabled', () => {
    /** A person who has made a program, a key of it, and a webhook. */
    const addMaker = async () => {
      const person = await addManager();
      const client = await world.login(world.acme, person);
      const program = await client.post('/api/v1/Programs', {
        Name: 'Night <b>import</b>',
        Role: 'Member',
        Scope: 'All',
      });
      const key = await client.post(`/api/v1/Programs/${program.body.Id}/keys`, {});
      const Url = 'https://hooks.example.com:8443/secret-path';
      const webhook = await client.post('/api/v1/Webhooks', { Url, Resources: ['Country'] });
      expect([program.status, key.status, webhook.status]).to.deep.equal([201, 201, 201]);

      return { person, key: key.body.Key as string, prefix: key.body.Prefix as string };
    };

    for (const [way, disableBy] of [
      ['the API', async (person: SampleUser) => (await disable(person)).IsDisabled],
      [
        'the command line',
        async ({ email }: SampleUser) => {
          const args = ['user', 'disable', 'acme', email, '--yes'];
          return (await runCommand('scripts/tenant.ts', args, world.environment)).code === 0;
        },
      ],
    ] as const) {
      it(`each administrator of the tenant gets a mail that names what a person has made who is disabled by ${way}`, async () => {
        const { person, key, prefix } = await addMaker();
        const other = await addManager();
        const member = await addSampleUser(world, world.acme);
        const stranger = await addManager(world.globex);

        expect(await disableBy(person)).to.equal(true);

        const [text] = await eventually(() => textsTo(other).length === 1 && textsTo(other));
        await settled();
        expect(textsTo(world.acme.admin).at(-1)).to.include(person.email);
        expect(text).to.include('Subject: Per Son was disabled at');
        expect(text).to.include(`${person.email}, user ${person.id}\n`);
        expect(text).to.include(`Night b import b: ${prefix}`);
        expect(text).to.include('Programs:\nNight b import b\n');
        expect(text).to.include('hooks.example.com:8443\n');
        expect(text).to.include('/docs/guide/programs#somebody-leaves');
        expect(text).to.not.include('secret-path');
        expect(text).to.not.include(key);
        for (const without of [person, member, stranger]) {
          expect(textsTo(without), without.email).to.deep.equal([]);
        }
      });
    }

    it('the mail on a disabled person names the providers of the tenant that the person has added or changed, and no others', async () => {
      const [person, other] = [await addManager(), await addManager()];
      const addProvider = async (Name: string, by: SampleUser, tenant: TestTenant) => {
        const client = await world.login(tenant, by);
        const Issuer = `https://login.example.com/${encodeURIComponent(Name)}`;
        const fields = { Name, ClientIds: ['back-office'], IsEnabled: true };
        const { status, body } = await client.post('/api/v1/IdentityProviders', {
          ...fields,
          Issuer,
        });
        expect(status, JSON.stringify(body)).to.equal(201);
        return {
          id: body.Id as number,
          change: async (changer: SampleUser) => {
            const changed = await (await world.login(tenant, changer)).put(
              `/api/v1/IdentityProviders/${body.Id}`,
              { ...fields, SecondFactor: 'never', SessionHours: 8, CreatesUsers: null },
            );
            expect(changed.status, JSON.stringify(changed.body)).to.equal(200);
          },
        };
      };
      await addProvider('Added', person, world.acme);
      await addProvider('Of others', other, world.acme);
      await (await addProvider('Changed', other, world.acme)).change(person);
      const { id } = await addProvider('Removed', person, world.acme);
      const manager = await world.login(world.acme);
      expect((await manager.delete(`/api/v1/IdentityProviders/${id}`)).status).to.equal(204);
      await addProvider('Of Globex', await addManager(world.globex), world.globex);

      await disable(person);

      const [text] = await eventually(() => textsTo(other).length === 1 && textsTo(other));
      expect(text).to.match(/Providers of sign-ins, [^:]+:\nAdded\nChanged\n\n/);
      expect(text).to.not.match(/Of others|Removed|Of Globex/);
      await controlSql(world, 'delete from identity_providers');
    });

    it('nobody gets a mail on a person who has made nothing that is left', async () => {
      const [nothing, revoked, maker] = [
        await addSampleUser(world, world.acme),
        await addManager(),
        await addManager(),
      ];
      const { id } = await addKeyOf(revoked);
      await controlSql(world, 'update program_keys set revoked_at = now() where id = ?', [id]);
      await addKeyOf(maker);
      const other = await addManager();

      await disable(nothing);
      await disable(revoked);
      await disable(maker);

      await eventually(() => textsTo(other).length > 0);
      await settled();
      expect(textsTo(other)).to.have.length(1);
      expect(textsTo(other)[0]).to.include(maker.email);
    });

    it('a person who is disabled once more, or enabled, or whose disabling is only tried, causes no further mail', async () => {
      const [maker, tried, other] = [await addManager(), await addManager(), await addManager()];
      await addKeyOf(maker);
      await addKeyOf(tried);

      const args = ['user', 'disable', 'acme', tried.email, '--dry-run'];
      expect((await runCommand('scripts/tenant.ts', args, world.environment)).code).to.equal(0);
      await disable(maker);
      await eventually(() => textsTo(other).length === 1);
      await disable(maker);
      expect((await admin.post(`${usersPath}/${maker.id}/enable`)).status).to.equal(200);
      await disable(maker);

      await eventually(() => textsTo(other).length === 2);
      await settled();
      expect(textsTo(other)).to.have.length(2);
      expect(textsTo(other).join()).to.not.include(tried.email);
    });

    it('a person gets ten mails of a kind in a day at most, and the tenth says so', async () => {
      const other = await addManager();
      const makers = await Promise.all(Array.from({ length: 12 }, () => addManager()));
      for (const maker of makers) await addKeyOf(maker);
      // before the first mail: otherwise they would get mails on each other
      await controlSql(world, 'update users set disabled_at = now() where id = any (?::bigint[])', [
        `{${makers.map(({ id }) => id).join(',')}}`,
      ]);

      await controlSql(
        world,
        `insert into account_notices (tenant_id, kind, details)
         select tenant_id, 'person_disabled', jsonb_build_object('userId', id)
           from users where id = any (?::bigint[])`,
        [`{${makers.map(({ id }) => id).join(',')}}`],
      );

      await eventually(() => textsTo(other).length === 10);
      await settled();
      const texts = textsTo(other);
      expect(texts).to.have.length(10);
      expect(texts.map(text => text.includes('more are not sent'))).to.deep.equal([
        ...Array.from({ length: 9 }, () => false),
        true,
      ]);

      await controlSql(
        world,
        `update account_notices set created_at = created_at - interval '1 day'`,
      );
      const later = await addManager();
      await addKeyOf(later);
      await disable(later);
      await eventually(() => textsTo(other).length === 11);
      expect(textsTo(other)[10]).to.not.include('more are not sent');
    });

    it('while the database of the tenant cannot be read, the mail waits ten minutes, and then says that webhooks are not known', async () => {
      const [maker, other] = [await addManager(), await addManager()];
      await addKeyOf(maker);
      const allow = (isAllowed: boolean) =>
        onServer(`alter database "${world.acme.database}" allow_connections ${isAllowed}`);
      await allow(false);

      try {
        await onServer(
          `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${world.acme.database}'`,
        );
        await disable(maker);
        const [waiting] = await eventually(async () => {
          const rows = await controlSql(
            world,
            `select state, reason from account_notices where reason is not null`,
          );
          return rows.length === 1 && rows;
        });
        expect(waiting).to.deep.equal({
          state: 'waiting',
          reason: 'the database of the tenant cannot be read',
        });
        expect(textsTo(other)).to.deep.equal([]);

        await controlSql(
          world,
          `update account_notices set created_at = now() - interval '11 minutes'`,
        );
        await tryMailsNow(world);

        await eventually(() => textsTo(other).length === 1);
        expect(textsTo(other)[0]).to.include('These cannot be read at the moment.');
      } finally {
        await allow(true);
      }
    });

    it('of two processes, one sends the mails, whatever both look for', async () => {
      const second = await world.startAnotherServer();
      const [maker, other] = [await addManager(), await addManager()];
      await addKeyOf(maker);

      await disable(maker, admin.at(second.url));

      await eventually(() => textsTo(other).length > 0);
      await settled();
      expect(textsTo(other)).to.have.length(1);
      await second.service.stop();
    });

    it('a tenant that is isolated sends no notice', async () => {
      const globex = await world.login(world.globex);
      const [maker, other] = [await addManager(world.globex), await addManager(world.globex)];
      await addKeyOf(maker, world.globex);
      await setIsolated(world, world.globex, true);

      try {
        await disable(maker, globex);
        await settled();

        const rows = await controlSql(
          world,
          `select state, reason from account_notices where kind = 'person_disabled'`,
        );
        expect(rows).to.deep.equal([{ state: 'refused', reason: 'the tenant is isolated' }]);
        expect(textsTo(other)).to.deep.equal([]);
      } finally {
        await setIsolated(world, world.globex, false);
      }
    });
  });

  describe('before keys end', () => {
    /** Sets the clock of the processes to an hour of a day, so many days from today, in UTC. */
    const setDay = (days: number, hour = 1): void => {
      const today = Math.floor(Date.now() / dayMs) * dayMs;
      const wanted = today + days * dayMs + hour * 3_600_000;
      world.clock.offsetSeconds = (wanted - Date.now()) / 1_000;
    };
    const dayText = (days: number): string =>
      new Date(Date.now() + days * dayMs).toISOString().slice(0, 10);
    const addKey = async (days: number, tenant: TestTenant = world.acme, name = 'Till') => {
      const { id } = await storeProgram(world, tenant, { name });
      return storeKey(world, tenant, id, { endsAt: `${dayText(days)}T10:15:00Z` });
    };

    it('each administrator gets one mail for all keys of a day, two weeks and one day before', async () => {
      const [other, stranger] = [await addManager(), await addManager(world.globex)];
      const [first, second, next] = [
        await addKey(30),
        await addKey(30, world.acme, 'Import 2'),
        await addKey(31),
      ];
      const foreign = await addKey(29, world.globex);

      setDay(15, 23);
      await eventually(() => textsTo(stranger).length === 1);
      await settled();
      expect(textsTo(stranger)[0]).to.include(`A key of a program of`).and.include(foreign.prefix);
      expect(textsTo(other)).to.deep.equal([]);

      setDay(16);
      await eventually(() => textsTo(other).length === 1);
      setDay(17);
      await eventually(() => textsTo(other).length === 2);
      setDay(29, 23);
      await eventually(() => textsTo(other).length === 3);
      await settled();

      const [weeks, nextWeeks, day] = textsTo(other);
      for (const text of [weeks, day]) {
        expect(text).to.match(/^Subject: 2 keys of programs of .* end on/m);
        expect(text).to.include(`end on ${dayText(30)}`);
        expect(text).to.include(`Till: ${first.prefix}`);
        expect(text).to.include(`Import 2: ${second.prefix}`);
        expect(text).to.include('ends at 10:15 UTC, not used');
        expect(text).to.include('/docs/guide/programs#replace-a-key');
        expect(text).to.not.include(next.prefix);
        expect(text).to.not.include(first.key);
      }
      expect(nextWeeks).to.include(next.prefix);
      expect(textsTo(stranger)).to.have.length(1);
    });

    it('a key that was revoked, or whose program is disabled, or that was made later, is not named', async () => {
      const other = await addManager();
      const [revoked, disabled, left, made] = [
        await addKey(40),
        await addKey(40, world.acme, 'Disabled'),
        await addKey(40),
        await addKey(40),
      ];
      await controlSql(world, 'update program_keys set revoked_at = now() where id = ?', [
        revoked.id,
      ]);
      await controlSql(
        world,
        `update users set disabled_at = now() where kind = 'program' and first_name = 'Disabled'`,
      );
      await controlSql(
        world,
        `update program_keys set created_at = now() + interval '27 days' where id = ?`,
        [made.id],
      );

      setDay(26, 12);
      await eventually(() => textsTo(other).length === 1);
      setDay(39, 12);
      await eventually(() => textsTo(other).length === 2);

      const [weeks, day] = textsTo(other);
      for (const text of [weeks, day]) {
        expect(text).to.include(left.prefix);
        expect(text).to.not.include(revoked.prefix);
        expect(text).to.not.include(disabled.prefix);
      }
      expect(weeks).to.not.include(made.prefix);
      expect(day).to.include(made.prefix);
    });

    it('two processes that look at once send one mail, also after a time in which none ran', async () => {
      const second = await world.startAnotherServer();
      const other = await addManager();
      await addKey(50);

      setDay(40);
      await eventually(() => textsTo(other).length > 0);
      setDay(41); // both look again
      await addKey(41 + 14);
      await eventually(() => textsTo(other).length === 2);
      await settled();

      expect(textsTo(other)).to.have.length(2);
      await second.service.stop();
    });

    it('an isolated tenant gets no mail before its keys end, while another one does', async () => {
      const [isolated, other] = [await addManager(world.globex), await addManager()];
      await setIsolated(world, world.globex, true);

      try {
        await addKey(60, world.globex);
        await addKey(60);
        setDay(46);
        await eventually(() => textsTo(other).length === 1);
        await settled();

        expect(textsTo(isolated)).to.deep.equal([]);
      } finally {
        world.clock.offsetSeconds = 0;
        await setIsolated(world, world.globex, false);
      }
    });
  });

  it('a process leaves notices of a kind that it does not know to later builds', async () => {
    const [maker, other] = [await addManager(), await addManager()];
    await controlSql(
      world,
      `insert into account_notices (tenant_id, user_id, kind) values (?, ?, 'of_a_later_build')`,
      [world.acme.id, other.id],
    );
    await addKeyOf(maker);
    await disable(maker);
    await eventually(() => textsTo(other).length === 1);

    const [row] = await controlSql(
      world,
      `select state, attempts, holder from account_notices where kind = 'of_a_later_build'`,
    );
    expect(row).to.deep.equal({ state: 'waiting', attempts: 0, holder: null });
  });

  it('a notice that names an address is sent to it, and not to the address of the user', async () => {
    const other = await addManager();
    await controlSql(
      world,
      `insert into account_notices (tenant_id, user_id, address, kind, details)
       values (?, ?, 'former@acme.test', 'keys_ending', ?)`,
      [
        world.acme.id,
        other.id,
        { day: '2030-01-01', madeBefore: '2029-12-18T00:00:00Z', keys: { count: 0, items: [] } },
      ],
    );

    await eventually(() => mail.messagesTo('former@acme.test').length === 1);
    expect(textsTo(other)).to.deep.equal([]);
  });

  it('a notice that a server refuses is tried no more; doctor and the list of users say why', async () => {
    const [maker, other] = [await addManager(), await addManager()];
    await addKeyOf(maker);
    mail.refuse(other.email, { code: 550, text: '5.1.1 no such mailbox', at: 'RCPT' });

    await disable(maker);
    const reason = 'the mail server refuses the address (550 5.1.1)';
    await eventually(
      async () =>
        (await controlSql(world, 'select from account_notices where reason = ?', [reason])).length,
    );

    const { findings } = await diagnose(world.installation, { controlOnly: true });
    expect(findings.find(({ check }) => check === 'mails_refused')?.problem).to.equal(
      `1 mail to users of acme was not accepted: ${reason}`,
    );
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['user', 'list', 'acme', '--json'],
      world.environment,
    );
    const users = JSON.parse(stdout);
    const listed = (users.users ?? users).find(
      ({ email }: { email: string }) => email === other.email,
    );
    expect(listed.mail).to.equal(`refused: ${reason}`);
  });

  it('a notice that waits counts in the metrics, and doctor names it after ten minutes', async () => {
    const [maker, other] = [await addManager(), await addManager()];
    await addKeyOf(maker);
    mail.refuse(other.email, { code: 451, text: '4.7.1 come back later', at: 'RCPT' });
    await disable(maker);
    await eventually(
      async () =>
        (
          await controlSql(
            world,
            'select from account_notices where user_id = ? and reason is not null',
            [other.id],
          )
        ).length,
    );

    await controlSql(
      world,
      `update account_notices set created_at = now() - interval '11 minutes' where user_id = ?`,
      [other.id],
    );
    await settled();

    const { findings } = await diagnose(world.installation, { controlOnly: true });
    expect(findings.find(({ check }) => check === 'mails_waiting')?.problem).to.match(
      /^1 mail has waited for ten minutes: the mail server asks for patience \(451/,
    );
    await eventually(async () => {
      const metrics = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
      return /^mails_waiting 1$/m.test(await metrics.text());
    });
    mail.accept(other.email);
    await tryMailsNow(world);
    await eventually(() => textsTo(other).length === 1);
  });

  it('a notice is removed 30 days after its end, when others are written', async () => {
    const insert = (kind: string, days: number) =>
      controlSql(
        world,
        `insert into account_notices (tenant_id, kind, state, expires_at)
         values (?, ?, 'sent', now() - ? * interval '1 day')`,
        [world.acme.id, kind, days],
      );
    await insert('old', 31);
    await insert('young', 29);

    const rows = await controlSql(world, 'select kind from account_notices');
    expect(rows).to.deep.equal([{ kind: 'young' }]);
  });
});

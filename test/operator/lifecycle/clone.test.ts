import { expect } from 'chai';
import { databaseNameOf, databaseUrl } from '../../../src/control/server-urls.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import { factorWorld } from '../../accounts/auth/factors/factor-world.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { expectProblem } from '../../accounts/people/people-world.ts';
import { storeKey, storeProgram } from '../../accounts/programs/stored-programs.ts';
import { addByHand, readAddedByHand } from '../../support/added-by-hand.ts';
import { startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { startSilentProxy } from '../../support/silent-proxy.ts';
import { stopCommand } from '../../support/stopped-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant, useLogin } from '../../support/world.ts';

describe('clones of tenants', () => {
  const mails = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mails.url }));
  const admin = useLogin(world, 'acme');
  let clone: TestTenant;

  before(async () => {
    await controlSql(world, `update tenants set features = '{legacyTokens}' where slug = 'acme'`);
    await admin.post('/api/v1/EntityStatus', { Title: 'Lead' });
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await admin.post('/api/v1/Entities', {
      Name: 'Northwind',
      EntityType: 'customer',
      CurrencyId: 1,
    });
    await admin.post('/api/v1/Promotions', {
      PromoCode: 'P',
      Name: 'P',
      DiscountType: 'Percentage',
      DiscountValue: 5,
      EntityIds: [1],
    });
    await admin.post('/api/v1/Promotions/1/entity/1/used');
    await admin.post('/api/v1/Activity', { ActivityCode: 7, EntityId: 1, Comment: 'Copied' });
    await world.loginAs(world.acme, { scope: 'Self', entityId: 1, permissions: ['full.read'] });
    await addClient(world.installation, 'acme', world.acme.admin.email, 'Old program');
    await admin.post('/api/v1/Currency', { Code: 'CHF', Name: 'Franc' });
    await sql(world.acme, addByHand);
    clone = await cloneTenant(world.acme, 'copy');
  });

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);

  /** Clones a tenant. Its administrator logs in to the clone with the same password. */
  async function cloneTenant({ slug: source, admin }: TestTenant, newSlug: string) {
    const args = ['clone', source, newSlug, '--login', admin.email, '--json'];
    const { code, stdout, stderr } = await run(...args);
    expect(code, stderr).to.equal(0);
    const { id, guid, slug, database } = JSON.parse(stdout);
    const adminUrl = databaseUrl(postgresUrl(), database);
    return { id, guid, slug, database, adminUrl, admin };
  }

  it('a clone has the data of its source, and its sequences continue', async () => {
    const copy = await world.login(clone);

    for (const path of [
      'EntityStatus',
      'Currency',
      'Entities',
      'Promotions',
      'Promotions/1/entity/1/used',
    ]) {
      expect((await copy.get(`/api/v1/${path}`)).body, path).to.deep.equal(
        (await admin.get(`/api/v1/${path}`)).body,
      );
    }

    const [activity] = (await copy.get('/api/v1/Activity')).body;
    expect(activity).to.include({ ActivityCode: 7, Comment: 'Copied' });

    const created = await copy.post('/api/v1/EntityStatus', { Title: 'Next' });
    expect(created.status).to.equal(201);
    expect(created.body.Id).to.equal(5);
    expect((await copy.post('/api/v1/Activity', { ActivityCode: 8 })).body.Id).to.equal(2);
  });

  it('the activities and audit entries of a clone name users of the clone', async () => {
    const copy = await world.login(clone);
    const { userGuid } = (await copy.get('/api/v1/auth/me')).body;
    expect(userGuid).not.to.equal((await admin.get('/api/v1/auth/me')).body.userGuid);
    const entries = await sql<{ guid: string }>(
      clone,
      'select distinct user_guid as guid from audit_log where id <= 6',
    );
    expect(entries).to.deep.equal([{ guid: userGuid }]);
  });

  it('a clone has the tables and columns that were added to its source by hand, with their data and types', async () => {
    expect(await sql(clone, readAddedByHand)).to.deep.equal(await sql(world.acme, readAddedByHand));
  });

  it('a clone has the roles and users of its source, with passwords, but with other ids and guids', async () => {
    const copy = await world.login(clone);

    const shown = ({
      Id: _,
      Guid: __,
      CreatedAt: ___,
      LastLoginAt: ____,
      RoleId: _____,
      ...person
    }: Record<string, unknown>) => person;

    for (const path of ['/api/v1/Users', '/api/v1/Roles']) {
      const expected = (await admin.get(path)).body.map(shown);
      for (const each of expected) {
        if ('Email' in each && each.Email !== world.acme.admin.email) each.IsDisabled = true;
      }
      expect((await copy.get(path)).body.map(shown), path).to.deep.equal(expected);
    }
  });

  it('a clone sends no mail and refuses legacy clients, until its isolation is ended', async () => {
    const isolated = await cloneTenant(world.acme, 'isolated');
    const { email } = isolated.admin;
    const client = await addClient(world.installation, 'isolated', email, 'Test program');
    const headers = {
      Authorization: `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}`,
    };
    const requestToken = () => world.anonymous.get('/api/Data/GenerateToken', headers);
    const requestMail = () =>
      world.anonymous.post('/api/v1/auth/reset-password', { email }, { 'X-Tenant': isolated.guid });
    expect((await requestMail()).status).to.equal(202);
    await eventually(() =>
      world.logs.some(line => line.includes('mail_withheld') && line.includes(isolated.guid)),
    );
    expect(mails.messages).to.have.length(0);
    expect(world.logs.join('')).not.to.include(email);
    expect((await requestToken()).status).to.equal(410);

    const { code, stdout } = await run('isolate', 'isolated', '--off', '--json');
    expect([code, JSON.parse(stdout).isolated]).to.deep.equal([0, false]);
    const { body } = await eventually(async () => {
      const response = await requestToken();
      return response.status === 200 && response;
    });
    expect((await requestMail()).status).to.equal(202);
    await mails.waitForToken(email);
    await run('isolate', 'isolated', '--yes');
    const used = world.anonymous.withToken(body.token);
    await eventually(async () => (await used.get('/api/v1/EntityStatus')).status === 410);
  });

  it('a clone has no session, API client or token of its source, and has its own signing key', async () => {
    expect(
      (await admin.get('/api/v1/EntityStatus', { 'X-Tenant': clone.guid })).body,
    ).to.have.length(4);

    const refreshed = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken: admin.tokens?.refreshToken },
      { 'X-Tenant': clone.guid },
    );
    expect(refreshed.status).to.equal(401);

    const [counts] = await controlSql(
      world,
      `select (select count(*)::int from api_clients where tenant_id = ?) as clients,
              (select count(*)::int from signing_keys where tenant_id = ?) as keys,
              (select count(*)::int from users where tenant_id = ?) as users,
              (select count(*)::int from users where tenant_id = ?) as originals`,
      [clone.id, clone.id, clone.id, world.acme.id],
    );
    expect(counts).to.deep.equal({ clients: 0, keys: 1, users: 2, originals: 2 });
  });

  it('a clone has the programs of its source, disabled, with guids of their own and without a key, and its log names them', async () => {
    const program = await storeProgram(world, world.globex, { networks: ['10.0.0.0/8'] });
    await storeKey(world, world.globex, program.id);
    await sql(
      world.globex,
      `insert into audit_log (user_id, user_guid, action, resource, record_key, database_user)
       values ($1, $2, 'create', 'Country', 'AT', 'test')`,
      [program.id, program.guid],
    );

    const copied = await cloneTenant(world.globex, 'with-programs');

    const [copy, ...others] = await controlSql<{ id: string; guid: string; email: string }>(
      world,
      `select id, guid, email, first_name, networks::text, disabled_at is not null as disabled,
              (select count(*)::int from program_keys where program_id = u.id) as keys
         from users u where tenant_id = ? and kind = 'program'`,
      [copied.id],
    );
    expect(others).to.deep.equal([]);
    expect(copy).to.include({
      email: `program:${copy?.guid}`,
      first_name: 'Till',
      networks: '{10.0.0.0/8}',
      disabled: true,
      keys: 0,
    });
    expect(copy?.guid).not.to.equal(program.guid);
    const entries = await sql(
      copied,
      `select user_id::text as id, user_guid as guid from audit_log where record_key = 'AT'`,
    );
    expect(entries).to.deep.equal([{ id: copy?.id, guid: copy?.guid }]);
  });

  it('a clone lets nobody in by a password alone who has a second factor in its source, or a role that requires one', async () => {
    const people = factorWorld(world);
    const permissions = ['full.read'];
    const app = await people.add(world.globex, permissions);
    const { secret, recoveryCodes } = await people.addTotp(app.client);
    const passkey = await people.add(world.globex, permissions);
    await controlSql(
      world,
      `insert into factors (tenant_id, user_id, kind, name, confirmed_at) values (?, ?, 'passkey', 'Key', now())`,
      [world.globex.id, passkey.userId],
    );
    const required = await people.add(world.globex, permissions);
    await controlSql(world, 'update roles set requires_second_factor = true where id = ?', [
      required.roleId,
    ]);
    const logins = [app, passkey, required].flatMap(({ person }) => ['--login', person.email]);

    const made = await run('clone', 'globex', 'with-factors', ...logins, '--json');
    expect(made.code, made.stderr).to.equal(0);
    const tenant = { ...world.globex, guid: JSON.parse(made.stdout).guid };
    const inClone = ({ person }: typeof app) => ({ ...person, tenant });

    const refused = await people.login(inClone(app));
    expectProblem(refused, 401, 'second_factor_required');
    const { challenge } = refused.body;
    const recoveryCode = recoveryCodes[0];
    const recovered = await people.verify(inClone(app), { challenge, recoveryCode });
    expectProblem(recovered, 401, 'invalid_code');
    const code = people.code(secret);
    expect((await people.verify(inClone(app), { challenge, code })).status).to.equal(200);

    const lost = await people.login(inClone(passkey));
    expectProblem(lost, 403, 'second_factor_setup_required');
    expect(lost.body).not.to.have.property('setupToken');
    const ofRole = await people.login(inClone(required));
    expectProblem(ofRole, 403, 'second_factor_setup_required');
    expect(ofRole.body.setupToken).to.be.a('string');

    const [stored] = await controlSql<{ factors: number; same: number }>(
      world,
      `select count(*)::int as factors,
              (count(*) filter (where secret in (select secret from factors where tenant_id = ?)))::int as same
         from factors f join tenants t on t.id = f.tenant_id where t.slug = 'with-factors'`,
      [world.globex.id],
    );
    expect(stored).to.deep.equal({ factors: 1, same: 0 });
  });

  it('a clone has no login, challenge, recovery code or passkey of its source, which keeps them', async () => {
    const people = factorWorld(world);
    const { person, client, userId } = await people.add(world.globex, ['full.read']);
    await people.addTotp(client);
    await controlSql(
      world,
      `insert into factors (tenant_id, user_id, kind, name, confirmed_at, held_at)
       values (?, ?, 'passkey', 'Key', now(), now())`,
      [world.globex.id, userId],
    );
    const { challenge } = (await people.login(person)).body;
    await people.verify(person, { challenge, code: '000000' });
    const tables = ['logins', 'login_challenges', 'recovery_codes', 'wrong_codes'];
    const sources = [
      ...tables.map(table => `${table} where`),
      `factors where kind = 'passkey' and`,
    ];
    const count = (tenantId: number) =>
      Promise.all(
        sources.map(
          async source =>
            (await controlSql(world, `select from ${source} tenant_id = ?`, [tenantId])).length,
        ),
      );

    const copied = await cloneTenant(world.globex, 'without-logins');

    expect(await count(copied.id)).to.deep.equal([0, 0, 0, 0, 0]);
    for (const rows of await count(world.globex.id)) expect(rows).to.be.above(0);
  });

  it('a clone has no providers and no identities, so that no token of the source is good there', async () => {
    const [provider] = await controlSql<{ id: string }>(
      world,
      `insert into identity_providers (tenant_id, name, issuer, client_ids)
       values (?, 'Staff', 'https://login.example.com', '{one}') returning id`,
      [world.globex.id],
    );
    await controlSql(
      world,
      `insert into identities (tenant_id, user_id, provider_id, subject)
       select tenant_id, id, ?, 'one' from users where tenant_id = ? limit 1`,
      [provider?.id, world.globex.id],
    );

    const made = await run('clone', 'globex', 'without-providers', '--json');

    expect(made.code, made.stderr).to.equal(0);
    const counts = await controlSql(
      world,
      `select slug, (select count(*)::int from identity_providers p where p.tenant_id = t.id) as providers,
              (select count(*)::int from identities i where i.tenant_id = t.id) as identities
         from tenants t where slug in ('globex', 'without-providers') order by slug`,
    );
    expect(counts).to.deep.equal([
      { slug: 'globex', providers: 1, identities: 1 },
      { slug: 'without-providers', providers: 0, identities: 0 },
    ]);
  });

  it('a change of a clone does not change its source, and the reverse', async () => {
    const changed = await cloneTenant(world.acme, 'changed');
    const copy = await world.login(changed);
    await copy.put('/api/v1/EntityStatus/1', { Title: 'Changed in the copy' });
    expect((await admin.get('/api/v1/EntityStatus/1')).body.Title).to.equal('Prospect');
    const append = sql(changed, 'delete from audit_log').then(
      () => 'deleted',
      () => 'refused',
    );
    expect(await append).to.equal('refused');
  });

  it('nobody logs in to a clone but the users who were named, and the plan says so', async () => {
    const plan = await run('clone', 'acme', 'closed', '--dry-run');
    const made = await run('clone', 'acme', 'closed', '--json');
    const { guid } = JSON.parse(made.stdout);

    const login = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
      'X-Tenant': guid,
    });

    expect(plan.stdout).to.include('All of its users are disabled');
    expect(login.status).to.equal(401);
    const open = await controlSql(
      world,
      `select from users u join tenants t on t.id = tenant_id
        where t.slug = 'closed' and u.disabled_at is null`,
    );
    expect(open).to.deep.equal([]);
    const unknown = await run('clone', 'acme', 'closed-2', '--login', 'nobody@acme.test');
    expect(unknown.code).to.equal(1);
    expect(unknown.stderr).to.include('nobody@acme.test');
    const enabled = await run('user', 'enable', 'closed', world.acme.admin.email);
    expect(enabled.code, enabled.stderr).to.equal(0);
    const next = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
      'X-Tenant': guid,
    });
    expect(next.status).to.equal(200);
  });

  it('user disable, remove, password and role name the clones in which the address may log in, also those of clones', async () => {
    await world.loginAs(world.globex, {});
    await cloneTenant(world.globex, 'trial');
    const [user] = await controlSql<{ email: string }>(
      world,
      'select email from users where tenant_id = ? and email <> ?',
      [world.globex.id, world.globex.admin.email],
    );
    const email = user?.email ?? '';
    const plans = (): Promise<{ stdout: string }[]> =>
      Promise.all([
        run('user', 'disable', 'globex', email, '--dry-run'),
        run('user', 'remove', 'globex', email, '--dry-run'),
        run('user', 'password', 'globex', email, '--dry-run'),
        run('user', 'role', 'globex', email, 'Member', '--dry-run'),
      ]);
    for (const { stdout } of await plans()) {
      expect(stdout).to.include(email).and.not.include('user disable trial');
    }

    await run('user', 'enable', 'trial', email);
    const made = await run('clone', 'trial', 'trial-of-trial', '--login', email);
    expect(made.code, made.stderr).to.equal(0);

    for (const { stdout } of await plans()) {
      expect(stdout).to.include(`bin/backoffice user disable trial ${email}`);
      expect(stdout).to.include(`bin/backoffice user disable trial-of-trial ${email}`);
      expect(stdout).not.to.include('user disable globex');
    }
    const { stdout } = await run('user', 'role', 'globex', email, 'Member');
    expect(stdout).to.include(`bin/backoffice user disable trial-of-trial ${email}`);
    expect((await run('user', 'role', 'globex', email)).stdout).not.to.include('user disable');
  });

  describe('under the slug of a clone that was killed', () => {
    before(() =>
      controlSql(
        world,
        `insert into roles (tenant_id, name, permissions) values (?, 'Secret plans of acme', '{orders.read}')`,
        [world.acme.id],
      ),
    );

    /** Kills a clone of acme that has copied its users, roles and records. */
    async function killClone(slug: string): Promise<void> {
      const { email } = world.acme.admin;
      const command = await stopCommand(world, ['clone', 'acme', slug, '--login', email]);
      await command.kill();
    }

    /** Ends the session for whose lock a command waits; returns true if there is one. */
    const endLockHolder = async (): Promise<boolean> => {
      const ended = await controlSql(
        world,
        `select pg_terminate_backend(holder) from pg_stat_activity, unnest(pg_blocking_pids(pid)) as holder
          where datname = current_database() and query like 'select pg_advisory_lock%'`,
      );
      return ended.length > 0;
    };

    /** Returns everything that the control database has of a tenant, as text. */
    async function allOf(slug: string): Promise<string> {
      const rows = await controlSql(
        world,
        `select (select jsonb_agg(to_jsonb(u)) from users u where u.tenant_id = t.id) as users,
                (select jsonb_agg(to_jsonb(r)) from roles r where r.tenant_id = t.id) as roles,
                (select jsonb_agg(to_jsonb(a)) from audit_log a where a.tenant_id = t.id) as audited,
                t.name, t.isolated
           from tenants t where slug = ?`,
        [slug],
      );
      return JSON.stringify(rows);
    }

    it('another clone of the same tenant takes over no login', async () => {
      await killClone('half');

      const again = await run('clone', 'acme', 'half', '--json');

      expect(again.code, again.stderr).to.equal(0);
      const open = await controlSql(
        world,
        `select from users u join tenants t on t.id = u.tenant_id
          where t.slug = 'half' and u.disabled_at is null`,
      );
      expect(open).to.deep.equal([]);
    });

    it('a clone of another tenant shows its administrator no user, role, audit entry or record of the first one', async () => {
      await killClone('other');

      const other = await world.login(await cloneTenant(world.globex, 'other'));

      for (const path of [
        'AuditLog',
        'AuditLog?resource=User',
        'AuditLog?resource=Role',
        'Users',
        'Roles',
        'Entities',
        'Activity',
      ]) {
        const { status, body } = await other.get(`/api/v1/${path}`);
        expect(status, path).to.equal(200);
        expect(JSON.stringify(body), path).not.to.match(/acme|Northwind/);
      }
      expect(await allOf('other'))
        .to.include(world.globex.admin.email)
        .and.not.include('acme');
    });

    it('a tenant that is provisioned has no user, role, audit entry or record of the clone, and is not isolated', async () => {
      await killClone('taken');
      const provision = ['provision', 'taken', '--name', 'T', '--admin-email', 'a@taken.test'];

      const plan = await run(...provision, '--dry-run');
      const made = await run(...provision);

      expect(plan.code, plan.stderr).to.equal(0);
      expect(made.code, made.stderr).to.equal(0);
      const all = await allOf('taken');
      expect(all)
        .to.include('"isolated":false')
        .and.include('a@taken.test')
        .and.not.include('acme');
      const roles = await controlSql(
        world,
        `select r.name from roles r join tenants t on t.id = r.tenant_id where t.slug = 'taken' order by 1`,
      );
      expect(roles).to.deep.equal([{ name: 'Administrator' }, { name: 'Member' }]);
      const [tenant] = await controlSql<{ database: string }>(
        world,
        `select database_name as database from tenants where slug = 'taken'`,
      );
      const adminUrl = databaseUrl(postgresUrl(), tenant?.database ?? '');
      expect(await sql({ adminUrl }, 'select from entities')).to.deep.equal([]);
    });

    it('a clone that was paused before it adds its users adds nobody once another run has made the tenant', async () => {
      const proxy = await startSilentProxy();
      const held = proxy.hold(databaseNameOf(world.installation.controlUrl), packet =>
        packet.includes('join tenant_databases d on d.tenant_id = t.id'),
      );
      const paused = startScript('scripts/tenant.ts', ['clone', 'acme', 'paused'], {
        ...world.environment,
        DATABASE_URL: proxy.through(world.installation.controlUrl),
      });
      await eventually(() => held.isHolding);

      const other = run('provision', 'paused', '--name', 'P', '--admin-email', 'a@paused.test');
      // The run that is paused loses its lock.
      await eventually(() => endLockHolder());
      const made = await other;
      held.release();
      const { code, stderr } = await paused.ended;

      expect(made.code, made.stderr).to.equal(0);
      expect(code).to.equal(1);
      expect(stderr).to.include('it has ended');
      expect(await allOf('paused'))
        .to.include('a@paused.test')
        .and.include('"isolated":false')
        .and.not.include('acme');
      const [tenant] = await controlSql<{ database: string }>(
        world,
        `select database_name as database from tenants where slug = 'paused' and status = 'active'`,
      );
      const adminUrl = databaseUrl(postgresUrl(), tenant?.database ?? '');
      expect(await sql({ adminUrl }, 'select from entities')).to.deep.equal([]);
      await proxy.close();
    });

    it('a clone has no user, role, audit entry or record of a provision that was killed', async () => {
      const provision = [
        'provision',
        'begun',
        '--name',
        'Secret Ltd',
        '--admin-email',
        'a@begun.test',
      ];
      await (await stopCommand(world, provision)).kill();

      const made = await run('clone', 'globex', 'begun');

      expect(made.code, made.stderr).to.equal(0);
      expect(await allOf('begun'))
        .to.include('"isolated":true')
        .and.include(world.globex.admin.email)
        .and.not.match(/begun\.test|Secret Ltd/);
    });
  });

  it('a clone of a tenant that refuses passwords says that it accepts them, also when it is only planned', async () => {
    const source = await world.provision('refusing');
    const keeper = source.admin.email;
    const person = await addSampleUser(world, source);
    const clone = (newSlug: string, ...more: string[]) =>
      run('clone', 'refusing', newSlug, '--login', person.email, ...more);
    const said =
      'refusing refuses passwords. refused-copy has no providers, and accepts the passwords';
    const before = await clone('refused-copy', '--dry-run');
    expect(before.code, before.stderr).to.equal(0);
    expect(before.stdout + before.stderr).to.not.include('refuses passwords');
    await controlSql(
      world,
      `insert into sign_in_rules (tenant_id, password_logins, except_users)
       select tenant_id, 'refused', array[id] from users where tenant_id = ? and email = ?`,
      [source.id, keeper],
    );
    const login = (guid: string) =>
      world.anonymous.post('/api/v1/auth/login', person, { 'X-Tenant': guid });
    await eventually(async () => (await login(source.guid)).status === 401);

    const [plan, planned] = [
      await clone('refused-copy', '--dry-run'),
      await clone('refused-copy', '--dry-run', '--json'),
    ];
    const made = await clone('refused-copy', '--json');

    expect(plan.stdout).to.include(said);
    expect(JSON.parse(planned.stdout).sourceRefusesPasswords).to.equal(true);
    expect(made.code, made.stderr).to.equal(0);
    expect(made.stderr).to.include(said);
    expect((await login(JSON.parse(made.stdout).guid)).status).to.equal(200);
  });

  it('a clone under a used slug, or of a missing tenant, is rejected', async () => {
    for (const args of [
      ['clone', 'acme', 'globex'],
      ['clone', 'nobody', 'of-nobody'],
      ['clone', 'acme', 'copy'],
    ]) {
      expect((await run(...args)).code, args.join(' ')).to.equal(1);
    }
  });
});

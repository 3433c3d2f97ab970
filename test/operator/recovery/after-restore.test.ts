import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import { storeKey, storeProgram } from '../../accounts/programs/stored-programs.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';

describe('a restored control database', () => {
  let world: World;
  let admin: Client;
  let later: string;

  const control = async <Row extends object>(text: string): Promise<Row[]> =>
    withConnection(
      world.config.databaseUrl ?? '',
      async client => (await client.query(text)).rows as Row[],
    );

  beforeEach(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    await addClient(world.installation, 'acme', world.acme.admin.email, 'Old program');
    const program = await storeProgram(world, world.acme, { networks: ['10.0.0.0/8'] });
    await storeKey(world, world.acme, program.id);
    await world.loginAs(world.globex, { permissions: ['full.read'] });
    // The later control database: the administrator of acme is disabled, its client is revoked,
    // its program is limited, and globex is suspended.
    later = `${new URL(world.config.databaseUrl ?? '').pathname.slice(1)}_later`;
    await withConnection(postgresUrl(), async client => {
      await client.query(`create database ${later} template control_template`);
    });
    await withConnection(databaseUrl(postgresUrl(), later), async client => {
      const tenants = await control<{ guid: string; slug: string; id: string }>(
        'select guid, slug, id from tenants',
      );
      for (const { guid, slug, id } of tenants) {
        await client.query(
          `insert into tenants (id, guid, slug, name, app_id, status, server_id, database_name, role_name, role_password)
           values ($1, $2, $3::text, $3, $3, $4, 1, $3, $3, '')`,
          [id, guid, slug, slug === 'globex' ? 'suspended' : 'active'],
        );
      }
      const [user] = await control<{ guid: string; tenant: string; client: string }>(
        `select u.guid, c.tenant_id as tenant, c.id as client from api_clients c join users u on u.id = c.user_id`,
      );
      await client.query(
        `with narrowed as (
           insert into roles (tenant_id, name, permissions) values ($1, 'Member', '{full.read,users.manage}')),
         role as (insert into roles (tenant_id, name) values ($1, 'Later') returning id),
         person as (
           insert into users (guid, tenant_id, email, password_hash, first_name, last_name, role_id, disabled_at)
           select $2, $1, 'later', 'replaced', '', '', id, now() from role returning id)
         insert into api_clients (id, tenant_id, user_id, name, secret_hash, revoked_at)
         select $3, $1, id, '', '', now() from person`,
        [user?.tenant, user?.guid, user?.client],
      );
      // The program is limited to fewer networks.
      await client.query(
        `insert into users (guid, tenant_id, kind, email, password_hash, first_name, last_name, role_id, scope, networks,
                            confirmed_at)
         select $2::uuid, $1, 'program', 'program:' || $2, 'none', 'Till', '', id, 'All', '{10.1.0.0/16}', now()
           from roles where tenant_id = $1 and name = 'Member'`,
        [user?.tenant, program.guid],
      );
    });
  });
  afterEach(async () => {
    await withConnection(postgresUrl(), client =>
      client.query(`drop database if exists ${later} with (force)`),
    );
    await world.close();
  });

  it('after-restore ends sessions and access tokens, and reports no honest refresh token as stolen', async () => {
    const { refreshToken } = admin.tokens ?? {};
    await control(`insert into account_notices (tenant_id, kind) select id, 'unsent' from tenants`);
    const before = await control<{ name: string; last: string }>(
      `select sequencename as name, coalesce(last_value, 0) as last from pg_sequences where data_type = 'bigint'::regtype`,
    );

    const { code, stdout, stderr } = await runCommand(
      'scripts/control.ts',
      ['after-restore', '--yes', '--json'],
      world.environment,
    );
    expect(code, stderr).to.equal(0);

    const report = JSON.parse(stdout);
    expect(report).to.include({
      replayed: null,
      keysDisabled: 2,
      clientsRevoked: 1,
      programKeysRevoked: 1,
      mailsWithdrawn: 2,
    });
    expect(await control('select from account_notices')).to.deep.equal([]);
    expect(await control('select from program_keys where revoked_at is null')).to.deep.equal([]);
    expect(await control('select from api_clients where revoked_at is null')).to.deep.equal([]);
    expect(report.sessionsEnded).to.equal(2);

    const [open] = await control<{ sessions: number; keys: number; moved: boolean }>(
      `select (select count(*)::int from sessions where revoked_at is null) as sessions,
              (select count(*)::int from signing_keys where status = 'active') as keys,
              (select bool_and(last_value >= 1000000) from pg_sequences where data_type = 'bigint'::regtype) as moved`,
    );
    expect(open).to.deep.equal({ sessions: 0, keys: 2, moved: true });
    expect(before.length).to.equal(report.sequencesMoved);

    await eventually(async () => (await admin.get('/api/v1/EntityStatus')).status === 401);
    const refresh = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken },
      { 'X-Tenant': world.acme.guid },
    );
    expect(refresh.status).to.equal(401);
    expect(world.logs.join('')).not.to.include('refresh_token_reused');

    const again = await world.login(world.acme);
    expect((await again.get('/api/v1/EntityStatus')).status).to.equal(200);
  });

  it('after-restore disables again the users, clients and tenants that are disabled in the replaced control database, and the users that it does not have', async () => {
    await control('update api_clients set revoked_at = null');
    const enabled = await control(
      `select from users where disabled_at is null and kind = 'person'`,
    );
    expect(enabled.length).to.be.greaterThan(1);

    const { code, stdout, stderr } = await runCommand(
      'scripts/control.ts',
      ['after-restore', '--replay', '--yes', '--json'],
      world.environment,
      databaseUrl(postgresUrl(), later),
    );
    expect(code, stderr).to.equal(0);
    const { differences, ...taken } = JSON.parse(stdout).replayed;
    expect(taken).to.deep.equal({
      usersDisabled: enabled.length,
      clientsRevoked: 1,
      tenantsStopped: ['globex'],
      tenantsPurged: [],
      tenantsWithoutPasswords: [],
      tenantsRenamed: [],
      factorsRemoved: 0,
      factorsLost: [],
      providersRemoved: 0,
      providersNarrowed: 0,
      identitiesRemoved: 0,
    });
    expect(differences).to.have.length(3);
    expect(differences[2]).to.equal(
      'acme: program Till: networks were 10.1.0.0/16 later, and are so again',
    );
    expect(await control(`select networks::text from users where kind = 'program'`)).to.deep.equal([
      { networks: '{10.1.0.0/16}' },
    ]);
    const [member] = await control<{ permissions: string[] }>(
      `select permissions from roles r join tenants t on t.id = r.tenant_id
        where t.slug = 'acme' and r.name = 'Member'`,
    );
    expect(member?.permissions).to.deep.equal(['full.read']);
    expect(differences[1])
      .to.include('role was Later later')
      .and.include('password was replaced later');
    expect(
      await control(`select from users where password_hash = 'none' and kind = 'person'`),
    ).to.have.length(1);
    const { status } = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
      'X-Tenant': world.acme.guid,
    });
    expect(status).to.equal(401);
    expect(await control("select status from tenants where slug = 'globex'")).to.deep.equal([
      { status: 'suspended' },
    ]);
  });
});

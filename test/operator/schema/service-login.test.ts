import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { sqlState } from '../../../src/lib/postgres/database-error.ts';
import { migrateControl } from '../../../src/operator/schema/migrate-control.ts';
import { startServer } from '../../../src/service/server.ts';
import { Client } from '../../support/client.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld, type World } from '../../support/world.ts';

const insufficientPrivilege = '42501';

describe('login of the service', () => {
  const world = useWorld();
  let serviceUrl: string;

  const makeLogin = async (): Promise<string> => {
    const { code, stdout, stderr } = await runCommand(
      'scripts/control.ts',
      ['service-login', '--json', '--yes'],
      world.environment,
    );
    expect([code, stderr]).to.deep.equal([0, '']);
    return JSON.parse(stdout).databaseUrl;
  };
  const open = (url: string): Promise<Installation> =>
    openInstallation(readConfig({ ...world.environment, DATABASE_URL: url }));
  /**
   * Runs SQL with the login of the service.
   * @returns the SQLSTATE of the error; undefined when there is none
   */
  const attempt = (text: string): Promise<string | undefined> =>
    withConnection(serviceUrl, client => client.query(text)).then(
      () => undefined,
      error => sqlState(error),
    );

  before(async () => {
    // The login of a world inherits its privileges. From here on it has those alone that
    // commands grant.
    const login = `${decodeURIComponent(new URL(world.installation.controlUrl).pathname.slice(1))}_service`;
    await controlSql(world, `revoke world_template_service from "${login}"`);
    serviceUrl = await makeLogin();
  });

  it('the service runs with the login that service-login prints, and serves all tenants', async () => {
    const installation = await open(serviceUrl);
    const { log, passwords } = world;
    const config = readConfig({ ...world.environment, DATABASE_URL: serviceUrl });
    const service = await startServer({ config, installation, log, passwords });

    try {
      const client = new Client(`http://127.0.0.1:${service.port}`);
      const login = (tenant: World['acme']) =>
        client.post('/api/v1/auth/login', tenant.admin, { 'X-Tenant': tenant.guid });

      for (const tenant of [world.acme, world.globex]) {
        const { status, body } = await login(tenant);
        expect(status).to.equal(200);

        const created = await client
          .withToken(body.accessToken)
          .post('/api/v1/EntityStatus', { Title: 'Made by the service' });
        expect(created.status).to.equal(201);
      }
    } finally {
      await service.stop();
      await installation.close();
    }
  });

  it('service-login -o url prints the URL alone, for a file, and a command without a URL refuses -o url', async () => {
    const run = (...args: string[]) =>
      runCommand('scripts/backoffice.ts', [...args, '-o', 'url'], world.environment);
    const { code, stdout, stderr } = await run('control', 'service-login', '--yes');
    expect([code, stderr]).to.deep.equal([0, '']);
    expect(stdout).to.match(/^postgresql:\/\/\S+\n$/);
    serviceUrl = stdout.trim();
    expect((await run('list')).code).to.equal(2);
  });

  it('the login of the service can create no database or role, and cannot connect to tenant databases', async () => {
    expect(await attempt('create database mine')).to.equal(insufficientPrivilege);
    expect(await attempt('create role mine')).to.equal(insufficientPrivilege);
    const url = new URL(serviceUrl);
    url.pathname = `/${world.acme.database}`;
    const error = await withConnection(url.href, async () => undefined).catch(sqlState);
    expect(error).to.equal(insufficientPrivilege);
  });

  it('the login of the service cannot read URLs of servers, nor change tenants, keys or audit entries', async () => {
    for (const text of [
      'select admin_url from servers',
      'select * from servers',
      `update tenants set status = 'active'`,
      `update signing_keys set status = 'active'`,
      'insert into signing_keys (kid, tenant_id, secret) select kid, tenant_id, secret from signing_keys',
      'insert into audit_log (tenant_id, action, resource, record_key, database_user) select 1, 1, 1, 1, 1',
      'update audit_log set user_id = null',
      'delete from audit_log',
      'truncate audit_log',
      'update roles set tenant_id = tenant_id',
      'update users set tenant_id = tenant_id',
      'update users set email = email',
      'delete from tenants',
      'create table mine (id int)',
      'alter table users add mine int',
      'truncate sessions',
      'delete from migrations',
    ]) {
      expect(await attempt(text), text).to.equal(insufficientPrivilege);
    }

    expect(await attempt('select id, name, address from servers')).to.equal(undefined);
  });

  it('the login of the service can neither create nor write a large object', async () => {
    for (const text of [
      'select lo_create(0)',
      'select lo_creat(-1)',
      `select lo_from_bytea(0, 'x')`,
      `select lo_put(1, 0, 'x')`,
      `select lowrite(0, 'x')`,
      'select lo_truncate(0, 1)',
      'select lo_truncate64(0, 1)',
      `select lo_import('/etc/hostname')`,
    ]) {
      expect([text, await attempt(text)]).to.deep.equal([text, insufficientPrivilege]);
    }
  });

  it('a second service-login command changes the password, and the first password is refused', async () => {
    const previous = serviceUrl;
    serviceUrl = await makeLogin();
    expect(serviceUrl).to.not.equal(previous);
    expect(await attempt('select 1')).to.equal(undefined);
    expect(await withConnection(previous, async () => undefined).catch(sqlState)).to.equal('28P01');
  });

  it('control migrate grants the login of the service what it needs, and revokes all else', async () => {
    const role = decodeURIComponent(new URL(serviceUrl).username);
    const controlUrl = world.installation.controlUrl;
    await withConnection(controlUrl, client =>
      client.query(`grant update on tenants to "${role}"; revoke select on tenants from "${role}"`),
    );
    expect(await attempt('select 1 from tenants')).to.equal(insufficientPrivilege);
    await migrateControl(controlUrl);
    expect(await attempt('select 1 from tenants')).to.equal(undefined);
    expect(await attempt(`update tenants set name = name`)).to.equal(insufficientPrivilege);
  });

  it('a command that runs with the login of the service fails with one sentence that says so', async () => {
    const environment = { ...world.environment, DATABASE_URL: serviceUrl };
    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['suspend', 'acme', '--yes'],
      environment,
    );
    expect(code).to.equal(1);
    expect(stderr.trim().split('\n')).to.have.length(1);
    expect(stderr).to.match(
      /^DATABASE_URL has the login of the service: commands need the login of the operator/,
    );
  });
});

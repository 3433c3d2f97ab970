import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { pino } from 'pino';
import { openInstallation } from '../../../src/control/installation.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { checkManifest } from '../../../src/operator/lifecycle/manifest.ts';
import { provision } from '../../../src/operator/lifecycle/provision.ts';
import { startServer } from '../../../src/service/server.ts';
import { Client } from '../../support/client.ts';
import { makeNextBuild } from '../../support/next-build.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';

const statuses = '/api/v1/EntityStatus';

describe('login of the operator', () => {
  const login = {
    user: `operator_${randomBytes(4).toString('hex')}`,
    password: randomBytes(12).toString('base64url'),
  };
  const environment: Record<string, string> = {
    MASTER_KEY: randomBytes(32).toString('base64'),
    PORT: '0',
    MANAGEMENT_PORT: '0',
  };
  const passwords = createQuickPasswords();
  const manifest = checkManifest(
    { slug: 'acme', name: 'Acme', admin: { email: 'admin@acme.test' } },
    'acme',
  );

  before(async () => {
    environment.DATABASE_URL = databaseUrl(postgresUrl(), login.user, login);
    await withConnection(postgresUrl(), async client => {
      await client.query(
        `create role ${login.user} login createdb createrole password '${login.password}'`,
      );
      await client.query(`create database ${login.user} owner ${login.user}`);
    });
  });
  after(() =>
    withConnection(postgresUrl(), async client => {
      const { rows } = await client.query<{ name: string }>(
        `select datname as name from pg_database where pg_get_userbyid(datdba) = $1`,
        [login.user],
      );
      for (const { name } of rows) await client.query(`drop database ${name} with (force)`);
      const roles = await client.query<{ name: string }>(
        `select rolname as name from pg_roles where rolname like $1 order by length(rolname) desc`,
        [`${login.user.replaceAll('_', '\\_')}%`],
      );
      for (const { name } of roles.rows) await client.query(`drop role ${name}`);
    }),
  );

  it('CREATEDB and CREATEROLE suffice to create the service login, to provision, to end the sessions of a tenant, and to migrate', async () => {
    const migrated = await runCommand('scripts/control.ts', ['migrate'], environment);
    expect([migrated.code, migrated.stderr]).to.deep.equal([0, '']);
    for (const _ of ['create', 'change the password']) {
      const made = await runCommand('scripts/control.ts', ['service-login', '--yes'], environment);
      expect([made.code, made.stderr]).to.deep.equal([0, '']);
    }

    const config = readConfig(environment);
    const installation = await openInstallation(config);
    await provision(installation, passwords, manifest);
    // The state after a run that was killed just before its end.
    await installation.statements.query(`update tenants set status = 'provisioning'`);
    const { tenant, logins } = await provision(installation, passwords, manifest);
    const service = await startServer({
      config,
      installation,
      log: pino({ level: 'silent' }),
      passwords,
    });
    const next = await makeNextBuild();
    try {
      expect(await loginsOfTenant(service.port, tenant, logins[0])).to.deep.equal([
        tenant.roleName,
      ]);
      for (const args of [
        ['migrate', 'acme'],
        ['rollback', 'acme', '--yes'],
      ]) {
        const changed = await runCommand(
          next.file('scripts/tenant.ts'),
          [...args, '--despite-running'],
          environment,
        );
        expect([changed.code, changed.stderr], args[0]).to.deep.equal([0, '']);
      }
      expect(await connectedRoles(tenant.databaseName)).to.deep.equal([]);
    } finally {
      await next.remove();
      await service.stop();
      await installation.close();
    }
  });

  it('with the operator login in the query of DATABASE_URL, tenants still use their own logins', async () => {
    const url = new URL(postgresUrl());
    const urlWithQuery = `postgresql://${url.host}/${login.user}?user=${login.user}&password=${login.password}`;
    const config = readConfig({ ...environment, DATABASE_URL: urlWithQuery });

    const installation = await openInstallation(config);
    const made = await provision(
      installation,
      passwords,
      checkManifest({ ...manifest, slug: 'globex' }, 'globex'),
    );

    const service = await startServer({
      config,
      installation,
      log: pino({ level: 'silent' }),
      passwords,
    });

    try {
      expect(await loginsOfTenant(service.port, made.tenant, made.logins[0])).to.deep.equal([
        made.tenant.roleName,
      ]);
    } finally {
      await service.stop();
      await installation.close();
    }
  });

  it('databaseUrl replaces the operator login by the login of the tenant in every form of URL', () => {
    const tenant = { user: 'acme_7', password: 'p&%/ ' };
    const onSocket = 'postgresql:///acme?host=/run/pg&user=acme_7&password=p%26%25/%20';
    const forms: [string, string][] = [
      [
        'postgresql://op:secret@host/control?sslmode=require',
        'postgresql://acme_7:p%26%25%2F%20@host/acme?sslmode=require',
      ],
      [
        'postgresql://host/control?user=op&password=secret',
        'postgresql://acme_7:p%26%25%2F%20@host/acme',
      ],
      ['postgresql://op:secret@%2Frun%2Fpg/control', onSocket],
      ['postgresql:///control?host=/run/pg', onSocket],
      ['postgresql:///control?user=op&password=secret&host=/run/pg', onSocket],
    ];

    for (const [operator, expected] of forms) {
      expect(databaseUrl(operator, 'acme', tenant)).to.equal(expected);
    }
  });

  /**
   * Logs in over HTTP, reads and writes, and returns the roles that are connected to the
   * tenant's database then: the operator's login must not be among them.
   */
  async function loginsOfTenant(
    port: number,
    { guid, databaseName }: { guid: string; databaseName: string },
    credentials: unknown,
  ): Promise<string[]> {
    const url = `http://127.0.0.1:${port}`;
    const { status, body } = await new Client(url).post('/api/v1/auth/login', credentials, {
      'X-Tenant': guid,
    });
    expect(status).to.equal(200);
    const client = new Client(url, body);
    expect((await client.get(statuses)).status).to.equal(200);
    expect((await client.post(statuses, { Title: 'New' })).status).to.equal(201);
    return connectedRoles(databaseName);
  }

  function connectedRoles(databaseName: string): Promise<string[]> {
    return withConnection(postgresUrl(), async connection => {
      const { rows } = await connection.query<{ usename: string }>(
        'select distinct usename from pg_stat_activity where datname = $1',
        [databaseName],
      );
      return rows.map(({ usename }) => usename);
    });
  }
});

import { expect } from 'chai';
import pg from 'pg';
import { pino } from 'pino';
import { createPasswords } from '../../../src/accounts/auth/passwords.ts';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { scramVerifier } from '../../../src/lib/postgres/scram.ts';
import { addUser } from '../../../src/operator/credentials/users.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { provision } from '../../../src/operator/lifecycle/provision.ts';
import { startServer } from '../../../src/service/server.ts';
import { Client } from '../../support/client.ts';
import { createDedicatedServer, manifestOf } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { use } from '../../support/use.ts';

describe('log of the PostgreSQL server', () => {
  const server = use(() =>
    createDedicatedServer(['log_statement=ddl', 'log_min_duration_statement=100']),
  );

  /**
   * The sealed and hashed secrets of the control database, and the passwords of the login
   * roles.
   */
  async function secretsOf(): Promise<string[]> {
    const { secrets } = server.installation;
    const tenants = await server.control<{ guid: string; password: Buffer }>(
      'select guid, role_password as password from tenants',
    );
    const hashes = await server.control<{ text: string }>(
      `select password_hash as text from users union select password_hash from registrations
        union select encode(secret, 'hex') from signing_keys
        union select encode(role_password, 'hex') from tenants`,
    );
    const passwords = tenants.map(({ guid, password }) =>
      secrets.open(password, owners.rolePassword(guid)).toString(),
    );
    return [...passwords, ...hashes.map(({ text }) => text)];
  }

  async function expectNoSecret(): Promise<void> {
    const [log, secrets] = [await server.log(), await secretsOf()];
    expect(secrets.length).to.be.above(3);
    for (const secret of [...secrets, '$argon2id$']) expect(log).to.not.include(secret);
    expect(log).to.not.match(/@\w+\.test/);
  }

  it('provisioning from the template, and the repair of a login role, log no secret', async () => {
    await server.provision('acme');
    const { tenant } = await server.provision('globex');

    await server.sql(
      `revoke connect on database "${tenant.databaseName}" from "${tenant.roleName}"`,
    );
    await server.sql(`drop role "${tenant.roleName}"`);

    const { findings } = await diagnose(server.installation, { fix: true });
    expect(findings.map(({ check, fixed }) => [check, fixed])).to.deep.include([
      'missing_role',
      true,
    ]);

    const password = server.installation.secrets
      .open(tenant.rolePassword, owners.rolePassword(tenant.guid))
      .toString();
    const login = { user: tenant.roleName, password };
    await withConnection(databaseUrl(server.url, tenant.databaseName, login), client =>
      client.query('select 1'),
    );

    expect(await server.log()).to.include('SCRAM-SHA-256$1:');
    await expectNoSecret();
  });

  it('two concurrent registrations of one address and a cancelled one log no secret; both get a mail', async () => {
    const { tenant } = await server.provision('initech');
    const { installation } = server;
    await server.control(`update tenants set features = '{selfRegistration}'`);

    const config = readConfig({
      ...server.environment,
      PORT: '0',
      MANAGEMENT_PORT: '0',
      RATE_LIMIT_ACCOUNT: '100/60s',
    });

    const logs: string[] = [];
    const log = pino({ level: 'info' }, { write: line => void logs.push(line) });
    const service = await startServer({ config, installation, log, passwords: createPasswords() });
    const client = new Client(`http://127.0.0.1:${service.port}`);

    const register = (email: string) =>
      client.post(
        '/api/v1/auth/register',
        { email, password: 'correct horse battery', firstName: 'Nora', lastName: 'Newman' },
        { 'X-Tenant': tenant.guid },
      );

    const waiting = async () => {
      const [pid] = await readLockWaiters(session);
      return pid;
    };

    const session = new pg.Client(installation.controlUrl);
    await session.connect();

    try {
      // The log is to have no statement of this session, however long it takes.
      await session.query('set log_min_duration_statement = -1; begin');
      await session.query(
        `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id)
          select tenant_id, 'both@people.test', 'the hash of nobody', 'Other', 'Person', id from roles where tenant_id = $1 limit 1`,
        [tenant.id],
      );
      expect((await register('both@people.test')).status).to.equal(202);
      await eventually(waiting);
      await session.query('commit');
      await eventually(
        async () =>
          (await server.control(`select from mail_deliveries where state = 'sent'`)).length === 1,
      );

      await session.query('begin; lock table roles in access exclusive mode');
      expect((await register('cancelled@people.test')).status).to.equal(202);
      const pid = await eventually(waiting);
      await session.query('select pg_cancel_backend($1)', [pid]);
      await session.query('commit');
      await eventually(async () => /canceling statement/.test(await server.log()));
    } finally {
      await session.end();
      await service.stop();
    }
    await expectNoSecret();
  });

  it('two concurrent commands that add one user log no secret, and one reports that the user exists', async () => {
    const { installation } = server;
    const { tenant } = await provision(installation, createPasswords(), manifestOf('hooli'));
    const user = {
      firstName: 'Nora',
      lastName: 'Newman',
      role: 'Member',
      scope: 'All',
      entityId: null,
    } as const;
    const add = () =>
      addUser(installation, createPasswords(), {
        ...user,
        tenant,
        email: 'n@people.test',
        password: 'correct horse 1',
      });

    const results = await Promise.allSettled([add(), add()]);

    expect(results.map(({ status }) => status).sort()).to.deep.equal(['fulfilled', 'rejected']);
    const refused = results.find(({ status }) => status === 'rejected') as PromiseRejectedResult;
    expect(refused.reason.message).to.match(/^hooli has a user n@people\.test already\./);
    await expectNoSecret();
  });

  it('connections of tenants whose logins may not read the cluster leave no error in the log', async () => {
    const { installation } = server;
    const people = [];
    for (const slug of ['stark', 'wayne']) {
      const { tenant, logins } = await server.provision(slug);
      await server.sql(
        'revoke execute on function pg_control_system() from public',
        tenant.databaseName,
      );
      people.push({ tenant, login: logins[0] });
    }
    const config = readConfig({ ...server.environment, PORT: '0', MANAGEMENT_PORT: '0' });
    const log = pino({ level: 'silent' });
    const passwords = createQuickPasswords();
    const service = await startServer({ config, installation, log, passwords });

    try {
      for (const { tenant, login } of people) {
        const guest = new Client(`http://127.0.0.1:${service.port}`);
        const session = await guest.post('/api/v1/auth/login', login, { 'X-Tenant': tenant.guid });
        const client = new Client(guest.url, session.body);
        const read = () => client.get('/api/v1/OrderStatuses?limit=1');

        for (let count = 0; count < 2; count++) {
          for (const { status, body } of await Promise.all([read(), read(), read()])) {
            expect(status, JSON.stringify(body)).to.equal(200);
          }
          await server.sql(
            `select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = '${tenant.roleName}'`,
          );
        }
      }
    } finally {
      await service.stop();
    }
    expect(await server.log()).to.not.match(/ERROR: .*pg_control_system/);
  });

  it('a statement that is logged because it is slow is logged without its values', async () => {
    await withConnection(server.url, client =>
      client.query('select pg_sleep(0.15), $1::text', ['slow-value']),
    );
    await eventually(async () => /pg_sleep\(0\.15\)/.test(await server.log()));
    expect(await server.log()).to.not.include('slow-value');
  });

  it('a role whose password was sent as a verifier logs in with the password only', async () => {
    // Computed by PostgreSQL 18 from this password and its random salt.
    await server.sql(`set scram_iterations = 4096; create role native login password 'pencil'`);
    const [stored] = await server.sql<{ verifier: string }>(
      `select rolpassword as verifier from pg_authid where rolname = 'native'`,
    );
    const salt = Buffer.from(
      /^SCRAM-SHA-256\$4096:([^$]+)\$/.exec(stored?.verifier ?? '')?.[1] ?? '',
      'base64',
    );
    expect(scramVerifier('pencil', 4096, salt)).to.equal(stored?.verifier);

    await server.sql(`create role verified login password '${scramVerifier('pencil', 1)}'`);
    const login = (password: string) =>
      withConnection(
        databaseUrl(server.url, 'postgres', { user: 'verified', password }),
        async () => 'logged in',
      ).catch((error: { code?: string }) => error.code);
    await server.sql('grant connect on database postgres to verified');
    expect(await login('pencil')).to.equal('logged in');
    expect(await login('pen')).to.equal('28P01');
    expect(await login(scramVerifier('pencil', 1))).to.equal('28P01');
  });
});

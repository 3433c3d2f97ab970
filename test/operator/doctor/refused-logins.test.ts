import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

interface PrintedFinding {
  check: string;
  tenant: string | null;
  severity: string;
  problem: string;
  remedy: string;
  fixed: boolean;
}

const script = 'scripts/backoffice.ts';
const inTwoDays = new Date(Date.now() + 2 * 86_400_000).toISOString();

describe('logins that PostgreSQL refuses', () => {
  const server = use(createDedicatedServer);
  let acme: string;
  let globex: string;
  const service = 'office_service';

  before(async () => {
    acme = (await server.provision('acme')).tenant.databaseName;
    globex = (await server.provision('globex')).tenant.databaseName;
    await succeed(server.environment, 'control', ['service-login']);
  });

  async function doctor(...args: string[]): Promise<PrintedFinding[]> {
    const { stdout, stderr } = await runCommand(
      script,
      ['doctor', '--json', ...args],
      server.environment,
    );
    expect(stderr).to.equal('');
    return JSON.parse(stdout).findings;
  }

  it('doctor names the end of the password of a login, and its repair takes the end away', async () => {
    await server.sql(`alter role "${acme}" valid until 'yesterday'`);

    const found = await doctor();

    expect(found).to.have.length(1);
    expect(found[0]).to.include({ check: 'login_fails', tenant: 'acme', severity: 'error' });
    expect(found[0]?.problem).to.match(/the password of role \S+ was valid until 20\d\d-/);
    await expectRepaired();
  });

  it('doctor names the connection limit of a login and that of a database, and its repair takes each away', async () => {
    await server.sql(`alter role "${acme}" connection limit 0`);
    await server.sql(`alter database "${globex}" connection limit 0`);

    const found = await expectRepaired();

    expect(found.map(({ check, tenant }) => [check, tenant])).to.have.deep.members([
      ['login_fails', 'acme'],
      ['login_fails', 'globex'],
    ]);
    const problems = found.map(({ problem }) => problem).join();
    expect(problems).to.include(`role ${acme} may have 0 connections at a time`);
    expect(problems).to.include(`database ${globex} may have 0 connections at a time`);
  });

  /** Expects that `doctor --fix` repairs all that it finds. */
  async function expectRepaired(): Promise<PrintedFinding[]> {
    const found = await doctor('--fix');
    expect(found).not.to.deep.equal([]);
    for (const { fixed } of found) expect(fixed).to.equal(true);
    expect(await doctor()).to.deep.equal([]);
    return found;
  }

  it('doctor warns of a login whose password ends within a week, and names the statement', async () => {
    for (const role of [acme, service, 'postgres']) {
      await server.sql(`alter role "${role}" valid until '${inTwoDays}'`);
    }

    const found = await doctor();

    expect(found.map(({ check, tenant }) => [check, tenant])).to.have.deep.members([
      ['login_ends', 'acme'],
      ['login_ends', null],
      ['login_ends', null],
    ]);
    for (const { severity, problem, remedy } of found) {
      expect(severity).to.equal('warning');
      expect(problem).to.include(inTwoDays.slice(0, 19));
      const [, statement = ''] = /-c '(.*)'$/.exec(remedy) ?? [];
      await server.sql(statement.replaceAll(`'\\''`, `'`));
    }
    expect(await doctor()).to.deep.equal([]);
  });

  const readVerifier = () =>
    server.sql<{ verifier: string }>(
      `select rolpassword as verifier from pg_authid where rolname = '${service}'`,
    );

  it('control service-login refuses a login that has ended before it changes its password, and doctor repairs it', async () => {
    await server.sql(`alter role ${service} valid until 'yesterday'`);
    const before = await readVerifier();

    for (const args of [['--dry-run'], ['--yes']]) {
      const { code, stderr } = await runCommand(
        script,
        ['control', 'service-login', ...args],
        server.environment,
      );
      expect(code).to.equal(1);
      expect(stderr).to.match(
        /was valid until .* alter role "office_service" valid until 'infinity';/,
      );
    }
    expect(await readVerifier()).to.deep.equal(before);

    const [found] = await doctor('--fix');
    expect(found).to.include({ check: 'login_fails', tenant: null, fixed: true });
    await succeed(server.environment, 'control', ['service-login', '--yes']);
  });

  it('control service-login changes no password of a login whose connections are all used, or that pg_hba.conf does not admit', async () => {
    const password = 'of-the-service';
    await server.sql(`alter role ${service} connection limit 1 password '${password}'`);
    const url = databaseUrl(server.url, 'office', { user: service, password });
    const before = await readVerifier();
    const change = () =>
      runCommand(script, ['control', 'service-login', '--yes'], server.environment);

    const [full, admitted] = await withConnection(url, async () => {
      const refused = await change();
      await server.sql(`alter role ${service} connection limit -1`);
      const hba = await refuseLoginsOf(service);
      const notAdmitted = await change();
      await hba.restore();
      return [refused, notAdmitted];
    });

    expect(full?.code).to.equal(1);
    expect(full?.stderr).to.include(`role ${service} may have 1 connections at a time`);
    expect(admitted?.code).to.equal(1);
    expect(admitted?.stderr).to.include('Let pg_hba.conf of the server admit it');
    expect(await readVerifier()).to.deep.equal(before);
    await succeed(server.environment, 'control', ['service-login', '--yes']);
  });

  it('control service-login lets a login log in again that somebody has locked', async () => {
    await server.sql(`alter role ${service} nologin`);

    await succeed(server.environment, 'control', ['service-login', '--yes']);

    expect(await doctor()).to.deep.equal([]);
  });

  it('provision reports no success for a tenant whose login the server refuses, and says how it is admitted', async () => {
    const hba = await refuseLoginsOf('+office_tenant');
    const args = ['provision', 'initech', '--name', 'Initech', '--admin-email', 'a@initech.test'];

    const { code, stderr } = await runCommand(script, args, server.environment);

    expect(code).to.equal(1);
    expect(stderr).to.match(
      /The server refuses the login .* Let pg_hba.conf of the server admit it/,
    );
    await hba.restore();
    const again = await runCommand(script, args, server.environment);
    expect(again).to.include({ code: 0, stderr: '' });
    expect(await doctor()).to.deep.equal([]);
  });

  /** Returns the time at which the server has read its configuration, as new sessions have it. */
  async function loadTime(): Promise<string | undefined> {
    const rows = await server.sql<{ at: string }>('select pg_conf_load_time()::text as at');
    return rows[0]?.at;
  }

  /** Lets `pg_hba.conf` refuse a login, or the members of a role with a plus sign before it. */
  async function refuseLoginsOf(logins: string): Promise<{ restore: () => Promise<void> }> {
    const [row] = await server.sql<{ path: string; text: string }>(
      `select setting as path, pg_read_file(setting) as text from pg_settings where name = 'hba_file'`,
    );
    const { path, text } = row as { path: string; text: string };
    const write = async (content: string) => {
      await writeFile(path, content);
      const before = await loadTime();
      await server.sql('select pg_reload_conf()');
      await eventually(async () => (await loadTime()) !== before);
    };

    await write(`host all ${logins} all reject\n${text}`);
    return { restore: () => write(text) };
  }
});

describe('logins that PostgreSQL refuses, for an operator who is no superuser', () => {
  const server = use(() => createPlainServer('createdb createrole'));

  it('doctor names the limit of connections of a login that is reached by other sessions, and its repair takes it away', async () => {
    const environment = {
      DATABASE_URL: server.url('office'),
      MASTER_KEY: randomBytes(32).toString('base64'),
    };
    await succeed(environment, 'control', ['migrate']);
    await succeed(environment, 'tenant', ['server', 'set', 'default', '--disk-gb', '1000']);
    const provision = ['provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test'];
    expect((await runCommand(script, provision, environment)).code).to.equal(0);
    const [tenant] = await server.sql<{ role: string; verifier: string }>(
      `select rolname as role, rolpassword as verifier from pg_authid
        where rolname like 'office_tenant_%' and rolcanlogin`,
    );
    const { role, verifier } = tenant as { role: string; verifier: string };
    const password = 'of-the-tenant';
    await server.sql(`alter role "${role}" connection limit 1 password '${password}'`);
    const doctor = (...args: string[]) =>
      runCommand(script, ['doctor', '--json', ...args], environment);

    const url = databaseUrl(server.superuserUrl(role), role, { user: role, password });
    const { stdout } = await withConnection(url, async () => {
      await server.sql(`alter role "${role}" password '${verifier}'`);
      return doctor('--fix');
    });

    const [found, ...others]: PrintedFinding[] = JSON.parse(stdout).findings;
    expect(others).to.deep.equal([]);
    expect(found).to.include({ check: 'login_fails', tenant: 'acme', fixed: true });
    expect(found?.problem).to.include(`role ${role} may have 1 connections at a time`);
    expect((await doctor()).code).to.equal(0);
  });
});

import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
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

  it('control service-login refuses a login that has ended before it changes its password, and doctor repairs it', async () => {
    const readVerifier = () =>
      server.sql<{ verifier: string }>(
        `select rolpassword as verifier from pg_authid where rolname = '${service}'`,
      );
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

  it('provision reports no success for a tenant whose login the server refuses, and says how it is admitted', async () => {
    const hba = await refuseLoginsOfTenants();
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

  /** Lets `pg_hba.conf` admit the logins of operators and of the service only. */
  async function refuseLoginsOfTenants(): Promise<{ restore: () => Promise<void> }> {
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

    await write(`host all +office_tenant all reject\n${text}`);
    return { restore: () => write(text) };
  }
});

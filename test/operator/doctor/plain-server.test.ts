import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { withConnection } from '../../../src/postgres/connection.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

interface Finding {
  check: string;
  severity: string;
  problem: string;
  remedy: string;
}

// A drill follows the shell lines of the handbook to such a server.
describe('doctor with a login that is no superuser', () => {
  const server = use(() => createPlainServer('createdb createrole'));
  let environment: Record<string, string>;

  before(async () => {
    environment = { DATABASE_URL: server.url('backoffice'), MASTER_KEY: randomBytes(32).toString('base64') };
    await succeed(environment, 'control', ['migrate']);
    await succeed(environment, 'tenant', ['provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test']);
  });

  async function doctor(exitCode: number, ...args: string[]): Promise<Finding[]> {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', ['doctor', '--json', ...args], environment);
    expect(code, stdout + stderr).to.equal(exitCode);
    return JSON.parse(stdout).findings;
  }

  it('on a server as PostgreSQL makes it, doctor exits with 0, and the remedy of its warning names who can run it', async () => {
    const [finding, ...others] = await doctor(0);
    expect(others).to.deep.equal([]);
    expect(finding).to.include({
      check: 'default_access',
      severity: 'warning',
      problem: 'every login of the server may connect to postgres and template1, as PostgreSQL grants by default',
    });
    const [, who, statement = ''] =
      /revoke it as its owner (\w+) or as a superuser: (revoke .*;)$/.exec(finding?.remedy ?? '') ?? [];
    expect(who).to.equal((await server.sql<{ name: string }>('select current_user as name'))[0]?.name);
    await server.sql(statement);
    expect(await doctor(0)).to.deep.equal([]);
  });

  it('each remedy can be run by the login of the command, or names who must run it', async () => {
    const [tenant] = await server.sql<{ name: string }>(
      `select datname as name from pg_database where datname like 'backoffice_tenant_%'`,
    );
    const name = tenant?.name ?? '';
    const superuser = (await server.sql<{ name: string }>('select current_user as name'))[0]?.name;
    await server.sql('create database reports');
    await server.sql(`alter role "${name}" superuser; grant pg_monitor to "${name}"; alter database "${name}" owner to ${superuser};
                    grant temporary on database "${name}" to public`);
    await withConnection(server.superuserUrl(name), client =>
      client.query(`create schema mine authorization "${name}"`),
    );
    const findings = await doctor(1, '--fix');
    const largeObjects = findings.findIndex(({ problem }) => problem.startsWith('PUBLIC may store large objects'));
    const [{ remedy: revoke = '' } = {}] = findings.splice(largeObjects, 1);
    expect(revoke).to.match(
      new RegExp(`^Let a superuser of the server run in database ${name}: revoke execute on function .* from public;$`),
    );
    const errors = findings.filter(({ severity }) => severity === 'error');
    const remedies = errors.map(({ check, remedy }) => `${check}: ${remedy}`);
    expect(remedies, JSON.stringify(findings, null, 1)).to.have.members([
      `excess_rights: Let a superuser of the server run: alter role "${name}" nosuperuser;`,
      `excess_rights: Let a superuser of the server run: revoke "pg_monitor" from "${name}";`,
      `excess_rights: Give them another owner, in that database: grant "${name}" to current_user; ` +
        `reassign owned by "${name}" to current_user; revoke "${name}" from current_user;`,
      `public_access: Let ${superuser}, its owner, or a superuser run: revoke all on database "${name}" from public;`,
      `public_access: If nothing else needs it, revoke it as its owner ${superuser} or as a superuser: ` +
        'revoke all on database "reports" from public;',
    ]);
    const statement = (text: string): string => text.replace(/^.*?: (?=revoke|alter|grant)/, '');
    for (const text of errors.map(({ remedy }) => remedy).filter(remedy => /superuser/.test(remedy)))
      await server.sql(statement(text));
    await server.sql(`alter database "${name}" owner to operator`);
    const [mine] = errors.filter(({ remedy }) => remedy.startsWith('Give them'));
    await withConnection(server.url(name), client => client.query(statement(mine?.remedy ?? '')));
    expect(await doctor(0)).to.deep.equal([]);
  });
});

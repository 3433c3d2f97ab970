import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
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
    environment = {
      DATABASE_URL: server.url('backoffice'),
      MASTER_KEY: randomBytes(32).toString('base64'),
    };
    await succeed(environment, 'control', ['migrate']);
    await succeed(environment, 'tenant', [
      'provision',
      'acme',
      '--name',
      'Acme',
      '--admin-email',
      'a@acme.test',
    ]);
    // Its login may not ask where the data folder is, so nobody sees the disk.
    await succeed(environment, 'tenant', ['server', 'set', 'default', '--disk-gb', '1000']);
  });

  async function doctor(exitCode: number, ...args: string[]): Promise<Finding[]> {
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json', ...args],
      environment,
    );
    expect(code, stdout + stderr).to.equal(exitCode);
    return JSON.parse(stdout).findings;
  }

  /** Runs a command of psql that a remedy has, with the login of a superuser. */
  async function psqlAsSuperuser(remedy: string): Promise<void> {
    const [command = ''] = /psql .*$/m.exec(remedy) ?? [];
    const settings = {
      PATH: process.env.PATH ?? '',
      DATABASE_URL: server.superuserUrl('backoffice'),
    };
    await promisify(execFile)('sh', ['-ec', command], { env: settings });
  }

  it('on a server as PostgreSQL makes it, also with databases of its provider, nothing is wrong', async () => {
    await server.sql('create database cloudsqladmin');
    await server.sql('create database azure_sys');

    expect(await doctor(0)).to.deep.equal([]);
  });

  it('doctor connects to no database that the catalog closes to its login, and names it', async () => {
    await server.sql('create database wiki');
    await server.sql('revoke connect on database wiki from public');

    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', ['doctor'], environment);
    const [{ log } = { log: '' }] = await server.sql<{ log: string }>(
      `select pg_read_file(current_setting('data_directory') || '/../postgres.log') as log`,
    );

    expect(code, stderr).to.equal(0);
    expect(stdout).to.equal(
      'Checked 1 tenant on 1 server: nothing is wrong.\n' +
        'default: not looked into, because the login of the commands may not connect: wiki.\n',
    );
    expect(log).not.to.include('permission denied for database');
  });

  it('doctor asks for the size of a disk that its login cannot see, and the command that it names states it', async () => {
    const set = (size: string) =>
      succeed(environment, 'tenant', ['server', 'set', 'default', '--disk-gb', size]);
    await set('none');

    const [asked, ...others] = await doctor(0);
    await set('1000');

    expect(others).to.deep.equal([]);
    expect(asked).to.include({ check: 'unknown_room', severity: 'warning' });
    expect(asked?.remedy).to.equal('State it: bin/backoffice server set default --disk-gb GIB');
    expect(await doctor(0)).to.deep.equal([]);
  });

  it('each remedy can be run by the login of the command, or names who must run it, with the command', async () => {
    const [tenant] = await server.sql<{ name: string }>(
      `select datname as name from pg_database where datname like 'backoffice_tenant_%'`,
    );
    const name = tenant?.name ?? '';
    const superuser = (await server.sql<{ name: string }>('select current_user as name'))[0]?.name;
    await server.sql('create database reports');
    await server.sql(`alter role "${name}" superuser; grant pg_monitor to "${name}"; alter database "${name}" owner to ${superuser};
                    grant temporary on database "${name}" to public`);

    const findings = await doctor(1, '--fix');

    const remedies = findings.map(({ check, remedy }) => `${check}: ${remedy}`);
    const largeObjects = remedies.find(text => text.includes('lo_create')) ?? '';
    expect(largeObjects).to.match(
      new RegExp(
        `As a superuser of the server: psql "\\$DATABASE_URL" -c '\\\\c ${name}' -c 'revoke execute on function`,
      ),
    );
    expect(remedies, JSON.stringify(findings, null, 1)).to.have.members([
      largeObjects,
      `excess_rights: Remove superuser from role ${name}, as a superuser of the server: psql "$DATABASE_URL" -c 'alter role "${name}" nosuperuser'`,
      `excess_rights: Revoke pg_monitor from ${name}, as a superuser of the server: psql "$DATABASE_URL" -c 'revoke "pg_monitor" from "${name}"'`,
      `public_access: Revoke TEMPORARY on database ${name} from PUBLIC, as ${superuser}, its owner, or a superuser: psql "$DATABASE_URL" -c 'revoke all on database "${name}" from public'`,
      `operator_rights: Grant it that, as a superuser: psql "$DATABASE_URL" -c 'alter database "${name}" owner to "operator"'`,
    ]);
    for (const remedy of remedies) await psqlAsSuperuser(remedy);
    expect(await doctor(0)).to.deep.equal([]);
  });

  it('doctor says which grants a login lacks that took the place of the former one, and its command grants them', async () => {
    const password = randomBytes(18).toString('base64url');
    await server.sql(`create role successor login createdb createrole password '${password}'`);
    const successor = (database: string) =>
      databaseUrl(server.url(database), database, { user: 'successor', password });
    const former = environment;
    environment = { ...environment, DATABASE_URL: successor('backoffice') };

    const refused = await runCommand('scripts/tenant.ts', ['doctor'], environment);
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(/^The login successor may not use the control database/);
    await psqlAsSuperuser(refused.stderr);
    expect(await doctor(0)).to.deep.equal([]);

    await server.sql(
      'revoke operator from successor; grant select on all tables in schema public to successor',
    );
    environment = former;
  });

  it('of an added server, too, doctor says which grants the login of its URL lacks', async () => {
    const far = await createDedicatedServer();
    const login = (user: string) => databaseUrl(far.url, 'postgres', { user, password: 'secret' });
    try {
      for (const user of ['operator', 'successor']) {
        await far.sql(`create role ${user} login createdb createrole password 'secret';
                       grant connect on database postgres to ${user}`);
      }
      await succeed(
        environment,
        'tenant',
        ['server', 'add', 'far', '--disk-gb', '1000'],
        login('operator'),
      );
      const args = ['--name', 'Far', '--admin-email', 'a@far.test', '--server', 'far'];
      await succeed(environment, 'tenant', ['provision', 'far', ...args]);
      await succeed(environment, 'tenant', ['server', 'add', 'far'], login('successor'));

      const findings = await doctor(1);

      expect(findings.map(({ check }) => check)).to.include('operator_rights');
      const lacking = findings.find(({ check }) => check === 'operator_rights');
      const [, statement = ''] =
        /-c '(grant "operator" to "successor")'$/.exec(lacking?.remedy ?? '') ?? [];
      await far.sql(statement);
      expect(await doctor(0)).to.deep.equal([]);

      for (const end of [
        ['delete', 'far', '--yes'],
        ['purge', 'far', '--yes'],
        ['server', 'remove', 'far', '--yes'],
      ]) {
        await succeed(environment, 'tenant', end);
      }
    } finally {
      await far.close();
    }
  });
});

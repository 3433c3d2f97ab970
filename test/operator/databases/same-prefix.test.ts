import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

describe('two installations with the same prefix on one server', () => {
  const server = use(createDedicatedServer);

  before(async () => {
    await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'office'`,
    );
    await server.sql('create database other template office');
    await server.sql(
      'update installation set id = gen_random_uuid(), key_fingerprint = null, master_key_canary = null',
      'other',
    );
  });

  const environmentOf = (control: string) => ({
    ...server.environment,
    DATABASE_URL: databaseUrl(server.url, control),
  });
  const run = (control: string, ...args: string[]) =>
    runCommand('scripts/tenant.ts', args, environmentOf(control));
  const provision = (control: string, slug: string) =>
    run(
      control,
      'provision',
      slug,
      '--name',
      slug,
      '--admin-email',
      `a@${slug}.test`,
      '--reuse-slug',
      '--yes',
      '--json',
    );

  /**
   * Provisions a tenant.
   * @returns the name of its database
   */
  const provisionWell = async (control: string, slug: string): Promise<string> => {
    const { code, stdout, stderr } = await provision(control, slug);
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout).database;
  };
  /** Ends a tenant with everything that it has. */
  const remove = async (control: string, slug: string): Promise<void> => {
    await run(control, 'delete', slug, '--yes');
    const { code, stderr } = await run(control, 'purge', slug, '--yes');
    expect(code, stderr).to.equal(0);
  };
  /**
   * Returns the database and the role with a name, with what a repair or a drop would change.
   */
  const onServer = (name: string) =>
    server.sql(
      `select d.oid as database, datallowconn, datconnlimit, datacl::text, r.oid as role, rolpassword, rolcanlogin
         from (select from pg_class limit 1) one
         left join pg_database d on datname = '${name}' left join pg_authid r on rolname = '${name}'`,
    );
  const stampIn = (name: string) => server.sql('select * from tenant_identity', name);

  /**
   * Lets the next databases that an installation reserves have a name that somebody else has.
   */
  const takeName = (control: string, name: string) =>
    server.sql(
      `create or replace function take_name() returns trigger language plpgsql as $$
       begin new.database_name := '${name}'; new.role_name := '${name}'; return new; end $$;
       create trigger take_name before insert on tenant_databases for each row execute function take_name()`,
      control,
    );
  const leaveName = (control: string) =>
    server.sql('drop trigger take_name on tenant_databases', control);

  it('tenants with the same numbers get databases of their own, which keep data, role and rights when the other installation is repaired, provisions and purges', async () => {
    const number = 'alter table tenants alter id restart with 1000';
    for (const control of ['office', 'other']) await server.sql(number, control);
    const first = await provisionWell('office', 'acme');
    const before = [await onServer(first), await stampIn(first)];

    const second = await provisionWell('other', 'acme');
    const doctor = await run('other', 'doctor', '--fix', '--json');
    await run('other', 'databases', 'prune');
    await remove('other', 'acme');

    expect(first).to.match(/^office_tenant_1001_[0-9a-f]{12}$/);
    expect(second)
      .to.match(/^office_tenant_1001_[0-9a-f]{12}$/)
      .and.not.to.equal(first);
    expect(doctor.stdout).not.to.include('"fixed":true');
    expect([await onServer(first), await stampIn(first)]).to.deep.equal(before);
    expect(await onServer(second)).to.deep.include({ ...(await onServer('no_such_name'))[0] });
  });

  it('a new database that would get the name of an existing one is refused, and leaves that and its role alone, also when its tenant is purged', async () => {
    const taken = await provisionWell('office', 'globex');
    const before = [await onServer(taken), await stampIn(taken)];
    await takeName('other', taken);

    const refused = await provision('other', 'initech');
    const databases = await server.sql('select state from tenant_databases', 'other');
    await remove('other', 'initech');

    await leaveName('other');
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include(
      `a database or a login role ${taken}, which this installation has not made`,
    );
    expect(databases, 'no row leads to it').to.deep.equal([]);
    expect([await onServer(taken), await stampIn(taken)]).to.deep.equal(before);
  });

  for (const [what, make, drop] of [
    ['database', 'create database office_taken', 'drop database office_taken'],
    [
      'closed database',
      'create database office_taken allow_connections false',
      'drop database office_taken',
    ],
    ['login role', 'create role office_taken login', 'drop role office_taken'],
  ] as const) {
    it(`a ${what} of somebody else with the name of a new database is not used, changed or dropped`, async () => {
      await server.sql(make);
      const before = await onServer('office_taken');
      await takeName('office', 'office_taken');

      const refused = await provision('office', 'hooli');
      const again = await provision('office', 'hooli');
      await leaveName('office');
      await run('office', 'doctor', '--fix');
      await provisionWell('office', 'hooli');
      await remove('office', 'hooli');

      expect([refused.code, again.code]).to.deep.equal([1, 1]);
      expect(await onServer('office_taken')).to.deep.equal(before);
      await server.sql(drop);
    });
  }

  it('a row that leads to the database of another tenant drops neither that nor its role', async () => {
    const owned = await provisionWell('office', 'umbrella');
    const mine = await provisionWell('other', 'umbrella');
    const before = [await onServer(owned), await stampIn(owned)];
    for (const table of ['tenants', 'tenant_databases']) {
      await server.sql(
        `update ${table} set database_name = '${owned}', role_name = '${owned}' where database_name = '${mine}'`,
        'other',
      );
    }

    await remove('other', 'umbrella');

    expect([await onServer(owned), await stampIn(owned)]).to.deep.equal(before);
  });
});

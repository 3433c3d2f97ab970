import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

describe('two installations with the same prefix on one server', () => {
  const server = use(createDedicatedServer);

  before(async () => {
    await server.sql(`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'office'`);
    await server.sql('create database other template office');
    await server.sql(
      'update installation set id = gen_random_uuid(), key_fingerprint = null, master_key_canary = null',
      'other',
    );
    for (const [index, control] of controls.entries())
      await server.sql(`alter table tenants alter id restart with ${1_000 * (index + 1)}`, control);
  });

  const controls = ['office', 'other'] as const;
  const environmentOf = (control: string) => ({
    ...server.environment,
    DATABASE_URL: databaseUrl(server.url, control),
  });
  const run = (control: string, ...args: string[]) => runCommand('scripts/tenant.ts', args, environmentOf(control));
  const fill = async (control: string) =>
    JSON.parse((await run(control, 'pool', 'fill', '--size', '1', '--json')).stdout)[0];
  const provision = (control: string, slug: string) =>
    run(control, 'provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`, '--json');
  /** Lets the next number of an installation be that of a name which the other one has. */
  const collide = (control: string, name: string, before = 0) =>
    server.sql(`alter table tenants alter id restart with ${Number(/\d+$/.exec(name)) - before}`, control);
  const warmOf = async (control: string): Promise<string> => {
    const [row] = await server.sql<{ name: string }>(
      `select database_name as name from tenant_databases where tenant_id is null and state = 'filled'`,
      control,
    );
    return row?.name ?? '';
  };
  const onServer = (name: string) =>
    server.sql(
      `select d.oid, datallowconn, rolpassword, rolcanlogin, shobj_description(r.oid, 'pg_authid') as owner
         from pg_database d join pg_authid r on rolname = datname where datname = '${name}'`,
    );

  it('what one installation has keeps its data, role and owner when the other one fills, provisions, drains and purges', async () => {
    const [owner, other] = controls;
    expect(await fill(owner)).to.include({ ready: 1, error: null });
    const warm = await warmOf(owner);
    const made = JSON.parse((await provision(owner, `taken-of-${owner}`)).stdout);
    expect(made.database).to.equal(warm);
    expect(await fill(owner)).to.include({ ready: 1, error: null });
    const names = [warm, await warmOf(owner)];
    const before = await Promise.all(names.map(onServer));
    expect(before.flat()).to.have.length(2);
    const [ofTenant = '', ofPool = ''] = names;
    await collide(other, ofTenant);
    expect((await fill(other)).error).to.include('same prefix?');
    expect((await run(other, 'pool', 'drain')).code).to.equal(0);
    await collide(other, ofPool, 1);
    const { code, stderr } = await provision(other, 'initech');
    expect([code, stderr]).to.satisfy(([, text]: [number, string]) => code === 1 && /same prefix\?/.test(text));
    expect((await run(other, 'purge', 'initech', '--yes')).code).to.equal(0);
    expect(await Promise.all(names.map(onServer))).to.deep.equal(before);
  });

  it('a database that is not recorded does not count as a warm one, and is not dropped', async () => {
    await collide('office', 'office_tenant_5000', 1);
    await run('office', 'pool', 'drain');
    await server.sql('create database office_tenant_5000');
    const { stderr } = await provision('office', 'late');
    expect(stderr).to.include('the database office_tenant_5000 on server default belongs to another');
    expect((await run('office', 'purge', 'late', '--yes')).code).to.equal(0);
    expect(await server.sql(`select from pg_database where datname = 'office_tenant_5000'`)).to.have.length(1);
  });
});

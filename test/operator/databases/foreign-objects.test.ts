import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { useOwnDrills } from '../../support/own-drills.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, documentOf, succeed } from '../../support/succeed.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';

const addForeign = `
  create schema reporting;
  create table reporting.sales as select 1 as id, 'kept only here' as note;
  create view reporting.totals as select count(*) from reporting.sales;
  create publication changes_elsewhere for all tables;
  create table public.notes (id integer)`;
const rest = ['publication changes_elsewhere', 'setting work_mem', 'view reporting.totals'];
const rows = ['schema reporting (sales)', 'table public.notes'];

describe('what others have made in a tenant database', () => {
  useOwnDrills();
  const world = useEach(() => createWorld());
  const folder = useServerFolder('foreign-archives');
  let environment: Record<string, string>;

  const tenant = async (...args: string[]) =>
    documentOf(await runCommand('scripts/tenant.ts', [...args, '--json'], environment));
  const salesOf = (): Promise<object[]> => sql(world.acme, 'select note from reporting.sales');

  beforeEach(async () => {
    const target = await mkdtemp(join(folder, 'target-'));
    environment = { ...world.environment, ...(await backupSettings(target)) };
    await backUp(environment);
    await succeed(environment, 'tenant', ['restore', 'acme', '--archive', 'latest']);
    await sql(world.acme, addForeign);
    await sql(world.acme, `alter database ${world.acme.database} set work_mem = '16MB'`);
  });

  it('restore diff, a drill and the plan of a swap name the objects of others, which they leave out', async () => {
    const names = [...rows, ...rest];
    const { document: diff } = await tenant('restore', 'diff', 'acme');
    expect(diff.notCompared).to.have.members(
      names.map(name => `${name} in ${world.acme.database}`),
    );
    expect(await succeed(environment, 'tenant', ['restore', 'diff', 'acme'])).to.include(
      'Not compared: schema reporting',
    );

    await succeed(environment, 'tenant', ['backup', 'run', '--all']);
    const drilled = await succeed(environment, 'tenant', ['backup', 'drill', '--count', '2']);
    expect(drilled).to.match(
      /acme: proved.*; not restored: data\/\d+-reporting\.sales\.1\.csv, .*publication/,
    );
    expect(drilled).to.match(/globex: proved[^;]*$/m);

    const { document: plan } = await tenant('restore', 'swap', 'acme', '--dry-run');
    expect(plan.stays).to.have.members(names);
  });

  it('databases prune and drop keep a database with rows that are nowhere else, and name them, until --leave-schemas', async () => {
    // given: a swap has replaced it, and its time has passed
    await succeed(environment, 'tenant', ['restore', 'swap', 'acme', '--yes']);
    await controlSql(
      world,
      `update tenant_databases set keep_until = now() - interval '1 s' where kept_by = 'swap'`,
    );

    // when, then
    const { document: planned } = await tenant('databases', 'prune', '--dry-run');
    expect(planned).to.have.length(1);
    expect(planned[0]).to.include({ database: world.acme.database, action: 'refuse' });
    expect(planned[0].onlyHere).to.have.members(rows);
    expect(planned[0].holds).to.have.members([...rows, ...rest]);
    for (const command of [
      ['databases', 'prune'],
      ['databases', 'prune', 'acme'],
      ['databases', 'drop', 'acme', world.acme.database, '--yes'],
      ['databases', 'drop', 'acme', world.acme.database, '--dry-run'],
    ]) {
      const { code, document } = await tenant(...command);
      expect(code, command.join(' ')).to.equal(1);
      expect(JSON.stringify(document), command.join(' ')).to.include(
        'schema reporting (sales), table public.notes',
      );
    }
    expect(await salesOf()).to.deep.equal([{ note: 'kept only here' }]);

    // and
    const { code, document } = await tenant('databases', 'prune', '--leave-schemas');
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.have.length(1);
    const left = await sql(
      world.globex,
      `select from pg_database where datname = '${world.acme.database}'`,
    );
    expect(left).to.deep.equal([]);
  });

  it('a table that an earlier build had, and a later one has dropped, does not keep its database', async () => {
    // given: a restored database with the schema of the earlier build
    await succeed(environment, 'tenant', ['restore', 'globex', '--archive', 'latest']);
    const { document: databases } = await tenant('databases', 'globex');
    const { database } = databases.find(({ state }: { state: string }) => state === 'filled');
    await withConnection(databaseUrl(world.globex.adminUrl, database), client =>
      client.query('create table former_things (id integer)'),
    );
    await controlSql(
      world,
      `insert into schema_fingerprints (server_id, digest, head, fingerprint, objects)
       select server_id, 'of an earlier build', head, fingerprint, objects || '{"table former_things": "r p"}'
         from schema_fingerprints limit 1`,
    );

    // when
    const { code, document } = await tenant('databases', 'drop', 'globex', database, '--yes');

    // then
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document[0]).to.include({ database, action: 'drop' });
    expect(document[0].holds).to.deep.equal([]);
  });

  it('the plan of a purge names them, and the purge goes on', async () => {
    await sql(world.globex, 'create schema reporting; create table reporting.sales (id integer)');
    await succeed(environment, 'tenant', ['delete', 'globex', '--yes']);
    const { document } = await tenant('purge', 'globex', '--dry-run');
    expect(document.holds).to.deep.equal([`schema reporting (sales) in ${world.globex.database}`]);
    expect((await tenant('purge', 'globex', '--yes')).code).to.equal(0);
  });
});

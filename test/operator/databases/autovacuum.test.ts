import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { eventually } from '../../support/eventually.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('drop of a database that a worker of autovacuum is in, by a login without superuser rights', () => {
  const server = use(() =>
    createPlainServer('createdb createrole', ['autovacuum=on', 'autovacuum_naptime=1']),
  );
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const provision = (slug: string) =>
    tenant('provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`);
  const databaseOf = async (slug: string, state = 'current'): Promise<string> =>
    JSON.parse(await tenant('databases', slug, '--json')).find(
      (each: { state: string }) => each.state === state,
    ).database;
  const inDatabase = (database: string, text: string) =>
    withConnection(server.superuserUrl(database), client => client.query(text));
  const isBusy = async (database: string): Promise<boolean> =>
    (
      await server.sql(
        `select from pg_stat_activity where backend_type = 'autovacuum worker' and datname = '${database}'`,
      )
    ).length > 0;

  /** Gives a database a table whose vacuum takes minutes, and waits until a worker is at it. */
  async function keepBusy(database: string): Promise<void> {
    await inDatabase(
      database,
      `create table public.slow with (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1,
              autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0) as
         select n, repeat('x', 500) as text from generate_series(1, 50000) as n;
       alter table public.slow owner to operator;
       delete from public.slow where n % 2 = 0`,
    );
    await eventually(() => isBusy(database), 60_000);
  }

  before(async () => {
    environment = {
      DATABASE_URL: server.url('backoffice'),
      MASTER_KEY: randomBytes(32).toString('base64'),
      ...(await backupSettings(folder)),
    };
    await succeed(environment, 'control', ['migrate']);
    for (const slug of ['acme', 'globex']) await provision(slug);
    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
  });

  it('databases drop drops a restored database', async () => {
    await tenant('restore', 'globex', '--archive', 'latest');
    const database = await databaseOf('globex', 'filled');
    await keepBusy(database);

    await tenant('databases', 'drop', 'globex', database, '--yes', '--leave-schemas');

    expect(
      await server.sql(`select from pg_database where datname = '${database}'`),
    ).to.have.length(0);
  });

  it('purge drops the database of a tenant, and leaves that of the other one', async () => {
    await provision('initech');
    const database = await databaseOf('initech');
    const other = await databaseOf('globex');
    await tenant('delete', 'initech', '--yes');
    await keepBusy(database);

    await tenant('purge', 'initech', '--yes');

    expect(
      await server.sql(
        `select datname from pg_database where datname in ('${database}', '${other}')`,
      ),
    ).to.deep.equal([{ datname: other }]);
  });

  it('a drop that the login has no right to names the owner and the statement of a drop', async () => {
    await provision('umbrella');
    const database = await databaseOf('umbrella');
    await tenant('delete', 'umbrella', '--yes');
    await server.sql(`alter database "${database}" owner to postgres;
                      grant connect on database "${database}" to operator`);

    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['purge', 'umbrella', '--yes'],
      environment,
    );

    expect(code).to.equal(1);
    expect(stderr).to.include(
      `could not be dropped: its owner is postgres, and login operator may not drop it`,
    );
    expect(stderr).to.include(`drop database "${database}" with (force)`);
    expect(stderr).to.not.include('alter table');
    await server.sql(`drop database "${database}" with (force)`);
    await tenant('purge', 'umbrella', '--yes');
  });
});

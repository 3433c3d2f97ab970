import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { OperatorError } from '../../../src/lib/log/operator-error.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { inSnapshot } from '../../../src/operator/schema/snapshot.ts';
import { membersOf } from '../../support/age-archives.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { copyServer } from '../../support/copied-server.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { succeed } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { use } from '../../support/use.ts';
import { sql, type TestTenant, useWorld, type World } from '../../support/world.ts';

/**
 * Rewrites of tables, by name: each gives its table another file with the same rows, in which
 * an earlier snapshot sees none.
 */
const rewrites: Readonly<Record<string, string>> = {
  currencies: `alter table currencies alter name type text using name || ''`,
  entity_statuses: `
    create temporary table kept on commit drop as select * from entity_statuses;
    create temporary table kept_default on commit drop as select * from default_entity_status;
    truncate entity_statuses cascade;
    insert into entity_statuses overriding system value select * from kept;
    insert into default_entity_status select * from kept_default`,
  notes: 'alter table notes alter id type bigint using id + 0',
  'reports.totals': `alter table reports.totals alter total type integer using total + 0`,
  'reports.months': `
    create temporary table kept on commit drop as select * from reports.months;
    truncate reports.months restart identity;
    insert into reports.months select * from kept`,
};

/** Adds rows and tables to a tenant database, so that no table of `rewrites` is empty. */
const addTables = (tenant: TestTenant) =>
  sql(
    tenant,
    `insert into currencies (code, name) select 'X' || n, 'Currency' from generate_series(1, 9) as n;
     create table notes (id serial primary key, note text);
     insert into notes (note) values ('one'), ('two');
     create schema reports;
     create table reports.totals as select n as total from generate_series(1, 7) as n;
     create table reports.months (month int, id serial) partition by list (month);
     create table reports.january partition of reports.months for values in (1);
     create table reports.february partition of reports.months for values in (2);
     insert into reports.months select 1 + n % 2 from generate_series(1, 8) as n`,
  );

describe('tables that are written anew while they are copied', () => {
  const archives = useServerFolder('archives');
  let servers: TwoServers;
  let world: World;
  let proxy: SilentProxy;
  /** Settings of commands that reach the first server through the proxy. */
  let environment: Record<string, string>;
  let expected: Record<string, number>;

  const run = (...args: string[]) => succeed(environment, 'tenant', args);

  /** Counts the rows of the tables in a database, of those that it has. */
  const countRows = (url: string, names = Object.keys(rewrites)): Promise<Record<string, number>> =>
    withConnection(url, async client => {
      const counts: Record<string, number> = {};
      for (const name of names) {
        const { rows } = await client.query<{ count: number }>(
          `select count(*)::int as count from ${name}`,
        );
        counts[name] = rows[0]?.count ?? -1;
      }
      return counts;
    });

  /**
   * Runs a command, and rewrites the tables of a database before each packet that it sends
   * there, unless something holds them.
   * @returns the number of rewrites that were made, and the result of the command
   */
  async function whileRewriting<T>(
    url: string,
    statements: readonly string[],
    work: () => Promise<T>,
  ): Promise<{ result: T; made: number }> {
    let made = 0;
    const rewriteAll = (): Promise<void> =>
      withConnection(url, async client => {
        await client.query(`set lock_timeout = 10; set session_replication_role = replica`);
        for (const statement of statements) {
          const done = await client.query(`begin; ${statement}; commit`).catch(() => undefined);
          if (done) made++;
          else await client.query('rollback');
        }
      });
    const database = new URL(url).pathname.slice(1);
    const end = proxy.beforeEach(database, rewriteAll);
    try {
      const result = await work();
      return { result, made };
    } finally {
      end();
    }
  }

  const rewriting = <T>(work: () => Promise<T>, { adminUrl } = world.acme) =>
    whileRewriting(adminUrl, Object.values(rewrites), work);

  /** Returns the rows of each table of an archive, by its manifest. */
  async function archivedRows(name: string): Promise<Record<string, number>> {
    const identity = await readFile(environment.BACKUP_IDENTITY_FILE ?? '', 'utf8');
    const members = await membersOf({
      bytes: await readFile(join(archives, name)),
      identity: { identity: identity.trim(), recipient: environment.BACKUP_RECIPIENTS ?? '' },
    });
    const { tables } = JSON.parse(members.at(-1)?.content.toString() ?? '');
    return Object.fromEntries(
      tables.map(({ schema, name, rows }: { schema: string; name: string; rows: number }) => [
        schema === 'public' ? name : `${schema}.${name}`,
        rows,
      ]),
    );
  }

  before(async () => {
    servers = await TwoServers.start(await backupSettings(archives));
    ({ world } = servers);
    proxy = await startSilentProxy();
    environment = {
      ...world.environment,
      DATABASE_URL: proxy.through(world.environment.DATABASE_URL ?? ''),
    };
    await addTables(world.acme);
    await succeed(world.environment, 'tenant', ['backup', 'init']);
    expected = await countRows(world.acme.adminUrl);
    expect(Object.values(expected)).to.not.include(0);
  });
  after(async () => {
    await proxy.close();
    await servers.close();
  });

  it('an archive of a tenant has all rows of tables that are rewritten before each step of it', async () => {
    // a database without a change since its last archive is not archived again
    await sql(world.acme, `insert into tax_codes (code, name, rate) values ('NEW', 'New', 1)`);

    const { made } = await rewriting(() => run('backup', 'run', 'acme'));

    expect(made).to.be.above(0);
    const [newest] = JSON.parse(await run('backup', 'list', 'acme', '--json'));
    expect(await archivedRows(newest.name)).to.include(expected);
  });

  it('an archive of the control database has all rows of tables that are rewritten before each step of it', async () => {
    const control = databaseUrl(
      postgresUrl(),
      new URL(world.environment.DATABASE_URL ?? '').pathname.slice(1),
    );
    const counts = await countRows(control, ['roles', 'users']);

    const { made } = await whileRewriting(
      control,
      [
        `alter table roles alter name type text using name || ''`,
        `alter table users alter first_name type text using first_name || ''`,
      ],
      () => run('backup', 'run', '--all'),
    );

    expect(made).to.be.above(0);
    const listed: { slug: string | null; name: string }[] = JSON.parse(
      await run('backup', 'list', '--json'),
    );
    const newest = listed.find(({ slug }) => slug === null);
    expect(await archivedRows(newest?.name ?? '')).to.include(counts);
  });

  it('an export of a tenant has all rows of tables that are rewritten before each step of it', async () => {
    const file = join(archives, 'export.tar');

    const { result } = await rewriting(() => run('export', 'acme', '--to', file, '--json'));

    const { tables } = JSON.parse(result);
    const rows = tables.map(({ name, rows }: { name: string; rows: number }) => [name, rows]);
    expect(Object.fromEntries(rows)).to.include(expected);
  });

  it('a clone has all rows of tables that are rewritten before each step of it', async () => {
    const { result } = await rewriting(() => run('clone', 'acme', 'acme-copy', '--json'));

    const names = ['currencies', 'entity_statuses', 'notes'];
    const { currencies, entity_statuses, notes } = expected;
    expect(
      await countRows(databaseUrl(postgresUrl(), JSON.parse(result).database), names),
    ).to.deep.equal({ currencies, entity_statuses, notes });
  });

  it('a comparison with restored data finds no difference in tables that are rewritten before each step of it', async () => {
    await run('backup', 'run', 'acme');
    await run('restore', 'acme', '--archive', 'latest');

    const { result } = await rewriting(() => run('restore', 'diff', 'acme', '--json'));

    expect(JSON.parse(result).tables).to.deep.equal([]);
  });

  for (const [what, change, names] of [
    ['adds a column', 'alter table currencies add later text', 'currencies'],
    ['adds a table', 'create table later (id int)', 'later'],
    ['drops a table', 'drop table later', 'later'],
  ] as const) {
    for (const [when, packet] of [
      ['while tables are copied', 'access share mode'],
      ['behind the fence', 'in share mode'],
    ] as const) {
      it(`a move stops and leaves the tenant where it is when somebody ${what} ${when}`, async () => {
        await sql(
          world.acme,
          'alter table currencies drop if exists later; drop table if exists later',
        );
        if (what === 'drops a table') await sql(world.acme, 'create table later (id int)');
        const states = await servers.states();
        const changes: Promise<object[]>[] = [];
        const end = proxy.beforeEach(world.acme.database, async bytes => {
          if (changes.length === 0 && bytes.includes(packet)) {
            changes.push(sql(world.acme, change));
            await changes[0];
          }
        });

        const { code, stderr } = await runCommand(
          'scripts/tenant.ts',
          ['move', 'acme', '--to', 'second', '--pause', '60', '--leave-schemas'],
          environment,
        );
        end();

        expect(changes).to.have.length(1);
        expect(code).to.equal(1);
        expect(stderr).to.include('somebody has changed tables of the tenant database');
        expect(stderr).to.match(new RegExp(`${names}|of the tenant database while`));
        expect(await servers.states()).to.deep.equal(states);
      });
    }
  }

  it('a move takes all rows of tables along that are rewritten before each step of it', async () => {
    const moved = await world.provision('initech', 'default');
    await addTables(moved);

    await rewriting(
      () => run('move', 'initech', '--to', 'second', '--pause', '60', '--leave-schemas', '--json'),
      moved,
    );

    const names = ['currencies', 'entity_statuses', 'notes'];
    const { currencies, entity_statuses, notes } = expected;
    expect(await countRows(await servers.currentUrl('initech'), names)).to.deep.equal({
      currencies,
      entity_statuses,
      notes,
    });
  });
});

describe('a snapshot of a database', () => {
  const world = useWorld();
  const proxy = use(() => startSilentProxy());

  /** Runs SQL as another session, which gives up at once when something is locked. */
  const meanwhile = (text: string) =>
    sql(world.acme, `set lock_timeout = 10; ${text}`).then(
      () => 'done',
      ({ code }) => code,
    );

  /** Begins a snapshot, after `work` before the packet with this text. */
  async function inSnapshotAfter<T>(
    text: string,
    work: () => Promise<unknown>,
    inside: (client: pg.Client) => Promise<T>,
  ): Promise<T> {
    const end = proxy.beforeEach(world.acme.database, async packet => {
      if (packet.includes(text)) await work();
    });
    try {
      return await withConnection(proxy.through(world.acme.adminUrl), client =>
        inSnapshot(client, () => inside(client)),
      );
    } finally {
      end();
    }
  }

  before(() =>
    sql(
      world.acme,
      `create schema reports;
       create table reports.totals as select 1 as total;
       create table reports.months (month int) partition by list (month);
       create table reports.january partition of reports.months for values in (1);
       create view reports.all_totals as select * from reports.totals;
       create materialized view reports.sums as select sum(total) from reports.totals;
       create foreign data wrapper nothing;
       create server far foreign data wrapper nothing;
       create foreign table reports.remote (id integer) server far;
       create foreign table reports.february partition of reports.months for values in (2) server far`,
    ),
  );

  for (const [title, truncated, result] of [
    ['a table of the tenant', 'truncate currencies cascade', '55P03'],
    ['a table of another schema', 'truncate reports.totals', '55P03'],
    ['a partitioned table', 'truncate reports.months', '55P03'],
    ['a partition', 'truncate reports.january', '55P03'],
    ['a column that is written anew', 'alter table notes alter id type bigint', '55P03'],
    ['a table that is made later', 'create table reports.later ()', 'done'],
    ['a row', 'delete from reports.totals where total = 2', 'done'],
  ] as const) {
    it(`during a snapshot, a change of ${title} is ${result === 'done' ? 'made' : 'locked out'}`, async () => {
      await sql(world.acme, 'create table if not exists notes (id serial)');

      const found = await withConnection(world.acme.adminUrl, client =>
        inSnapshot(client, () => meanwhile(truncated)),
      );

      expect(found).to.equal(result);
    });
  }

  it('a snapshot that has waited for a rewrite of a table has the rows of the table', async () => {
    await sql(world.acme, 'create table waited as select 1 as id');
    const writer = new pg.Client(world.acme.adminUrl);
    await writer.connect();
    await writer.query('begin; alter table waited alter id type bigint');

    const reading = withConnection(world.acme.adminUrl, client =>
      inSnapshot(client, () => client.query('select * from waited')),
    );
    await eventually(async () => (await readLockWaiters(writer)).length > 0);
    await writer.query('commit');
    await writer.end();

    expect((await reading).rows).to.deep.equal([{ id: '1' }]);
  });

  it('a table that is made after the tables were listed is locked, or the snapshot does not have it', async () => {
    const made: number[] = [];

    const found = await inSnapshotAfter(
      'lock table',
      async () => {
        if (made.length < 2) await sql(world.acme, `create table made${made.push(1)} (id int)`);
      },
      async client => {
        const { rows } = await client.query<{ name: string }>(
          `select relname as name from pg_class where relname ~ '^made' order by 1`,
        );
        return Promise.all(rows.map(({ name }) => meanwhile(`truncate ${name}`)));
      },
    );

    expect(found).to.deep.equal(['55P03', '55P03']);
  });

  it('a table that is dropped or replaced after the tables were listed is read as it is then', async () => {
    await sql(world.acme, 'create table dropped (); create table replaced ()');
    let count = 0;

    const found = await inSnapshotAfter(
      'lock table',
      async () => {
        if (count++ > 0) return;
        await sql(
          world.acme,
          `drop table dropped; drop table replaced; create table replaced as select 1 as id`,
        );
      },
      async client => [
        (await client.query('select * from replaced')).rows,
        await meanwhile('truncate replaced'),
      ],
    );

    expect(found).to.deep.equal([[{ id: 1 }], '55P03']);
  });

  it('a command gives up with a sentence when tables are made each time that it begins', async () => {
    let count = 0;

    const failed = await inSnapshotAfter(
      'lock table',
      () => sql(world.acme, `create table again${count++} ()`),
      async () => undefined,
    ).catch(error => error);

    expect(failed).to.be.instanceOf(OperatorError);
    expect(failed.message).to.include('made, dropped or renamed each time');
    expect(count).to.equal(5);
  });

  it('a command that cannot lock a table names the table and the session that holds it', async () => {
    const holder = new pg.Client({
      connectionString: world.acme.adminUrl,
      application_name: 'a long change',
    });
    await holder.connect();
    await holder.query('begin; lock table currencies');

    const failed = await withConnection(
      world.acme.adminUrl,
      client => inSnapshot(client, async () => undefined),
      { settings: { lock_timeout: '100ms' } },
    ).catch(error => error);
    await holder.end();

    expect(failed).to.be.instanceOf(OperatorError);
    expect(failed.message).to.match(
      /public\.currencies has been locked for more than 100 ms by a long change of login .*\(pid \d+/,
    );
  });

  it('a table that the login may not read does not hinder the snapshot of all others', async () => {
    const role = `${world.acme.database}_reader`;
    await sql(
      world.acme,
      `create role "${role}" login password 'secret'; grant connect on database "${world.acme.database}" to "${role}";
       grant usage on schema reports to "${role}"; grant select on reports.totals to "${role}"`,
    );
    const url = Object.assign(new URL(world.acme.adminUrl), { username: role, password: 'secret' });

    const found = await withConnection(url.href, client =>
      inSnapshot(client, () =>
        Promise.all([
          meanwhile('truncate reports.totals'),
          meanwhile('truncate currencies cascade'),
        ]),
      ),
    );
    await sql(world.acme, `drop owned by "${role}"; drop role "${role}"`);

    expect(found).to.deep.equal(['55P03', 'done']);
  });

  it('a snapshot of a server in recovery holds its tables, too', async () => {
    const [primary] = await sql<{ max: string }>(
      world.acme,
      `select current_setting('max_connections') as max`,
    );
    const copy = await copyServer(postgresUrl(), {
      recovers: true,
      extraSettings: [`max_connections=${primary?.max}`],
    });
    try {
      const url = databaseUrl(copy.url, world.acme.database);
      const locked = await withConnection(url, client =>
        inSnapshot(client, async () => {
          const { rows } = await client.query(
            `select from pg_locks where relation = 'currencies'::regclass and mode = 'AccessShareLock' and pid = pg_backend_pid()`,
          );
          return rows.length;
        }),
      );
      expect(locked).to.equal(1);
    } finally {
      await copy.close();
    }
  });
});

import { Migrator } from '@mikro-orm/migrations';
import { MikroORM } from '@mikro-orm/postgresql';
import { expect } from 'chai';
import { loadMigrations } from '../../../src/postgres/migration-steps.ts';
import { createEarlier, day, migrationName, move, query, runTenantDatabases } from '../../support/earlier-control.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';

/** SQL of a name that a tenant had. */
const former = (slug: string, database: string, until: string, server = 'alpha'): string => `
  insert into former_databases (tenant_id, server_id, database_name, until)
  select t.id, s.id, '${database}', '${until}' from tenants t, servers s where slug = '${slug}' and s.name = '${server}'`;

/** `acme` had another database from day 3 to day 5 and from day 7 to day 8, its own before and between. */
const history = [
  former('acme', 'one_tenant_1', day(3)),
  former('acme', 'one_tenant_77', day(5)),
  former('acme', 'one_tenant_1', day(7)),
  former('acme', 'one_tenant_77', day(8)),
  former('isle', 'one_tenant_2', day(2)),
  former('isle', 'two_tenant_8', day(4), 'beta'),
  former('isle', 'one_tenant_7', day(6)),
  move('isle', 'settled', 'one_tenant_2', ', ended_at', ', now()'),
  move('isle', 'aborted', 'one_tenant_2', ', ended_at', ', now()'),
  move('isle', 'switched', 'one_tenant_7', ', switched_at, reversible_until', `, '${day(6)}', '${day(13)}'`),
];

const warm = `
  insert into warm_databases (id, server_id, digest, ready_at, created_at)
  select warm.id, s.id, 'digest', ready::timestamptz, '${day(2)}'
    from (values (100, '${day(3)}'), (101, null)) as warm (id, ready), servers s where s.name = 'alpha'`;

const databases = `
  select coalesce(slug, '–') as slug, s.name as server, d.database_name as database, d.role_name as role, state, kept_by as "keptBy",
         convert_from(d.role_password, 'UTF8') as password, d.schema_version as version, digest,
         to_char(keep_until at time zone 'UTC', 'DD') as "keepUntil",
         to_char(current_since at time zone 'UTC', 'DD') as since,
         array(select to_char(lower(span) at time zone 'UTC', 'DD') || '-' || to_char(upper(span) at time zone 'UTC', 'DD')
                 from unnest(current_during) as span order by lower(span)) as during,
         filled_at is not null as "isFilled"
    from tenant_databases d left join tenants t on t.id = tenant_id join servers s on s.id = d.server_id
   order by slug nulls last, state, d.database_name`;

describe('control migration of the databases of tenants', () => {
  const createScratch = useScratchDatabases();

  async function down(url: string): Promise<void> {
    const all = await loadMigrations('control');
    const migrationsList = all.slice(0, all.findIndex(each => each.name === migrationName) + 1);
    const orm = new MikroORM({
      clientUrl: url,
      entities: [],
      discovery: { warnWhenNoEntities: false },
      ensureDatabase: false,
      extensions: [Migrator],
      driverOptions: { connectionString: url, max: 1 },
      migrations: { migrationsList, tableName: 'migrations', snapshot: false, silent: true },
    });
    await orm.migrator.down().finally(() => orm.close(true));
  }

  const own = { version: null, digest: null, keptBy: null, keepUntil: null, during: [], since: null, isFilled: true };
  const ofName = (slug: string, database: string, server = 'alpha') => ({
    ...own,
    slug,
    server,
    database,
    role: `${database}_role`,
    password: 'sealed',
  });
  const nameOnly = (slug: string, database: string, during: string[], server = 'alpha') => ({
    ...ofName(slug, database, server),
    role: database,
    password: null,
    state: 'gone',
    during,
    isFilled: false,
  });
  const expected = [
    { ...ofName('acme', 'one_tenant_1'), state: 'current', version: '0026-a', since: '08' },
    nameOnly('acme', 'one_tenant_1', ['01-03', '05-07']),
    nameOnly('acme', 'one_tenant_77', ['03-05', '07-08']),
    { ...ofName('ending', 'one_tenant_6'), state: 'condemned', version: '0026-e', since: null },
    { ...ofName('fresh', 'one_tenant_5'), state: 'reserved', isFilled: false },
    { ...ofName('gone', 'one_tenant_4'), state: 'current', version: '0026-d', since: '01' },
    { ...ofName('isle', 'two_tenant_9', 'beta'), state: 'current', version: '0026-b', since: '06' },
    nameOnly('isle', 'one_tenant_2', ['01-02']),
    nameOnly('isle', 'two_tenant_8', ['02-04'], 'beta'),
    {
      ...nameOnly('isle', 'one_tenant_7', ['04-06']),
      state: 'kept',
      keptBy: 'move',
      role: 'one_tenant_7_role',
      keepUntil: '13',
    },
    { ...ofName('quiet', 'one_tenant_3'), state: 'current', version: '0025-c', since: '01' },
    {
      ...ofName('–', 'one_warm_101'),
      state: 'condemned',
      role: 'one_warm_101',
      password: null,
      digest: 'digest',
      isFilled: false,
    },
    { ...ofName('–', 'one_warm_100'), state: 'filled', role: 'one_warm_100', password: null, digest: 'digest' },
  ];

  it('every database that the build before knows has a row, with its state and the times during which it was current', async () => {
    const url = await createEarlier(await createScratch(), ...history, warm);
    expect(await runTenantDatabases(url)).to.deep.equal([migrationName]);
    const found = await query(url, databases);
    expect(found).to.have.deep.members(expected);
    const [tables] = await query(
      url,
      `select to_regclass('tenant_moves') as a, to_regclass('restored_tenants') as b, to_regclass('former_databases') as c,
              to_regclass('warm_databases') as d, to_regproc('remember_database') as e`,
    );
    expect(tables).to.deep.equal({ a: null, b: null, c: null, d: null, e: null });
  });

  it('the numbers of databases do not collide with those that come later', async () => {
    const url = await createEarlier(await createScratch(), ...history);
    await query(
      url,
      `insert into warm_databases select nextval(pg_get_serial_sequence('tenants', 'id')), 1, 'x', now(), now()`,
    );
    await runTenantDatabases(url);
    const [{ next, max } = { next: '', max: '' }] = await query<{ next: string; max: string }>(
      url,
      `select nextval(pg_get_serial_sequence('tenants', 'id')) as next, (select max(id) from tenant_databases) as max`,
    );
    expect(Number(next)).to.be.above(Number(max));
  });

  it('the migration is reverted and repeated without loss of names, and is not while databases need this build', async () => {
    const url = await createEarlier(await createScratch(), ...history, warm);
    await runTenantDatabases(url);
    const fault = await down(url).catch((error: Error) => error.message);
    expect(fault).to.include('The control database has databases that an earlier build does not know');
    expect(await query(url, databases)).to.have.deep.members(expected);

    await query(
      url,
      `delete from tenant_databases where state in ('reserved', 'filled', 'kept', 'condemned')`,
      `delete from tenants where slug in ('fresh', 'ending')`,
    );
    const before = await query(url, databases);
    await down(url);
    const names = await query<{ slug: string; database: string; until: string }>(
      url,
      `select slug, f.database_name as database, to_char(until at time zone 'UTC', 'DD') as until
         from former_databases f join tenants t on t.id = tenant_id order by slug, f.until`,
    );
    expect(names.map(({ slug, database, until }) => `${slug} ${database} ${until}`)).to.deep.equal([
      'acme one_tenant_1 03',
      'acme one_tenant_77 05',
      'acme one_tenant_1 07',
      'acme one_tenant_77 08',
      'isle one_tenant_2 02',
      'isle two_tenant_8 04',
    ]);
    await query(url, `update tenants set database_name = 'renamed' where slug = 'gone'`);
    const [remembered] = await query(
      url,
      `select database_name as name from former_databases order by until desc limit 1`,
    );
    expect(remembered).to.deep.equal({ name: 'one_tenant_4' });
    await query(
      url,
      `delete from former_databases where database_name = 'one_tenant_4'`,
      'alter table tenants disable trigger remember_database',
      `update tenants set database_name = 'one_tenant_4' where slug = 'gone'`,
    );
    expect(await runTenantDatabases(url)).to.deep.equal([migrationName]);
    // The time of the kept database is lost with it.
    const without = (rows: object[]) => rows.filter(row => (row as { slug: string }).slug !== 'isle');
    expect(without(await query(url, databases))).to.have.deep.members(without(before));
  });
});

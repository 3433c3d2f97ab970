import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { useEach } from '../../support/use.ts';
import { controlSql } from '../../support/world.ts';

/** The objects that people and programs make in a database that is not theirs alone. */
const make = `
  create extension pg_stat_statements;
  create extension hstore;
  create schema vectors;
  create extension ltree with schema vectors;
  create schema reporting;
  create table reporting.sales as select 1 as id, 'kept only here' as note;
  create view reporting.totals as select count(*) from reporting.sales;
  create function reporting.noted() returns event_trigger language plpgsql as 'begin end';
  create materialized view reporting.sums as select count(*) from reporting.sales;
  create type reporting.mood as enum ('good', 'bad');
  create rule quiet as on update to reporting.sales do also nothing;
  create statistics reporting.pairs on id, note from reporting.sales;
  create collation reporting.german (provider = icu, locale = 'de');
  create conversion reporting.of_texts for 'LATIN1' to 'UTF8' from iso8859_1_to_utf8;
  create operator reporting.=== (leftarg = text, rightarg = text, function = texteq);
  create operator class reporting.texts for type text using hash as operator 1 =, function 1 hashtext(text);
  create cast (xid8 as money) with inout as assignment;
  create text search dictionary reporting.words (template = simple);
  create text search configuration reporting.plain (copy = simple);
  create foreign data wrapper nothing;
  create server far foreign data wrapper nothing;
  create user mapping for public server far options (password 'hush');
  create foreign table reporting.remote (id integer) server far;
  create access method heap_of_theirs type table handler heap_tableam_handler;
  alter default privileges in schema public grant select on tables to reader;
  create event trigger ddl_noted on ddl_command_end execute function reporting.noted();
  create publication elsewhere for all tables;
  create subscription incoming connection 'host=nowhere.invalid dbname=x' publication p
    with (connect = false, enabled = false, slot_name = none);
  select pg_create_logical_replication_slot('outgoing', 'pgoutput');
  select lo_from_bytea(0, 'a large object');
  grant usage on schema reporting to reader;
  grant select on reporting.sales to reader`;
const rows = ['large objects', 'schema reporting (sales)'];
const others = [
  'access method heap_of_theirs',
  'cast (pg_catalog.xid8 AS pg_catalog.money)',
  'collation reporting.german',
  'conversion reporting.of_texts',
  'default rights for role postgres in schema public on tables',
  'event trigger ddl_noted',
  'extension hstore',
  'extension ltree',
  'extension pg_stat_statements',
  'foreign server far',
  'foreign table reporting.remote',
  'foreign-data wrapper nothing',
  'function reporting.noted()',
  'materialized view reporting.sums',
  'operator class reporting.texts USING hash',
  'operator reporting.===(pg_catalog.text,pg_catalog.text)',
  'publication elsewhere',
  'replication slot outgoing',
  'rights of reader',
  'rule quiet on reporting.sales',
  'setting work_mem',
  'setting statement_timeout of reader',
  'statistics object reporting.pairs',
  'subscription incoming',
  'text search configuration reporting.plain',
  'text search dictionary reporting.words',
  'type reporting.mood',
  'view reporting.totals',
];

/**
 * Catalogs of what is a part of another object, or is only there with a module in C, which an
 * extension brings.
 */
const partsAndModules =
  'pg_amop pg_amproc pg_attrdef pg_constraint pg_language pg_opfamily pg_policy pg_publication_namespace pg_publication_rel pg_transform pg_trigger pg_ts_parser pg_ts_template'.split(
    ' ',
  );

/**
 * The table of the handbook, *What becomes of what others have made in a tenant's database*, is
 * held by this file.
 */
describe('a tenant database with all that others can make in it', () => {
  const archives = useServerFolder('archives');
  const servers = useEach(async () =>
    TwoServers.start(await backupSettings(await mkdtemp(join(archives, 'target-'))), [
      'wal_level=logical',
      'max_wal_senders=2',
    ]),
  );
  let database: string;

  const onSecond = (text: string, name = database) =>
    withConnection(databaseUrl(servers.second.url, name), client => client.query(text));
  const json = async (...args: string[]) => JSON.parse(await servers.runWell([...args, '--json']));
  /** Returns the names of what the database has, as the commands name it. */
  const held = async (): Promise<string[]> =>
    (await json('move', 'acme', '--to', 'default', '--leave-schemas', '--dry-run')).leaves;

  beforeEach(async () => {
    await servers.move('acme', '--to', 'second');
    database =
      (await servers.databases('acme')).find(({ state }) => state === 'current')?.database ?? '';
    await onSecond('create role reader', 'postgres');
    for (const statement of make.split(';\n')) await onSecond(statement);
    await onSecond(`alter database "${database}" set work_mem = '16MB'`);
    await onSecond(`alter role reader in database "${database}" set statement_timeout = '1min'`);
    await onSecond('create database of_somebody_else', 'postgres');
  });

  /** Adds a table without columns that copies take along. */
  async function addFlags(): Promise<void> {
    await onSecond('create table public.flags (); insert into public.flags default values');
    await onSecond('alter table public.flags owner to operator');
  }

  async function archive(): Promise<void> {
    await servers.runWell(['backup', 'init']);
    await servers.runWell(['backup', 'run', 'acme']);
  }

  it('there is an object here of each catalog that PostgreSQL has for the objects of a database', async () => {
    const { rows: catalogs } = await onSecond(
      `select c.oid::regclass::text as name from pg_class c join pg_attribute on attrelid = c.oid and attname = 'oid'
        where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared order by 1`,
    );

    const empty: string[] = [];
    for (const { name } of catalogs) {
      const { rowCount } = await onSecond(
        `select from ${name} as made where oid >= 16384 and not exists (
           select from pg_depend where (classid, objid, deptype) = ('${name}'::regclass, made.oid, 'e')) limit 1`,
      );
      if (rowCount === 0 && !partsAndModules.includes(name)) empty.push(name);
    }
    expect(empty).to.deep.equal([]);
  });

  it("doctor and migrate have no objection: what belongs to extensions and other schemas is nobody's drift", async () => {
    await controlSql(
      servers.world,
      `update tenants set schema_fingerprint = null where slug = 'acme'`,
    );

    await servers.runWell(['migrate', 'acme']);
    const { findings } = JSON.parse((await servers.run(['doctor', '--json'])).stdout);

    expect(
      findings.filter(({ tenant }: Record<string, string>) => tenant === 'acme'),
    ).to.deep.equal([]);
  });

  it('a clone has the tables of public, also one without columns, and names what it does not have', async () => {
    await addFlags();

    const { code, stdout, stderr } = await servers.run(['clone', 'acme', 'acme-copy', '--json']);

    expect(code, stderr).to.equal(0);
    for (const name of [...rows, ...others]) expect(stderr).to.include(name);
    const { database: copy } = JSON.parse(stdout);
    expect(
      (await onSecond('select count(*)::int as count from public.flags', copy)).rows,
    ).to.deep.equal([{ count: 1 }]);
    expect(
      (await onSecond(`select from pg_namespace where nspname = 'reporting'`, copy)).rowCount,
    ).to.equal(0);
    expect(await held()).to.include.members([...rows, ...others]);
  });

  it('a restore, its diff, a swap and its undoing leave all of it where it is, and name it before and after', async () => {
    await addFlags();
    const alone = [...rows, ...others, 'table public.flags'];
    const isLeft = async (): Promise<void> => {
      expect((await onSecond('select note from reporting.sales')).rows).to.deep.equal([
        { note: 'kept only here' },
      ]);
      expect(
        (await onSecond('select count(*)::int as count from pg_largeobject_metadata')).rows,
      ).to.deep.equal([{ count: 1 }]);
      const publications = await onSecond('select pubname as name from pg_publication');
      expect(publications.rows).to.deep.equal([{ name: 'elsewhere' }]);
    };
    await archive();

    const restored = await servers.run(['restore', 'acme', '--archive', 'latest', '--json']);

    expect(restored.code, restored.stderr).to.equal(0);
    const beside = JSON.parse(restored.stdout).database;
    const notRestored = [
      'table reporting.sales (the login may not read it)',
      'large objects (',
      ...others,
    ];
    for (const name of notRestored) {
      expect(restored.stderr).to.include(name);
    }
    expect(
      (await onSecond(`select from pg_namespace where nspname = 'reporting'`, beside)).rowCount,
    ).to.equal(0);

    const { notCompared } = await json('restore', 'diff', 'acme');
    for (const name of [...rows, ...others]) {
      expect(notCompared).to.include(`${name} in ${database}`);
    }

    const { stays } = await json('restore', 'swap', 'acme', '--dry-run');
    expect(stays).to.include.members(alone.filter(name => name !== 'table public.flags'));
    await servers.runWell(['restore', 'swap', 'acme', '--yes']);
    expect(new URL(await servers.currentUrl('acme')).pathname).to.equal(`/${beside}`);
    await isLeft();

    await servers.runWell(['restore', 'back', 'acme', '--yes']);
    expect(new URL(await servers.currentUrl('acme')).pathname).to.equal(`/${database}`);
    await isLeft();
    await servers.runWell(['databases', 'drop', 'acme', beside, '--yes']);
  });

  it('a clone of an archive has its data, and names what others have made in its source', async () => {
    await archive();
    const { code, stdout, stderr } = await servers.run([
      'clone',
      'acme',
      'acme-then',
      '--archive',
      'latest',
      '--json',
    ]);

    expect(code, stderr).to.equal(0);
    for (const name of ['table reporting.sales', ...others]) {
      expect(stderr).to.include(name);
    }
    const { database: copy } = JSON.parse(stdout);
    expect(
      (await onSecond(`select from pg_namespace where nspname = 'reporting'`, copy)).rowCount,
    ).to.equal(0);
    expect((await onSecond('select from countries', copy)).rowCount).to.equal(
      (await onSecond('select from countries')).rowCount,
    );
  });

  it('a move takes the tables of public along, is refused while others would lose rows, and leaves the rest where it is', async () => {
    await addFlags();

    const refused = await servers.run(['move', 'acme', '--to', 'default']);
    const plan = await json('move', 'acme', '--to', 'default', '--leave-schemas', '--dry-run');

    expect(refused.code).to.equal(1);
    for (const name of rows) expect(refused.stderr).to.include(name);
    expect(plan.leaves).to.include.members([...rows, ...others]);
    expect(plan.withoutIndexes).to.deep.equal(['public.flags']);

    await servers.move('acme', '--to', 'default', '--leave-schemas');
    const moved = await withConnection(await servers.currentUrl('acme'), client =>
      client.query('select count(*)::int as count from public.flags'),
    );
    expect(moved.rows).to.deep.equal([{ count: 1 }]);
    expect((await onSecond('select note from reporting.sales')).rows).to.deep.equal([
      { note: 'kept only here' },
    ]);
  });

  it('databases prune, databases drop and move settle refuse the old database while it alone has rows, and name all of it', async () => {
    await servers.move('acme', '--to', 'default', '--leave-schemas');
    await controlSql(
      servers.world,
      `update tenant_databases set keep_until = now() - interval '1 s' where kept_by = 'move'`,
    );

    for (const command of [
      ['databases', 'prune', 'acme'],
      ['databases', 'drop', 'acme', database, '--yes'],
      ['move', 'settle', 'acme', '--yes'],
    ]) {
      const { code, stderr } = await servers.run(command);
      expect(code, command.join(' ')).to.equal(1);
      for (const name of rows) expect(stderr, command.join(' ')).to.include(name);
    }
    const [planned] = await json('databases', 'prune', 'acme', '--dry-run');
    expect(planned.action).to.equal('refuse');
    expect(planned.holds).to.include.members([...rows, ...others]);
    expect((await onSecond('select note from reporting.sales')).rows).to.deep.equal([
      { note: 'kept only here' },
    ]);
  });

  it('a purge names all of it, then a subscription that keeps the database, and leaves the databases of others', async () => {
    await archive();
    await servers.runWell(['delete', 'acme', '--yes']);
    const { holds } = await json('purge', 'acme', '--dry-run');
    expect(holds).to.include.members([...rows, ...others].map(name => `${name} in ${database}`));

    const refused = await servers.run(['purge', 'acme', '--yes']);
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include('it has a subscription');

    await onSecond('drop subscription incoming');
    await servers.runWell(['purge', 'acme', '--yes']);
    const left = await onSecond(
      `select datname as name from pg_database where datname in ('of_somebody_else', '${database}')`,
      'postgres',
    );
    expect(left.rows).to.deep.equal([{ name: 'of_somebody_else' }]);
    expect(await servers.serverOf('globex')).to.equal('default');
    await servers.runWell(['migrate', 'globex']);
  });
});

import { readFile, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import {
  findForeignPage,
  type MigrationFolder,
  migrationNames,
  pageDigests,
} from '../../../src/lib/postgres/migration-names.ts';
import { loadMigrations, runMigrations } from '../../../src/lib/postgres/migration-steps.ts';
import { migrationSettings } from '../../../src/operator/schema/template.ts';
import { makeNextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';
import { server } from '../../support/test-server.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

const folders: MigrationFolder[] = ['control', 'tenant'];
const first = '0001-first-schema';

/** Foreign keys without an index, because the referring table is small or its scan is rare. */
const unindexed: Record<MigrationFolder, string[]> = {
  control: [
    // a server is removed rarely, and the tables have a row for each tenant
    'tenant_databases_server_id_fkey',
    'tenants_server_id_fkey',
  ],
  tenant: [
    'default_entity_status_status_id_fkey', // one row
    'promotions_currency_id_fkey', // a currency is marked as deleted, and not removed
  ],
};

describe('first schema', () => {
  const createScratch = useScratchDatabases();

  /** Returns the rows of a query in a new database with all migrations of a folder. */
  async function readSchema(folder: MigrationFolder, text: string): Promise<{ name: string }[]> {
    const url = await createScratch();
    const settings = folder === 'tenant' ? migrationSettings(server) : {};
    await runMigrations(url, await loadMigrations(folder), settings);

    return withConnection(url, async client => (await client.query(text)).rows);
  }

  for (const folder of folders) {
    it(`each table of the ${folder} database has a comment that says what a row is`, async () => {
      const rows = await readSchema(
        folder,
        `select relname as name from pg_class
          where relnamespace = 'public'::regnamespace and relkind = 'r' and obj_description(oid, 'pg_class') is null`,
      );

      expect(rows).to.deep.equal([]);
    });

    it(`each table of the ${folder} database has a primary key, by which logical replication finds a row`, async () => {
      const rows = await readSchema(
        folder,
        `select relname as name from pg_class c
          where relnamespace = 'public'::regnamespace and relkind = 'r'
            and not exists (select from pg_index where indrelid = c.oid and indisprimary)`,
      );

      expect(rows).to.deep.equal([]);
    });

    it(`each foreign key of the ${folder} database has an index, so that a deletion reads few rows`, async () => {
      const rows = await readSchema(
        folder,
        `select conname as name from pg_constraint k
          where contype = 'f' and connamespace = 'public'::regnamespace
            and not exists (
              select from pg_index
               where indrelid = conrelid and indpred is null and (indkey::int2[])[0] = any (conkey))
          order by 1`,
      );

      expect(rows.map(({ name }) => name)).to.deep.equal(unindexed[folder]);
    });

    it(`no function of the ${folder} database reads a table that its caller has put in its place`, async () => {
      const rows = await readSchema(
        folder,
        `select distinct proname as name, relname as "table" from pg_proc
           join pg_class c on c.relnamespace in ('public'::regnamespace, 'pg_catalog'::regnamespace)
            and prosrc ~ ('\\m(from|join|update|into|table)\\s+' || relname || '\\M')
          where pronamespace = 'public'::regnamespace
            and not exists (select from unnest(proconfig) setting where setting ~ '^search_path=.*pg_temp$')`,
      );

      expect(rows).to.deep.equal([]);
    });

    it(`a ${folder} database stores the digest of the page beside its version`, async () => {
      const rows = await readSchema(folder, 'select name, digest from migrations');

      const digests = await pageDigests(folder);
      const expected = (await migrationNames(folder)).map(name => ({
        name,
        digest: digests.get(name) ?? null,
      }));

      expect(rows).to.have.deep.members(expected);
      expect(digests.get(first)).to.match(/^[0-9a-f]{64}$/);
    });
  }

  it('a tenant database refuses a percentage above 100, and an amount without a currency', async () => {
    const url = await createScratch();
    await runMigrations(url, await loadMigrations('tenant'), migrationSettings(server));
    const insert = (values: string) =>
      withConnection(url, client =>
        client.query(
          `insert into promotions (promo_code, name, discount_type, discount_value) values ${values}`,
        ),
      );

    await insert(`('hundred', 'All', 'Percentage', 100)`);
    const percentage = await insert(`('more', 'More', 'Percentage', 100.0001)`).catch(String);
    const amount = await insert(`('amount', 'Amount', 'Amount', 5)`).catch(String);

    expect(percentage).to.include('promotions_percentage_check');
    expect(amount).to.include('promotions_amount_check');
  });

  it('a page has the same digest when git has checked it out with CRLF', async () => {
    const next = await makeNextBuild();
    const page = next.file(`migrations/tenant/${first}.sql`);
    await writeFile(page, (await readFile(page, 'utf8')).replaceAll('\n', '\r\n'));
    const { pageDigests: digestsOfNext } = await import(
      next.file('src/lib/postgres/migration-names.ts')
    );
    expect((await digestsOfNext('tenant')).get(first)).to.equal(
      (await pageDigests('tenant')).get(first),
    );
    await next.remove();
  });

  it('a database is foreign if it has another text of a page, or not the first one', async () => {
    const digests = Object.fromEntries(await pageDigests('tenant'));
    expect(await findForeignPage('tenant', null)).to.equal(undefined);
    expect(await findForeignPage('tenant', digests)).to.equal(undefined);
    expect(await findForeignPage('tenant', { ...digests, '9999-later': null })).to.equal(undefined);
    expect(await findForeignPage('tenant', { ...digests, [first]: 'other' })).to.equal(first);
    expect(
      await findForeignPage('tenant', { '0001-foundation': null, '0030-feed-timeline': null }),
    ).to.equal(first);
  });
});

describe('databases of a build that was not released', () => {
  const world = useWorld();
  const run = (script: 'control' | 'tenant', ...args: string[]) =>
    runCommand(`scripts/${script}.ts`, args, world.environment);
  const foreign = `update migrations set digest = 'other' where name = '${first}'`;
  const digestOf = async (folder: MigrationFolder) => (await pageDigests(folder)).get(first);

  it('a configured control database with another first schema is refused, and control migrate changes nothing', async () => {
    await controlSql(world, foreign);

    const commands = [
      run('control', 'migrate'),
      run('control', 'migrate', '--dry-run'),
      run('tenant', 'list'),
    ];

    for (const { code, stdout, stderr } of await Promise.all(commands)) {
      expect(stdout).to.equal('');
      expect(stderr).to.equal(
        `The control database is of no released build: its ${first} is not that of this build, and no migration ` +
          'leads from it here. Use the build that made it, or another database.\n',
      );
      expect(code).to.equal(1);
    }

    await controlSql(
      world,
      `update migrations set digest = '${await digestOf('control')}' where name = '${first}'`,
    );
  });

  it('a tenant database with another first schema is refused by migrate, and other tenants are migrated', async () => {
    await sql(world.acme, foreign);
    await controlSql(world, 'update tenants set schema_fingerprint = null');
    const { code, stdout } = await run('tenant', 'migrate', '--all', '--json');
    const lines = stdout.split('\n').filter(line => line.startsWith('{"slug"'));
    const outcomes = new Map(
      lines.map(line => JSON.parse(line)).map(outcome => [outcome.slug, outcome]),
    );

    expect(outcomes.get('acme').error).to.match(
      /^its database is of no released build: its 0001-first-schema is not/,
    );
    expect(outcomes.get('globex').state).to.equal('current');
    expect(code).to.equal(1);
    await sql(
      world.acme,
      `update migrations set digest = '${await digestOf('tenant')}' where name = '${first}'`,
    );
    expect((await run('tenant', 'migrate', '--all')).code).to.equal(0);
  });

  it('rollback of the first schema is refused with what to do instead, also by its plan', async () => {
    for (const options of [['--yes'], ['--dry-run']]) {
      const { code, stderr } = await run(
        'tenant',
        'rollback',
        'acme',
        '--despite-running',
        ...options,
      );

      expect(stderr).to.equal(
        'acme was not rolled back: The first schema is not undone, because that would remove all data of the tenant. ' +
          'To remove the tenant: bin/backoffice delete acme, then bin/backoffice purge acme\n',
      );
      expect(code).to.equal(1);
    }

    expect((await (await world.login(world.acme)).get('/api/v1/EntityStatus')).status).to.equal(
      200,
    );
  });
});

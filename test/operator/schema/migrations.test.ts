import { randomBytes } from 'node:crypto';
import { Migration, Migrator } from '@mikro-orm/migrations';
import { MikroORM } from '@mikro-orm/postgresql';
import { expect } from 'chai';
import pg from 'pg';
import { controlOptions } from '../../../src/control/database.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { type MigrationFolder, migrationNames } from '../../../src/lib/postgres/migration-names.ts';
import { loadMigrations, runMigrations } from '../../../src/lib/postgres/migration-steps.ts';
import { changeSchema, readSchemaState } from '../../../src/operator/schema/schema-steps.ts';
import { migrationSettings } from '../../../src/operator/schema/template.ts';
import { tenantEntities } from '../../../src/sales/tenant-entities.ts';
import { tenantOptions } from '../../../src/tenancy/tenant-orm.ts';
import { eventually } from '../../support/eventually.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';
import { server } from '../../support/test-server.ts';

interface Column {
  table: string;
  name: string;
  type: string;
  nullable: boolean;
  /** The database gives a value when none is sent. */
  filled: boolean;
}

const folders: MigrationFolder[] = ['control', 'tenant'];
const options = {
  control: controlOptions,
  tenant: (url: string) => tenantOptions(url, tenantEntities),
};

/** Everything that migrations make, as PostgreSQL itself writes it down. */
const catalogue = `
  select 'column' as kind, format('%s.%s', c.oid::regclass, a.attname) as name,
         concat_ws(' ', format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
           nullif(a.attidentity::text, ''), nullif(a.attgenerated::text, ''), pg_get_expr(d.adbin, d.adrelid),
           col_description(c.oid, a.attnum)) as definition
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
   where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
  union all
  select 'constraint', format('%s %s', conrelid::regclass, conname), pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'public'::regnamespace and contype <> 'n'
  union all
  select 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid)
    from pg_index join pg_class c on c.oid = indexrelid where c.relnamespace = 'public'::regnamespace
  union all
  select 'trigger', format('%s %s', tgrelid::regclass, tgname), pg_get_triggerdef(oid) || ' ' || tgenabled::text
    from pg_trigger where not tgisinternal
  union all
  select 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    from pg_proc p where pronamespace = 'public'::regnamespace and prokind in ('f', 'p')
  union all
  select 'type', format_type(oid, null),
         typtype::text ||
           coalesce(pg_get_constraintdef((select max(c.oid) from pg_constraint c where contypid = t.oid)), '')
    from pg_type t where typnamespace = 'public'::regnamespace and typtype in ('d', 'e', 'r')
  union all
  select 'rights', format('%s %s', relname, acl.privilege_type), string_agg(acl.grantee::regrole::text, ' ' order by 1)
    from pg_class, aclexplode(relacl) acl
   where relnamespace = 'public'::regnamespace and acl.grantee <> relowner group by 1, 2
  order by 1, 2`;

describe('migrations', () => {
  const createScratch = useScratchDatabases();
  /** Databases at head, and the migrations that their one run has applied. */
  const urls = { control: '', tenant: '' };
  const applied: Partial<Record<MigrationFolder, string[]>> = {};

  before(async () => {
    for (const folder of folders) {
      urls[folder] = await createScratch();
      applied[folder] = await runMigrations(
        urls[folder],
        await loadMigrations(folder),
        settingsOf(folder),
      );
    }
    await withConnection(urls.tenant, client =>
      client.query('insert into tenant_identity (guid) values (gen_random_uuid())'),
    );
  });

  const settingsOf = (folder: MigrationFolder) =>
    folder === 'tenant' ? migrationSettings(server) : {};
  const rowsOf = <Row extends object>(url: string, text: string): Promise<Row[]> =>
    withConnection(url, async client => (await client.query(text)).rows as Row[]);

  for (const folder of folders) {
    describe(`migrations of the ${folder} database`, () => {
      it('the migrations are numbered without a gap, and each has a file of its own', async () => {
        const names = await migrationNames(folder);
        expect(names.map(name => Number(name.slice(0, 4)))).to.deep.equal(
          names.map((_, index) => index + 1),
        );
        expect(await loadMigrations(folder)).to.have.length(names.length);
      });

      it('the migrations create the columns, types and nullability of the entities', async () => {
        const url = urls[folder];
        const columns = await rowsOf<Column>(
          url,
          `select table_name as table, column_name as name,
                  case when data_type = 'ARRAY' then substr(udt_name, 2) || '[]' else udt_name end as type,
                  is_nullable = 'YES' as nullable,
                  column_default is not null or is_identity = 'YES' or is_generated = 'ALWAYS' as filled
             from information_schema.columns where table_schema = 'public'`,
        );

        const found = new Map(columns.map(column => [`${column.table}.${column.name}`, column]));
        const orm = new MikroORM(options[folder](url));
        const mapped = new Set<string>();
        const faults: string[] = [];

        try {
          for (const meta of orm.getMetadata().getAll().values()) {
            for (const property of meta.props.filter(({ persist }) => persist !== false)) {
              for (const [index, fieldName] of (property.fieldNames ?? []).entries()) {
                const key = `${meta.tableName}.${fieldName}`;
                mapped.add(key);
                const column = found.get(key);
                const type = property.columnTypes?.[index] ?? '';

                if (!column) {
                  faults.push(`${key} is mapped, and does not exist`);
                } else if (!compatible(type, column.type)) {
                  faults.push(`${key} is ${column.type}, mapped as ${type}`);
                } else if (column.nullable !== (property.nullable ?? false)) {
                  faults.push(
                    `${key} may ${column.nullable ? '' : 'not '}be null, and is mapped otherwise`,
                  );
                }
              }
            }
          }
        } finally {
          await orm.close();
        }

        expect(mapped.size).to.be.greaterThan(8);

        // The database must fill a column that no entity has, or every insert fails.
        const tables = new Set([...mapped].map(key => key.split('.')[0]));
        for (const { table, name, nullable, filled } of columns) {
          if (tables.has(table) && !mapped.has(`${table}.${name}`) && !nullable && !filled) {
            faults.push(`${table}.${name} must be sent, and is not mapped`);
          }
        }

        expect(faults).to.deep.equal([]);
      });

      it('each migration after the first one can be reverted, and all of them repeated without loss of data', async () => {
        const url = await createScratch();
        const landed = await loadMigrations(folder);
        const migrationsList = [
          ...landed,
          { name: '9999-labels', class: Labels, compatible: false, digest: null },
        ];
        const flags = Object.entries(settingsOf(folder)).map(
          ([name, value]) => `-c ${name}=${value}`,
        );
        const orm = new MikroORM({
          clientUrl: url,
          entities: [],
          discovery: { warnWhenNoEntities: false },
          ensureDatabase: false,
          extensions: [Migrator],
          driverOptions: { connectionString: url, max: 1, options: flags.join(' ') },
          migrations: { migrationsList, tableName: 'migrations', snapshot: false, silent: true },
        });
        const state = async () =>
          (await reader.query<{ kind: string; name: string }>(catalogue)).rows;
        const reader = new pg.Client(url);
        try {
          await reader.connect();
          await orm.migrator.up({ to: landed[0]?.name ?? '' });
          const firstSchema = await state();
          expect(firstSchema.length).to.be.greaterThan(20);

          await orm.migrator.up();
          const head = await state();
          expect(head).not.to.deep.equal(firstSchema);
          // One at a time: no migration leans on what a later one leaves.
          for (const { name } of migrationsList.slice(1).toReversed()) {
            expect((await orm.migrator.down()).map(done => done.name)).to.deep.equal([name]);
          }
          expect(await state()).to.deep.equal(firstSchema);
          await orm.migrator.up();
          expect(await state()).to.deep.equal(head);
        } finally {
          await reader.end();
          await orm.close();
        }
      });

      it('the first schema refuses to be reverted, with what to do instead', async () => {
        const [first] = await loadMigrations(folder);
        const migration = first && new first.class(undefined as never, undefined as never);
        expect(() => migration?.down()).to.throw(/is not undone.*bin\/backoffice /);
      });

      it('a migration runs once, also when the command is repeated', async () => {
        const url = urls[folder];
        expect(applied[folder]).to.deep.equal(await migrationNames(folder));
        const before = await rowsOf(url, 'select * from migrations order by id');
        expect(
          await runMigrations(url, await loadMigrations(folder), settingsOf(folder)),
        ).to.deep.equal([]);
        expect(await rowsOf(url, 'select * from migrations order by id')).to.deep.equal(before);
      });
    });
  }

  it('a failed migration changes nothing', async () => {
    const url = await createScratch();
    await withConnection(url, client =>
      client.query('create table entity_statuses (in_the_way text)'),
    );
    const settings = settingsOf('tenant');
    const migrations = await loadMigrations('tenant');

    let fault: unknown;
    await runMigrations(url, migrations, settings).catch(error => (fault = error));
    expect(fault).to.be.instanceOf(Error);

    const tables = await rowsOf<{ name: string }>(
      url,
      `select tablename as name from pg_tables where schemaname = 'public'`,
    );
    expect(tables.map(({ name }) => name)).to.not.include('audit_log');

    await withConnection(url, client => client.query('drop table entity_statuses'));
    expect(await runMigrations(url, migrations, settings)).to.deep.equal(
      await migrationNames('tenant'),
    );
  });

  it('the sessions of a tenant end before its migration commits, and a session that waits for the migration ends after it', async () => {
    const url = urls.tenant;
    const role = `sessions_${randomBytes(4).toString('hex')}`;
    await withConnection(url, client =>
      client.query(
        `create role ${role} login password 'secret'; grant select on tenant_identity, migrations to ${role}`,
      ),
    );

    const name = decodeURIComponent(new URL(url).pathname.slice(1));
    const asTenant = <T>(work: (client: pg.Client) => Promise<T>) =>
      withConnection(databaseUrl(url, name, { user: role, password: 'secret' }), work);

    const state = await withConnection(url, readSchemaState);
    const verify =
      'begin isolation level repeatable read; select schema_version from tenant_identity';

    try {
      await asTenant(async open => {
        await open.query('select schema_version from tenant_identity');
        let waiting: Promise<unknown> = Promise.resolve();
        let atCheck: unknown[] = [];

        await withConnection(
          url,
          migrating =>
            changeSchema(migrating, {
              role,
              state,
              change: async () => {
                await eventually(async () => expect(await isAlive(open)).to.equal(false));
                waiting = asTenant(client => client.query(verify)).then(
                  () => 'verified',
                  () => 'ended',
                );
                await withConnection(url, client => eventually(() => isWaiting(client, role)));
              },
              check: async () => {
                atCheck = (
                  await migrating.query('select pid from pg_stat_activity where usename = $1', [
                    role,
                  ])
                ).rows;
              },
            }),
          { pipeline: true },
        );

        expect(await waiting).to.equal('ended');
        expect(atCheck.length).to.be.lessThan(2);

        const { rows } = await withConnection(url, client =>
          client.query('select pid from pg_stat_activity where usename = $1', [role]),
        );
        expect(rows).to.deep.equal([]);
      });
    } finally {
      await withConnection(url, client => client.query(`drop owned by ${role}; drop role ${role}`));
    }
  });

  it('a migration and a concurrent read of the tenant identity do not deadlock', async () => {
    const url = urls.tenant;
    const state = await withConnection(url, readSchemaState);

    const waiting = (client: pg.Client, count: number) =>
      eventually(async () => {
        const { rows } = await client.query(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        );
        return rows.length === count;
      });

    for (const read of [
      (client: pg.Client) => client.query('select guid, schema_version from tenant_identity'),
      (client: pg.Client) =>
        client.query('select guid, (select max(name) from migrations) from tenant_identity'),
      (client: pg.Client) => readSchemaState(client),
    ]) {
      await withConnection(url, dump =>
        withConnection(
          url,
          migrating =>
            withConnection(url, async reading => {
              await dump.query('begin; lock table migrations in access share mode');

              const changed = changeSchema(migrating, {
                role: 'nobody',
                state,
                change: async () => {},
              });
              await waiting(dump, 1);

              const result = read(reading);
              await waiting(dump, 2);
              await dump.query('commit');

              expect((await Promise.all([changed, result]))[0]).to.equal(undefined);
            }),
          { pipeline: true },
        ),
      );
    }
  });

  it('a new tenant has three statuses, and the next one gets id 4', async () => {
    const url = urls.tenant;
    await withConnection(url, client =>
      client.query(`insert into entity_statuses (title) values ('Next')`),
    );

    const rows = await rowsOf<{ id: number; title: string }>(
      url,
      'select id, title from entity_statuses order by id',
    );

    expect(rows).to.deep.equal([
      { id: 1, title: 'Prospect' },
      { id: 2, title: 'Active' },
      { id: 3, title: 'Inactive' },
      { id: 4, title: 'Next' },
    ]);
  });
});

/** A migration after all that have landed. */
class Labels extends Migration {
  override up(): void {
    this.addSql('create table labels (id integer primary key)');
  }

  override down(): void {
    this.addSql('drop table labels');
  }
}

/** Names of one type in PostgreSQL's catalogue, by the name that MikroORM maps it with. */
const catalogueTypes: Record<string, string[]> = {
  smallint: ['int2'],
  int: ['int4', 'int2'], // every value of the column fits
  integer: ['int4', 'int2'],
  bigint: ['int8'],
  boolean: ['bool'],
  timestamptz: ['timestamptz'],
  numeric: ['numeric'],
  bytea: ['bytea'],
};

/** True if a column can hold the values of its property; length and precision aside. */
function compatible(mapped: string, column: string): boolean {
  const array = mapped.endsWith('[]') ? '[]' : '';
  const base = mapped.replace(/\[\]$/, '').replace(/\s*\(.*\)$/, '');
  return (catalogueTypes[base] ?? [base]).some(type => type + array === column);
}

/** Returns whether the session of a connection still exists. */
async function isAlive(client: pg.Client): Promise<boolean> {
  return client.query('select').then(
    () => true,
    () => false,
  );
}

async function isWaiting(client: pg.Client, role: string): Promise<boolean> {
  const waiting = `select from pg_stat_activity where usename = $1 and wait_event_type = 'Lock'`;
  return (await client.query(waiting, [role])).rows.length === 1;
}

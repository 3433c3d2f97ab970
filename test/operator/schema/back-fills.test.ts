import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { MikroORM } from '@mikro-orm/postgresql';
import { expect } from 'chai';
import { readReleased } from '../../../deploy/release/released-migrations.ts';
import { audit, backfill, grant, limitSize } from '../../../migrations/tenant/sql.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../../src/lib/postgres/migration-steps.ts';
import { readSchemaSteps } from '../../../src/operator/schema/schema-steps.ts';
import { migrationSettings } from '../../../src/operator/schema/template.ts';
import { changeSources } from '../../../src/sales/events/change-sources.ts';
import { tenantEntities } from '../../../src/sales/tenant-entities.ts';
import { tenantOptions } from '../../../src/tenancy/tenant-orm.ts';
import { follow } from '../../sales/events/follow.ts';
import { startReceiver } from '../../sales/webhooks/receiver.ts';
import { eventually } from '../../support/eventually.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { type ReleasedSchema, refusedRowChanges } from '../../support/row-changes.ts';
import { runCommand } from '../../support/run-command.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';
import { cursorOfNow } from '../../support/settle.ts';
import { postgresUrl, server } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { createWorld, sql, type TestTenant } from '../../support/world.ts';

const rows = 9_000;
const root = fileURLToPath(new URL('../../..', import.meta.url));

/** Returns the text of a migration with these statements of code. */
const migrationWith = (...statements: string[]) => `
  import { Migration } from '@mikro-orm/migrations';
  import { backfill } from './sql.ts';

  export class Filled extends Migration {
    static readonly compatible = true;

    override up(): void {
      ${statements.join('\n')}
    }

    override down(): void {
      this.addSql('alter table activities drop column weight');
    }
  }`;

describe('back-fills', function () {
  this.slow(20_000);

  const receiver = useEach(startReceiver);
  const world = useEach(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const builds: NextBuild[] = [];

  beforeEach(async () => {
    await sql(
      world.acme,
      `insert into tax_codes (code, name, rate) select 'T' || n, 'tax', 7 from generate_series(1, ${rows}) n`,
    );
    for (const tenant of [world.acme, world.globex]) {
      const client = await world.login(tenant);
      for (const Comment of ['weighed', null]) {
        await client.post('/api/v1/Activity', { ActivityCode: 7, Comment });
      }
      const webhook = { Url: receiver.url(`/${tenant.slug}`), Payload: 'record' };
      expect((await client.post('/api/v1/Webhooks', webhook)).status).to.equal(201);
    }
  });
  after(() => Promise.all(builds.map(build => build.remove())));

  async function build(text: string): Promise<NextBuild> {
    const made = await makeNextBuild(text);
    builds.push(made);
    return made;
  }

  const run = (next: NextBuild, ...args: string[]) =>
    runCommand(next.file('scripts/tenant.ts'), args, world.environment);

  const triggersOff = (tenant: Pick<TestTenant, 'adminUrl'>) =>
    sql(tenant, `select tgname from pg_trigger where not tgisinternal and tgenabled <> 'O'`);

  const stateOf = (tenant: TestTenant, statement: string) =>
    sql(tenant, statement).then(
      () => 'done',
      ({ code }) => code,
    );

  it('a migration that changes an append-only table without backfill is refused with the cause and the next step, not as a missing privilege', async () => {
    const next = await build(
      migrationWith(
        `this.addSql('alter table activities add column weight integer');`,
        `this.addSql('update activities set weight = 1');`,
      ),
    );

    const { code, stderr, stdout } = await run(next, 'migrate', '--all');

    expect(code).to.equal(1);
    expect(stderr + stdout).to.include('(SB003): it would change or remove rows of activities');
    expect(stderr + stdout).to.include('by backfill (migrations/README.md)');
    expect(stderr + stdout).not.to.match(/privilege|grant/);
  });

  it('a back-fill that fails in one tenant changes nothing there, leaves its triggers on, and is not undone in others', async () => {
    await sql(world.globex, `insert into tax_codes (code, name, rate) values ('ZERO', 'zero', 0)`);
    const next = await build(
      migrationWith(
        `this.addSql('alter table tax_codes add column share numeric');`,
        `this.addSql(backfill('tax_codes', 'update tax_codes set share = 100 / rate'));`,
      ),
    );

    const { code, stdout } = await run(next, 'migrate', '--all');

    expect(code).to.equal(1);
    expect(stdout).to.match(/1 migrated, 1 failed/);
    for (const tenant of [world.acme, world.globex]) {
      expect(await triggersOff(tenant)).to.deep.equal([]);
    }
    const entries = `select count(*)::int as count from audit_log where record_key = '*'`;
    expect(await sql(world.globex, entries)).to.deep.equal([{ count: 0 }]);
    expect(await stateOf(world.globex, 'select share from tax_codes')).to.equal('42703');
    expect(await sql(world.acme, 'select distinct share::int from tax_codes')).to.deep.equal([
      { share: 14 },
    ]);
  });

  it('a back-fill of 9,000 rows, also of activities, writes one audit entry for each table, and no client or webhook receives it', async () => {
    const clients = [await world.login(world.acme), await world.login(world.globex)] as const;
    const [acme] = clients;
    const begin = await cursorOfNow(acme, world.acme);
    const stream = await follow(acme, `?after=${begin}`);
    const [before] = await sql<{ last: string }>(
      world.acme,
      'select max(id) as last from audit_log',
    );
    receiver.messages.length = 0;
    const next = await build(await exampleOfBackfill());

    const { code, stderr } = await run(next, 'migrate', '--all');

    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    for (const tenant of [world.acme, world.globex]) {
      expect(await triggersOff(tenant)).to.deep.equal([]);
      expect(
        await sql(tenant, `select distinct note from tax_codes where code in ('T1', 'T9000')`),
      ).to.have.length(tenant === world.acme ? 2 : 0);
      expect(
        await sql(
          tenant,
          'select comment, weight from activities where activity_code = 7 order by id',
        ),
      ).to.deep.equal([
        { comment: 'weighed', weight: 1 },
        { comment: null, weight: null },
      ]);
    }
    expect(
      await sql(
        world.acme,
        `select action, resource, record_key as key, before, after, user_id as user, feed_era as era
           from audit_log where id > $1 order by id`,
        [before?.last],
      ),
    ).to.deep.equal(
      ['TaxCode', 'Activity'].map(resource => ({
        action: 'update',
        resource,
        key: '*',
        before: null,
        after: null,
        user: null,
        era: null,
      })),
    );
    const [entry] = (await acme.get('/api/v1/AuditLog?resource=TaxCode&limit=1')).body;
    expect(entry).to.include({
      Action: 'update',
      Key: '*',
      UserGuid: null,
      Before: null,
      After: null,
    });

    // What is changed later is the first thing that a client receives.
    for (const client of clients) {
      const { body } = await client.post('/api/v1/OrderStatuses', { Name: 'after' });
      expect(body.Id).to.be.a('number');
    }
    expect((await stream.next())?.data.Type).to.equal('order_status.created');
    stream.close();
    for (const slug of ['acme', 'globex']) {
      await eventually(() => receiver.at(`/${slug}`).length > 0);
      expect(receiver.at(`/${slug}`).map(({ body }) => body.type)).to.deep.equal([
        'order_status.created',
      ]);
    }
    const page = await acme.get(`/api/v1/Changes?after=${begin}&limit=1000`);
    expect(page.body.map(({ Type }: { Type: string }) => Type)).to.deep.equal([
      'order_status.created',
    ]);

    // The triggers refuse and record again.
    for (const tenant of [world.acme, world.globex]) {
      expect(await stateOf(tenant, 'update activities set weight = 2')).to.equal('SB003');
      expect(await stateOf(tenant, 'update audit_log set user_id = 2')).to.equal('SB003');
    }
    await sql(world.acme, `update tax_codes set note = 'by hand' where code = 'T1'`);
    const byHand = `select count(*)::int as count from audit_log where after ->> 'note' = 'by hand'`;
    expect(await sql(world.acme, byHand)).to.deep.equal([{ count: 1 }]);

    // A tenant that is made from the template has no entry of a back-fill.
    const provisioned = await run(
      next,
      'provision',
      'later',
      '--name',
      'L',
      '--admin-email',
      'a@later.test',
      '--json',
    );
    expect(provisioned.code, provisioned.stderr).to.equal(0);
    const later = { adminUrl: databaseUrl(postgresUrl(), JSON.parse(provisioned.stdout).database) };
    expect(await sql(later, `select resource from audit_log where record_key = '*'`)).to.deep.equal(
      [],
    );
    expect(await triggersOff(later)).to.deep.equal([]);
  });

  it('backfill refuses every statement but an update of its table', () => {
    for (const statement of [
      'delete from activities',
      'update audit_log set user_id = 1',
      'update activities_old set weight = 1',
      'insert into activities (activity_code) values (1)',
      'truncate activities',
    ]) {
      expect(() => backfill('activities', statement), statement).to.throw(
        'a back-fill of activities is one statement: update activities set …',
      );
    }
  });
});

describe('changes of rows in tenant migrations', () => {
  const createScratch = useScratchDatabases();
  let released: ReleasedSchema;
  let releasedNames: readonly string[];

  before(async () => {
    releasedNames = await namesOfRelease();
    released = await releasedSchema(await createScratch(), releasedNames);
  });

  const judge = (...up: string[]) => refusedRowChanges({ up, down: [] }, released);

  it('each migration since the last release changes existing rows by backfill only, in columns that no released response has', async () => {
    const steps = (await readSchemaSteps()).filter(({ name }) => !releasedNames.includes(name));

    for (const step of steps) {
      expect(refusedRowChanges(step, released), step.name).to.deep.equal([]);
    }
  });

  it('a change of existing rows without backfill is found, however it is written', () => {
    for (const [statement, table] of [
      ['update tax_codes set note = 1', 'tax_codes'],
      ['UPDATE ONLY public."tax_codes" AS t\n SET note = 1', 'tax_codes'],
      [`with x as (select 1) update activities a set weight = 1 from x`, 'activities'],
      ['alter table countries add column x int; update countries set x = 1', 'countries'],
      [`do $$ begin update entities set x = 1; end $$`, 'entities'],
      [`do $x$ begin execute 'update entities set x = 1'; end $x$`, 'entities'],
      [`do $$ begin execute format('update %I set x = 1', 'entities'); end $$`, '%I'],
      ['delete from promotion_uses', 'promotion_uses'],
      ['truncate activities', 'activities'],
      ['truncate table only activities', 'activities'],
      [
        'merge into currencies c using units_of_measure u on false when matched then do nothing',
        'currencies',
      ],
      [`insert into system_options (code) select code from countries`, 'system_options'],
      [
        `insert into countries (country_code) values ('A') on conflict (country_code) do update set x = 1`,
        'countries',
      ],
    ] as const) {
      expect(judge(statement), statement).to.deep.equal([
        `${table}: rows are changed without backfill`,
      ]);
    }

    for (const statement of [
      'alter table activities disable trigger append_only',
      `set session_replication_role = 'replica'`,
      `do $$ begin execute 'alter table tax_codes disable trigger all'; end $$`,
    ]) {
      expect(judge(statement), statement).to.deep.equal(['triggers are turned off']);
    }

    expect(
      refusedRowChanges({ up: [], down: ['update entities set x = 1'] }, released),
    ).to.have.length(1);
  });

  it('a change of the schema, a function that changes rows, rows of a new table and seed rows are no such change', () => {
    for (const statement of [
      `alter table tax_codes add column note text not null default 'update tax_codes set note'`,
      `create function f() returns void language sql as $$ update tax_codes set rate = 1 $$`,
      `create or replace function f() returns trigger language plpgsql as $$ begin delete from activities; return null; end $$`,
      `create table brands (id int, tax int references tax_codes on delete set null on update cascade)`,
      `create trigger t before update or delete or truncate on brands execute function f()`,
      `-- update tax_codes set note = 1\nselect 1 /* delete from activities */`,
      `insert into brands (id) select id from tax_codes; update brands set id = 2; delete from brands`,
      `insert into system_options (code) values ('x') on conflict do nothing`,
      grant('select, insert, update, delete', 'brands'),
      audit('brands', 'Brand', 'id'),
      limitSize('brands'),
    ]) {
      expect(judge(statement), statement).to.deep.equal([]);
    }

    expect(
      refusedRowChanges({ up: [], down: ['delete from system_options'] }, released),
    ).to.deep.equal([]);
  });

  it('a back-fill sets new columns and those that no response has, and no column that a released response has', () => {
    for (const [table, assignments, seen] of [
      ['tax_codes', 'note = 1', []],
      ['tax_codes', `note = name || ', rate = 1'`, []],
      ['tax_codes', 'rate = 1', ['tax_codes.rate']],
      [
        'tax_codes',
        'note = coalesce(name, code), "rate" = 1 where code = name',
        ['tax_codes.rate'],
      ],
      ['tax_codes', '(note, name) = (select 1, 2)', ['tax_codes.name']],
      [
        'tax_codes',
        'note = case when name is distinct from code then 1 end, is_active = true',
        ['tax_codes.is_active'],
      ],
      ['tax_codes', 'note = e.name from entities e where rate = 1', []],
      ['countries', 'is_deleted = true', ['countries.is_deleted']],
      ['activities', 'weight = 1', []],
      ['activities', 'recorded_from = null', []],
      ['activities', 'comment = null', ['activities.comment']],
      [
        'activities',
        'feed_era = 1, feed_xid = null',
        ['activities.feed_era', 'activities.feed_xid'],
      ],
      ['promotion_uses', 'used_at = now()', ['promotion_uses.used_at']],
      ['audit_log', 'after = null, origin = 1', ['audit_log.after']],
      ['webhooks', 'url = null', ['webhooks.url']],
    ] as const) {
      const statement = backfill(table, `update ${table} set ${assignments}`);
      expect(judge(statement), assignments).to.deep.equal(
        seen.map(column => `${column}: clients see the column`),
      );
    }

    expect(judge(backfill('tax_codes', 'update tax_codes t set rate = 1'))).to.have.length(1);
    expect(
      judge(backfill('tax_codes', 'update tax_codes set note = 1; delete from activities')),
    ).to.deep.equal(['tax_codes: a back-fill is one statement']);
  });
});

/** Returns the code of the third example of migrations/README.md. */
async function exampleOfBackfill(): Promise<string> {
  const text = await readFile(`${root}/migrations/README.md`, 'utf8');
  const [, , [, code = ''] = []] = [...text.matchAll(/```ts\n(.*?)```/gs)];

  return code;
}

/** Returns the tenant migrations of the newest release, at least the first schema. */
async function namesOfRelease(): Promise<string[]> {
  const newest = (await readReleased(root)).at(-1);

  return newest?.tenant.map(({ name }) => name) ?? ['0001-first-schema'];
}

async function releasedSchema(url: string, names: readonly string[]): Promise<ReleasedSchema> {
  const migrations = (await loadMigrations('tenant')).filter(({ name }) => names.includes(name));
  await runMigrations(url, migrations, migrationSettings(server));
  const found = await withConnection(url, client =>
    client.query<{ table: string; columns: string[] }>(
      `select table_name as table, array_agg(column_name::text) as columns
         from information_schema.columns where table_schema = 'public' group by 1`,
    ),
  );

  return {
    columns: new Map(found.rows.map(({ table, columns }) => [table, new Set(columns)])),
    shown: await shownColumns(url),
  };
}

/**
 * Returns the columns that views have. Of an entity that is not in the feed, such as a webhook,
 * all columns count.
 */
async function shownColumns(url: string): Promise<Map<string, Set<string>>> {
  const orm = new MikroORM(tenantOptions(url, tenantEntities));
  const shown = new Map<string, Set<string>>();

  for (const { className, tableName, props } of orm.getMetadata().getAll().values()) {
    const ofView = changeSources.get(className)?.fields.map(([, column]) => column);
    const ofEntity = props.flatMap(({ fieldNames }) => fieldNames ?? []);
    shown.set(tableName, new Set([...(ofView ?? ofEntity), 'feed_era', 'feed_xid']));
  }
  await orm.close();

  return shown;
}

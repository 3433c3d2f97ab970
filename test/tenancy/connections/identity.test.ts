import { expect } from 'chai';
import pg from 'pg';
import type { TenantRecord } from '../../../src/control/records.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { tenantHead } from '../../../src/control/tenant-head.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { ApiResponse } from '../../support/client.ts';
import { errorOf } from '../../support/errors.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';
import { tenantRecord } from '../records.ts';

const path = '/api/v1/EntityStatus';
const insufficientPrivilege = '42501';
/** SQLSTATEs of the triggers `append_only` and `require_actor`. */
const appendOnly = 'SB003';
const actorMissing = 'SB004';

describe('tenant identity', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  afterEach(async () => {
    await eventually(async () => {
      for (const client of [acme, globex]) expect((await client.get(path)).status).to.equal(200);
      return true;
    }, announcedMs);
  });

  const control = (text: string, values: unknown[] = []) => controlSql(world, text, values);

  describe('wrong databases', () => {
    it('two tenants with swapped databases are both refused, and the log has the reason', async () => {
      const { acme: a, globex: b } = world;
      const setDatabase = (id: number, database: string) =>
        control('update tenants set database_name = ? where id = ?', [database, id]);
      await setDatabase(a.id, 'elsewhere');
      await setDatabase(b.id, a.database);
      await setDatabase(a.id, b.database);
      const since = world.logs.length;
      const responses = await eventually(async () => {
        const both = await Promise.all([acme.get(path), globex.get(path)]);
        for (const response of both) expectUnavailable(response, 'unavailable');
        return both;
      }, announcedMs);
      for (const { body } of responses) expectLogged(body.traceId, since);
      expectUnavailable(await acme.post(path, { Title: 'lost' }), 'unavailable');

      await setDatabase(a.id, 'elsewhere');
      await setDatabase(b.id, b.database);
      await setDatabase(a.id, a.database);
      for (const tenant of [a, b]) {
        expect(
          await sql(tenant, `select from entity_statuses where title = 'lost'`),
        ).to.have.length(0);
      }
    });

    it('a tenant is refused when its login may connect to the wrong database: the guid inside it decides', async () => {
      const { acme: a, globex: b } = world;
      const { databaseUrl: url } = await tenantRecord(world, a);
      const login = decodeURIComponent(new URL(url).username);

      await operatorQuery(`grant connect on database "${b.database}" to "${login}"`);
      await control(`update tenants set database_name = 'elsewhere' where id = ?`, [b.id]);
      await control('update tenants set database_name = ? where id = ?', [b.database, a.id]);
      const since = world.logs.length;

      try {
        const { body } = await eventually(async () => {
          const response = await acme.get(path);
          expectUnavailable(response, 'unavailable');
          return response;
        }, announcedMs);
        expectLogged(body.traceId, since, 'TENANT_IDENTITY');
      } finally {
        await control('update tenants set database_name = ? where id = ?', [a.database, a.id]);
        await control('update tenants set database_name = ? where id = ?', [b.database, b.id]);
        await operatorQuery(`revoke connect on database "${b.database}" from "${login}"`);
      }
    });

    it('a tenant is refused when the guid in its database was changed', async () => {
      await sql(world.acme, 'update tenant_identity set guid = $1', [world.globex.guid]);

      try {
        const another = await world.startAnotherServer();
        expectUnavailable(await acme.at(another.url).get(path), 'unavailable');
        expect((await globex.at(another.url).get(path)).status).to.equal(200);

        await sql(world.acme, 'update tenant_identity set guid = $1', [world.acme.guid]);
        expect((await acme.at(another.url).get(path)).status).to.equal(200);
      } finally {
        await sql(world.acme, 'update tenant_identity set guid = $1', [world.acme.guid]);
      }
    });

    it('a tenant is refused when its database has no guid', async () => {
      await sql(world.acme, 'delete from tenant_identity');
      try {
        const another = await world.startAnotherServer();
        expectUnavailable(await acme.at(another.url).get(path), 'unavailable');
      } finally {
        await sql(world.acme, 'insert into tenant_identity (guid) values ($1)', [world.acme.guid]);
      }
    });
  });

  describe("a tenant's login role", () => {
    let record: TenantRecord;

    before(async () => {
      record = await tenantRecord(world, world.acme);
    });

    it('a login role can connect to the database of its own tenant', async () => {
      expect(await queryAs(record.databaseUrl, 'select current_database() as name')).to.deep.equal([
        { name: world.acme.database },
      ]);
    });

    it('a login role cannot connect to the database of another tenant', async () => {
      await expectRefusal(databaseUrl(record.databaseUrl, world.globex.database), 'select 1');
    });

    it('a login role can read no table of the control database', async () => {
      const url = databaseUrl(record.databaseUrl, controlName());

      for (const table of [
        'servers',
        'tenants',
        'signing_keys',
        'roles',
        'users',
        'sessions',
        'migrations',
      ]) {
        await expectRefusal(url, `select from ${table}`);
      }
    });

    it('a login role cannot connect to the control database', async () => {
      await expectRefusal(databaseUrl(record.databaseUrl, controlName()), 'select 1');
    });

    for (const statement of [
      `update audit_log set user_id = 1`,
      `delete from audit_log`,
      `truncate audit_log`,
      `insert into audit_log (action, resource, record_key, database_user) values ('create', 'EntityStatus', '1', 'x')`,
      `update tenant_identity set guid = gen_random_uuid()`,
      `update tenant_identity set schema_version = '0000-before'`,
      `delete from tenant_identity`,
      `insert into migrations (name) values ('9999-none')`,
      `delete from migrations`,
      `create table own (id int)`,
      `create schema own`,
      `create temporary table own (id int)`,
      `create function own() returns int language sql as 'select 1'`,
      `alter table audit_log disable trigger all`,
      `drop trigger append_only on audit_log`,
      `set session_replication_role = replica`,
      `truncate entity_statuses cascade`,
      `create database own`,
      `create role own`,
      `select pg_read_file('PG_VERSION')`,
    ]) {
      it(`a login role cannot ${statement.replace(/ \(.*| as '.*/, '')}`, async () => {
        await expectRefusal(record.databaseUrl, statement);
      });
    }

    for (const statement of [
      `insert into entity_statuses (title, weighting) values ('nobody’s', 1)`,
      `update entity_statuses set title = 'nobody’s'`,
    ]) {
      it(`a login role cannot ${statement.replace(/ \(.*| as '.*/, '')} without an actor`, async () => {
        await expectRefusal(record.databaseUrl, statement, actorMissing);
      });
    }

    it('a login role is no superuser, creates no databases or roles, and owns nothing', async () => {
      const rows = await queryAs(
        record.databaseUrl,
        `select rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls,
          (select count(*)::int from pg_class where relowner = pg_roles.oid) as owned
          from pg_roles where rolname = current_user`,
      );

      expect(rows).to.deep.equal([
        {
          rolsuper: false,
          rolcreatedb: false,
          rolcreaterole: false,
          rolreplication: false,
          rolbypassrls: false,
          owned: 0,
        },
      ]);
    });
  });

  describe('audit log', () => {
    before(async () => {
      const { body } = await acme.post(path, { Title: 'Audited' });
      await acme.delete(`${path}/${body.Id}`);
    });

    for (const statement of [
      'update audit_log set user_id = 1',
      'delete from audit_log',
      'truncate audit_log',
    ]) {
      it(`the audit log refuses "${statement}" even to its owner and to a superuser`, async () => {
        const entries = () => sql(world.acme, 'select * from audit_log order by id');
        const before = await entries();
        expect(before).to.have.length.greaterThan(1);
        const error = await errorOf(sql(world.acme, statement));
        expect(error).to.include({ code: appendOnly });
        expect(error.message).to.equal('audit_log is append-only');
        expect(await entries()).to.deep.equal(before);
      });
    }

    it('the audit entry of a change outside the service names the database login, and no user', async () => {
      await sql(world.acme, `insert into entity_statuses (title) values ('by hand')`);
      await sql(world.acme, `delete from entity_statuses where title = 'by hand'`);

      const entries = await sql<{ action: string; user_id: null; database_user: string }>(
        world.acme,
        `select action, user_id, database_user from audit_log
          where coalesce(before, after) ->> 'title' = 'by hand' order by id`,
      );

      const superuser = decodeURIComponent(new URL(postgresUrl()).username);
      expect(entries).to.deep.equal([
        { action: 'create', user_id: null, database_user: superuser },
        { action: 'delete', user_id: null, database_user: superuser },
      ]);
    });
  });

  describe('schema versions', () => {
    for (const [name, version] of [
      ['behind', '0000-before'],
      ['ahead', '9999-from-a-newer-build'],
      ['unknown', null],
    ] as const) {
      it(`a tenant whose schema version is ${name} is refused, and other tenants are served`, async () => {
        const set = 'update tenants set schema_version = ?, compatible_from = ? where id = ?';
        await control(set, [version, version, world.acme.id]);

        try {
          await eventually(
            async () => expectUnavailable(await acme.get(path), 'migration_pending'),
            announcedMs,
          );
          expectUnavailable(await acme.post(path, { Title: 'too early' }), 'migration_pending');
          expect((await globex.get(path)).status).to.equal(200);
        } finally {
          await control(set, [await tenantHead(), await tenantHead(), world.acme.id]);
        }
      });
    }

    it('a tenant is refused when only the version in its own database differs', async () => {
      await sql(world.acme, `insert into migrations (name) values ('9999-from-a-newer-build')`);

      try {
        const another = await world.startAnotherServer();
        expectUnavailable(await acme.at(another.url).get(path), 'migration_pending');
        expect((await globex.at(another.url).get(path)).status).to.equal(200);

        // A process with open connections detects the version with the next connection that it
        // opens.
        await disconnect(world.acme.database);
        const readThrough = { 'Cache-Control': 'no-cache' };
        await eventually(
          async () => expectUnavailable(await acme.get(path, readThrough), 'migration_pending'),
          announcedMs,
        );
      } finally {
        await sql(world.acme, `delete from migrations where name = '9999-from-a-newer-build'`);
      }
    });
  });

  it('a tenant is refused when its database has no identity table, or the table has no version', async () => {
    for (const [hide, restore, code] of [
      [
        'table tenant_identity rename to hidden',
        'table hidden rename to tenant_identity',
        'unavailable',
      ],
      [
        'table tenant_identity rename schema_version to hidden',
        'table tenant_identity rename hidden to schema_version',
        'migration_pending',
      ],
    ] as const) {
      await sql(world.acme, `alter ${hide}`);

      try {
        const another = await world.startAnotherServer();
        expectUnavailable(await acme.at(another.url).get(path), code);
      } finally {
        await sql(world.acme, `alter ${restore}`);
      }
    }
  });

  it('plain SQL suspends a tenant in every process, and resumes it without a new login', async () => {
    const another = await world.startAnotherServer();
    const processes = [acme, acme.at(another.url)];
    for (const client of processes) expect((await client.get(path)).status).to.equal(200);

    await control(`update tenants set status = 'suspended' where id = ?`, [world.acme.id]);
    await eventually(async () => {
      for (const client of processes) {
        const { status, body } = await client.get(path);
        expect(status).to.equal(403);
        expect(body.code).to.equal('tenant_inactive');
      }
      return true;
    }, announcedMs);

    for (const { url } of processes) {
      expect((await globex.at(url).get(path)).status).to.equal(200);
      const refresh = await world.anonymous
        .at(url)
        .post(
          '/api/v1/auth/refresh',
          { refreshToken: acme.tokens?.refreshToken },
          { 'X-Tenant': world.acme.guid },
        );
      expect(refresh.status).to.equal(403);
      expect(refresh.body.code).to.equal('tenant_required');
    }

    await control(`update tenants set status = 'active' where id = ?`, [world.acme.id]);
    await eventually(async () => {
      for (const client of processes) expect((await client.get(path)).status).to.equal(200);
      return true;
    }, announcedMs);
  });

  function controlName(): string {
    return decodeURIComponent(new URL(world.installation.controlUrl).pathname.slice(1));
  }

  /** Expects a 503 without any row, and without a reason. */
  function expectUnavailable({ status, body, headers }: ApiResponse, code: string): true {
    expect(status).to.equal(503);
    expect(body.code).to.equal(code);
    expect(body).to.have.all.keys('code', 'retryAfter', 'status', 'title', 'traceId', 'type');
    expect(headers.get('retry-after')).to.equal('2');
    return true;
  }

  function expectLogged(traceId: string, since: number, code?: string): void {
    const lines = world.logs.slice(since).map(line => JSON.parse(line) as Record<string, never>);
    const error = lines.find(line => line.traceId === traceId && Number(line.level) >= 50);
    expect(error, 'an error in the log').to.be.an('object');
    if (code) expect(error?.err).to.include({ code });
  }
});

function queryAs(url: string, statement: string): Promise<object[]> {
  return withConnection(url, async client => (await client.query(statement)).rows);
}

function operatorQuery(statement: string): Promise<pg.QueryResult> {
  return withConnection(postgresUrl(), client => client.query(statement));
}

async function expectRefusal(
  url: string,
  statement: string,
  code = insufficientPrivilege,
): Promise<void> {
  const error = await errorOf(queryAs(url, statement));
  expect(error).to.be.instanceOf(pg.DatabaseError);
  expect(error.code).to.equal(code);
}

/** Terminates the service's connections to a database, and waits until they have ended. */
async function disconnect(database: string): Promise<void> {
  await withConnection(postgresUrl(), async client => {
    const { rows } = await client.query<{ ended: boolean }>(
      `select pg_terminate_backend(pid, 2000) as ended from pg_stat_activity where datname = $1`,
      [database],
    );
    expect(rows.length).to.be.greaterThan(0);
  });
}

import pg from 'pg';
import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';

/** Email address and password of a user. */
export interface Credentials {
  readonly email: string;
  readonly password: string;
}

/** SQL that inserts the 250 rows of the workloads `list250` and `list304`. */
export const insertManyRows = `insert into units_of_measure (code, name)
  select 'U' || to_char(n, 'FM000'), 'Unit of measure ' || n from generate_series(1, 250) n`;

/**
 * SQL that inserts the rows of the workloads of uncached reads: 1,000 activities, 1,000 audit
 * entries, 100 entities. The tables of the baseline have the same columns as those of a tenant.
 */
export const insertUncachedRows = `
  insert into entities (name, entity_type, status_id, currency_id, country_code)
    select 'Entity ' || n, case when n % 2 = 0 then 'customer' else 'supplier' end, 1 + n % 3, null, 'US'
      from generate_series(1, 100) n;
  insert into activities (activity_code, user_id, comment, entity_id, screen, ip_address, recorded_by, recorded_from)
    select 100 + n % 40, 1 + n % 20, 'Called about order ' || n, 1 + n % 100, 'Orders', '10.0.0.1', 1, '10.0.0.1'
      from generate_series(1, 1000) n;
  insert into audit_log (user_id, user_guid, action, resource, record_key, before, after, ip_address, trace_id, database_user)
    select 1, gen_random_uuid(), 'update', 'Entity', e.id, to_jsonb(e), to_jsonb(e), '10.0.0.1', md5(n::text), 'bench'
      from generate_series(1, 1000) n join entities e on e.id = 1 + n % 100`;

/**
 * Creates a database with the tables of one tenant for a server that the service is compared
 * with: no triggers, no roles; with an audit log, for the server that writes one.
 * @param users may log in, all with the password of this hash
 * @returns the URL of the database
 */
export async function createBaselineDatabase(
  serverUrl: string,
  name: string,
  users: Credentials[],
  passwordHash: string,
): Promise<string> {
  await withConnection(serverUrl, client =>
    client.query(`create database ${name} template template0`),
  );

  const url = databaseUrl(serverUrl, name);
  await withConnection(url, async client => {
    await client.query(`
      create table entity_statuses (id integer generated always as identity primary key, title text not null,
        weighting integer not null, created_at timestamptz not null default now());
      create table order_statuses (id integer generated always as identity primary key, name text not null,
        weighting integer not null, created_at timestamptz not null default now());
      create table units_of_measure (id integer generated always as identity primary key, code text not null,
        name text not null, created_at timestamptz not null default now());
      create unique index on units_of_measure (lower(code));
      create table entities (id bigint generated always as identity primary key, name text not null,
        entity_type text not null, status_id integer not null references entity_statuses, currency_id integer,
        country_code text, created_at timestamptz not null default now());
      create table activities (id bigint generated always as identity primary key,
        created_at timestamptz not null default clock_timestamp(), activity_code integer not null, user_id bigint,
        comment text, entity_id bigint, screen text, ip_address text, recorded_by bigint, recorded_from text);
      create index on activities (created_at desc, id desc);
      create index on activities (user_id, created_at desc, id desc);
      create index on activities (entity_id, created_at desc, id desc);
      create table audit_log (id bigint generated always as identity primary key,
        created_at timestamptz not null default now(), user_id bigint, user_guid uuid, action text not null,
        resource text not null, record_key text not null, before jsonb, after jsonb, ip_address text, trace_id text,
        database_user text);
      create index on audit_log (resource, record_key, id desc);
      create index on audit_log (user_id, id desc);
      create table users (id bigint generated always as identity primary key, email text not null unique,
        password_hash text not null);
      create table sessions (id uuid primary key default gen_random_uuid(), user_id bigint not null references users,
        created_at timestamptz not null default now());
      insert into entity_statuses (title, weighting) values ('Prospect', 0), ('Active', 1), ('Inactive', 2);
      ${insertManyRows};
      ${insertUncachedRows};
      analyze`);

    await client.query('insert into users (email, password_hash) select unnest($1::text[]), $2', [
      users.map(user => user.email),
      passwordHash,
    ]);
  });

  return url;
}

/**
 * Creates a database for the server that writes an audit entry with each record: a copy of a
 * tenant database, so that the audit log has the same columns and indexes, without its triggers.
 * @param tenantUrl URL of a tenant database that nobody is connected to
 * @returns the URL of the copy, for a superuser
 */
export async function createAuditedDatabase(
  serverUrl: string,
  name: string,
  tenantUrl: string,
): Promise<string> {
  const source = decodeURIComponent(new URL(tenantUrl).pathname.slice(1));
  await withConnection(serverUrl, client =>
    client.query(`create database ${name} template ${pg.escapeIdentifier(source)}`),
  );

  const url = databaseUrl(serverUrl, name);
  await withConnection(url, client =>
    client.query(`
      do $$
      declare
        t record;
      begin
        for t in select tgname, tgrelid::regclass as of from pg_trigger where not tgisinternal loop
          execute format('drop trigger %I on %s', t.tgname, t.of);
        end loop;
      end $$;
      analyze`),
  );

  return url;
}

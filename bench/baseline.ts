import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/postgres/connection.ts';

/** Email address and password of a user. */
export interface Credentials {
  readonly email: string;
  readonly password: string;
}

/** SQL that inserts the 250 rows of the workloads `list250` and `list304`. */
export const insertManyRows = `insert into units_of_measure (code, name)
  select 'U' || to_char(n, 'FM000'), 'Unit of measure ' || n from generate_series(1, 250) n`;

/**
 * Creates a database with the tables of one tenant for a server that the service is compared with: no triggers, no
 * roles; with an audit log, for the server that writes one.
 * @param users may log in, all with the password of this hash
 * @returns the URL of the database
 */
export async function createBaselineDatabase(
  serverUrl: string,
  name: string,
  users: Credentials[],
  passwordHash: string,
): Promise<string> {
  await withConnection(serverUrl, client => client.query(`create database ${name} template template0`));
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
      create table audit_log (id bigint generated always as identity primary key,
        created_at timestamptz not null default now(), user_id bigint, action text not null, resource text not null,
        record_key text not null, after jsonb, ip_address text, trace_id text);
      create index on audit_log (resource, record_key, id desc);
      create index on audit_log (user_id, id desc);
      create table users (id bigint generated always as identity primary key, email text not null unique,
        password_hash text not null);
      create table sessions (id uuid primary key default gen_random_uuid(), user_id bigint not null references users,
        created_at timestamptz not null default now());
      insert into entity_statuses (title, weighting) values ('Prospect', 0), ('Active', 1), ('Inactive', 2);
      ${insertManyRows};
      analyze`);
    await client.query('insert into users (email, password_hash) select unnest($1::text[]), $2', [
      users.map(user => user.email),
      passwordHash,
    ]);
  });
  return url;
}

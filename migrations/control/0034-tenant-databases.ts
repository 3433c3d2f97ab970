import { Migration } from '@mikro-orm/migrations';

/**
 * Every database that a tenant has, had or may get, in one table, in place of one table for moves, one for restored
 * tenants, one for former names and one for the warm pool. A move, a swap or a restore that an earlier build has begun
 * must be ended by that build first: the migration refuses, and names them.
 */
export class TenantDatabases extends Migration {
  static readonly compatible = true;
  /** What it drops although it is compatible: only commands of the build before use it, and they must fail. */
  static readonly withdrawn = [
    'warm_databases',
    'restored_tenants',
    'former_databases',
    'tenant_moves',
    'remember_database',
    'tenants.remember_database',
  ];

  override up(): void {
    this.addSql(refuseUnfinishedWork);
    this.addSql(`
      create table tenant_databases (
        id bigint primary key default nextval(pg_get_serial_sequence('tenants', 'id')),
        tenant_id bigint references tenants,
        server_id smallint not null references servers,
        database_name text not null,
        role_name text not null,
        role_password bytea,
        state text not null constraint tenant_databases_state_check
          check (state in ('reserved', 'filled', 'current', 'kept', 'condemned', 'gone')),
        origin text not null,
        kept_by text constraint tenant_databases_kept_by_check check (kept_by in ('move', 'swap', 'back')),
        keep_until timestamptz,
        digest text,
        schema_version text,
        compatible_from text,
        schema_fingerprint text,
        epoch bigint not null default 0,
        current_since timestamptz,
        current_during tstzmultirange not null default '{}',
        bytes bigint,
        rows bigint,
        copy_ms integer,
        pause_ms integer,
        error text,
        created_at timestamptz not null default now(),
        filled_at timestamptz,
        constraint tenant_databases_warm_check check (tenant_id is not null or state in ('reserved', 'filled', 'condemned'))
      )`);
    const describe = (column: string, text: string): void =>
      this.addSql(`comment on column tenant_databases.${column} is '${text}'`);
    describe('id', 'out of the sequence of tenants.id; the names contain it, so they are never used again');
    describe('tenant_id', 'null: a warm database, which no tenant has yet');
    describe('role_password', 'sealed, as tenants.role_password; null: it has none yet');
    describe('state', 'current: tenants has its names; gone: dropped, and only its names are left');
    describe('origin', 'what it was filled from, in words');
    describe(
      'kept_by',
      'what has replaced it: a move, which took its data along; a swap, or the undoing of one, which did not',
    );
    describe('digest', 'of the migrations of a warm database');
    describe('epoch', 'number of the last run that has worked on the tenant');
    describe('current_during', 'the times during which it was the database of the tenant, before the present one');
    this.addSql(
      `create unique index tenant_databases_current_unique on tenant_databases (tenant_id) where state = 'current'`,
    );
    this.addSql(
      `create unique index tenant_databases_name_unique on tenant_databases (database_name) where state <> 'gone'`,
    );
    this.addSql('create index tenant_databases_tenant_id_index on tenant_databases (tenant_id)');
    this.addSql(
      `create index tenant_databases_warm_index on tenant_databases (server_id, digest, id) where tenant_id is null`,
    );
    this.addSql(currentDatabases);
    this.addSql(formerDatabases);
    this.addSql(movedDatabases);
    this.addSql(warmDatabases);
    this.addSql('drop trigger remember_database on tenants');
    this.addSql('drop function remember_database');
    this.addSql('drop table tenant_moves, restored_tenants, former_databases, warm_databases');
    // Service processes of the build before read the column during an upgrade.
    this.addSql(`comment on column tenants.restoring is 'not used any more'`);
  }

  override down(): void {
    this.addSql(`
      do $$ begin
        if exists (select from tenant_databases where state in ('reserved', 'filled', 'kept', 'condemned')) then
          raise exception 'The control database has databases that an earlier build does not know. End the commands '
            'that work on them, and drop the others: npx backoffice databases; npx backoffice pool drain';
        end if;
      end $$`);
    this.addSql(
      `comment on column tenants.restoring is 'what its lost database is being restored from, in words; null: it is not'`,
    );
    for (const statement of earlierTables) this.addSql(statement);
    this.addSql(`
      insert into former_databases (tenant_id, server_id, database_name, until)
      select tenant_id, server_id, database_name, upper(span)
        from tenant_databases, unnest(current_during) as span where tenant_id is not null`);
    this.addSql('drop table tenant_databases');
  }
}

const refuseUnfinishedWork = `
  do $$
  declare
    unfinished text;
  begin
    select string_agg(what, '; ' order by what) into unfinished from (
      select 'a move of ' || slug || ' (' || m.state || '): npx backoffice move '
               || case m.state when 'settling' then 'settle' when 'aborting' then 'abort' else 'resume' end || ' ' || slug as what
        from tenant_moves m join tenants t on t.id = tenant_id
       where m.state not in ('switched', 'settled', 'aborted')
      union all
      select slug || ' was restored beside another tenant: npx backoffice delete ' || slug || '; npx backoffice purge ' || slug
        from restored_tenants r join tenants t on t.id = tenant_id
      union all
      select 'a restore of the lost database of ' || slug || ': npx backoffice restore ' || slug || ' --lost'
        from tenants where restoring is not null
      union all
      select 'a swap of ' || slug || ': npx backoffice restore back ' || slug
        from tenant_fences join tenants t on t.guid = tenant_guid
       where not exists (select from tenant_moves m
                          where m.tenant_id = t.id and m.state not in ('switched', 'settled', 'aborted'))) as work;
    if unfinished is not null then
      raise exception 'End what the earlier build has begun, with that build, and run this again: %', unfinished
        using errcode = 'object_not_in_prerequisite_state';
    end if;
  end $$`;

/** A tenant whose provisioning was not completed has an unfinished database; a purge that has begun condemned one. */
const currentDatabases = `
  insert into tenant_databases (tenant_id, server_id, database_name, role_name, role_password, state, origin,
                                schema_version, compatible_from, schema_fingerprint, current_since, created_at, filled_at)
  select id, server_id, database_name, role_name, role_password,
         case when purging_at is not null then 'condemned' when status = 'provisioning' then 'reserved' else 'current' end,
         'template', schema_version, compatible_from, schema_fingerprint,
         case when purging_at is null and status <> 'provisioning'
              then coalesce((select max(until) from former_databases f where f.tenant_id = t.id), created_at) end,
         created_at, case when status <> 'provisioning' then created_at end
    from tenants t order by id`;

/** The names that tenants had before. The first of them was that of the tenant from its creation on. */
const formerDatabases = `
  insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin, current_during, created_at)
  select tenant_id, server_id, database_name, database_name, 'gone', 'template', range_agg(tstzrange(since, until)), min(since)
    from (select f.*, least(until, coalesce(lag(until) over (partition by tenant_id order by until), t.created_at)) as since
            from former_databases f join tenants t on t.id = tenant_id) as f
   group by tenant_id, server_id, database_name`;

/** The databases that tenants had before a move, and that are kept for some time. */
const movedDatabases = `
  update tenant_databases d
     set state = 'kept', kept_by = 'move', keep_until = coalesce(m.reversible_until, now()), role_name = m.from_role
    from tenant_moves m
   where m.state = 'switched' and m.tenant_id = d.tenant_id and m.from_database = d.database_name and d.state = 'gone'`;

const warmDatabases = `
  insert into tenant_databases (id, server_id, database_name, role_name, state, origin, digest, created_at, filled_at)
  select w.id, server_id, prefix || '_warm_' || w.id, prefix || '_warm_' || w.id,
         case when ready_at is null then 'condemned' else 'filled' end, 'template', digest, w.created_at, ready_at
    from warm_databases w join servers s on s.id = server_id`;

/** The tables of earlier builds, as control migrations 0005, 0020 and 0023 have made them. */
const earlierTables = [
  `create table warm_databases (
     id bigint primary key,
     server_id smallint not null references servers on delete cascade,
     digest text not null,
     ready_at timestamptz,
     created_at timestamptz not null default now()
   )`,
  `comment on column warm_databases.id is 'out of the sequence of tenants.id: the tenant that claims it has this number'`,
  `comment on column warm_databases.digest is 'of the migrations that it has'`,
  `create index warm_databases_ready_index on warm_databases (server_id, digest, id) where ready_at is not null`,
  `create table restored_tenants (
     tenant_id bigint primary key references tenants on delete cascade,
     source_id bigint not null references tenants on delete cascade,
     restored_from text not null,
     complete_at timestamptz,
     swapped_at timestamptz,
     created_at timestamptz not null default now()
   )`,
  'create index restored_tenants_source_id_index on restored_tenants (source_id)',
  `comment on column restored_tenants.restored_from is 'an archive or a moment, in words; the data keeps the ids of the users of the source'`,
  `comment on column restored_tenants.swapped_at is 'when the source got the restored database, and this tenant its former one; null: not, or undone'`,
  `create table former_databases (
     tenant_id bigint not null references tenants on delete cascade,
     server_id smallint not null references servers on delete cascade,
     database_name text not null,
     until timestamptz not null default clock_timestamp()
   )`,
  'create index former_databases_tenant_id_index on former_databases (tenant_id, until)',
  `create function remember_database() returns trigger language plpgsql security definer
     set search_path = pg_catalog, public, pg_temp as $$
   begin
     insert into former_databases (tenant_id, server_id, database_name)
     values (old.id, old.server_id, old.database_name);
     return null;
   end $$`,
  `create trigger remember_database after update on tenants for each row
     when ((old.server_id, old.database_name) is distinct from (new.server_id, new.database_name))
     execute function remember_database()`,
  `create table tenant_moves (
     id bigint generated always as identity primary key,
     tenant_id bigint not null references tenants on delete cascade,
     state text not null default 'planned' constraint tenant_moves_state_check check (state in
       ('planned', 'prepared', 'copying', 'fenced', 'verified', 'switched', 'settling', 'settled', 'aborting', 'aborted')),
     from_server_id smallint not null references servers,
     from_database text not null,
     from_role text not null,
     to_server_id smallint not null references servers,
     to_database text not null,
     to_role text not null,
     to_password bytea not null,
     marker uuid not null default gen_random_uuid(),
     epoch bigint not null,
     keep_seconds integer not null,
     max_pause_ms integer not null,
     bytes bigint,
     rows bigint,
     copy_ms integer,
     pause_ms integer,
     checksums jsonb,
     error text,
     created_at timestamptz not null default now(),
     updated_at timestamptz not null default now(),
     fenced_at timestamptz,
     switched_at timestamptz,
     reversible_until timestamptz,
     ended_at timestamptz
   )`,
  `comment on column tenant_moves.to_password is 'sealed, as tenants.role_password'`,
  `comment on column tenant_moves.epoch is 'number of the run that works on the move: a run with a smaller one can change neither this row nor a database'`,
  `comment on column tenant_moves.marker is 'what a closed database has in the place of the guid of the tenant'`,
  `create unique index tenant_moves_unfinished_unique on tenant_moves (tenant_id)
     where state not in ('switched', 'settling', 'settled', 'aborted')`,
  'create index tenant_moves_tenant_id_index on tenant_moves (tenant_id, id desc)',
];

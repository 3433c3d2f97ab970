import { readFileSync } from 'node:fs';
import { Migration } from '@mikro-orm/migrations';

/** Programs: users without a person, which call the API with keys of their own. */
export class Programs extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addKinds();
    this.#addSessionFacts();
    this.#addKeys();
    this.addSql(auditChange);
  }

  override down(): void {
    this.addSql(firstAuditChange());
    this.addSql('drop table program_keys');
    this.addSql('drop trigger refuse_session on sessions');
    this.addSql('drop function refuse_session()');
    this.addSql(`
      alter table sessions
        drop column methods,
        drop column identity_id,
        drop column verified_at,
        drop column password_is_short`);
    this.addSql('drop trigger check_kind_of_user on users');
    this.addSql('drop function check_kind_of_user()');
    this.addSql(`delete from users where kind = 'program'`);
    this.addSql(`
      alter table users
        drop column kind,
        drop column networks,
        drop column copied_from`);
    this.addSql(
      `comment on table users is 'One person who logs in, or for whom an API client acts.'`,
    );
  }

  #addKinds(): void {
    this.addSql(`
      alter table users
        add column kind text not null default 'person'
          constraint users_kind_check check (kind in ('person', 'program')),
        add column networks cidr[] not null default '{}',
        add column copied_from bigint`);
    this.addSql(`
      comment on table users is
        'One person who logs in, or for whom an API client acts; or one program, which has keys.'`);
    this.addSql(`
      comment on column users.kind is
        'person or program; check_kind_of_user() says which columns a program leaves empty'`);
    this.addSql(`
      comment on column users.networks is
        'the networks from which the keys of a program are accepted; empty: from everywhere'`);
    this.addSql(`
      comment on column users.copied_from is
        'of a user of a clone: the id of the user in the source, which may be gone; null: none'`);

    // A check would name old columns, and the build before writes rows without the new ones.
    this.addSql(`
      create function check_kind_of_user() returns trigger language plpgsql as $$
      begin
        if tg_op = 'UPDATE' and new.kind <> old.kind then
          raise check_violation using message = 'the kind of a user does not change';
        end if;

        if new.kind = 'program' and (
          new.email <> 'program:' || new.guid
          or new.last_name <> ''
          or new.password_hash <> 'none'
          or new.invited_at is not null
          or new.confirmed_at is null) then
          raise check_violation using message = 'a program has no address, password or invitation';
        end if;

        if new.kind = 'person' and (new.email like 'program:%' or new.networks <> '{}') then
          raise check_violation using message = 'only a program has this address, or networks';
        end if;

        return new;
      end $$`);
    this.addSql(`
      create trigger check_kind_of_user
        before insert or update of
          kind, guid, email, last_name, password_hash, invited_at, confirmed_at, networks on users
        for each row execute function check_kind_of_user()`);
  }

  #addSessionFacts(): void {
    this.addSql(`
      alter table sessions
        add column methods text[] not null default '{pwd}'
          constraint sessions_methods_check
          check (methods <@ '{pwd,otp,pop,user,idp}'::text[]),
        add column identity_id bigint,
        add column verified_at timestamptz,
        add column password_is_short boolean not null default false`);
    this.addSql(`
      comment on column sessions.methods is
        'what was proved at the login, by RFC 8176: pwd, otp, pop, user; idp: by a provider'`);
    this.addSql(`
      comment on column sessions.identity_id is
        'the identity at a provider, by which the login was made; null: by none'`);
    this.addSql(`
      comment on column sessions.verified_at is
        'when the person last proved the password again; null: not since the login'`);
    this.addSql(`
      comment on column sessions.password_is_short is
        'true: the password of the login is shorter than new ones have to be'`);

    // Also against a process of the build before, which does not know who may have a session.
    this.addSql(`
      create function refuse_session() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if exists (select from users where id = new.user_id and kind = 'program') then
          raise insufficient_privilege using message = 'a program has no session';
        end if;

        return new;
      end $$`);
    this.addSql(`
      create trigger refuse_session before insert or update of user_id on sessions
        for each row execute function refuse_session()`);
  }

  #addKeys(): void {
    this.addSql(`
      create table program_keys (
        id uuid primary key default gen_random_uuid(),
        tenant_id bigint not null,
        program_id bigint not null,
        hash bytea not null constraint program_keys_hash_unique unique,
        prefix text not null,
        made_by bigint,
        created_at timestamptz not null default now(),
        expires_at timestamptz not null,
        revoked_at timestamptz,
        last_used_at timestamptz,
        constraint program_keys_program_fkey
          foreign key (tenant_id, program_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`comment on table program_keys is 'One key of a program: its bearer token.'`);
    this.addSql(`
      comment on column program_keys.hash is
        'SHA-256 of the key, which is random and needs no slow hash'`);
    this.addSql(`
      comment on column program_keys.prefix is
        'the first characters of the key, by which people recognise it'`);
    this.addSql(`
      comment on column program_keys.made_by is
        'the id of the user who made it, who may be gone; null: an operator'`);
    this.addSql(`
      comment on column program_keys.last_used_at is
        'the last hour in which it was used; null: it was not'`);
    // the keys of a program
    this.addSql(
      'create index program_keys_program_id_index on program_keys (tenant_id, program_id)',
    );
    // the keys that a person has made
    this.addSql('create index program_keys_made_by_index on program_keys (tenant_id, made_by)');

    for (const action of ['insert', 'update'] as const) {
      this.addSql(`
        create trigger audit_${action} after ${action} on program_keys
          for each row execute function audit_change(
            'ProgramKey', 'id', 'program_id', 'prefix', 'made_by', 'created_at', 'expires_at',
            'revoked_at')`);
    }

    // Caches find a key by its hash, or for an access token by its id. Inserts are not announced:
    // no cache has the row. Neither are uses.
    for (const name of ['id', 'hash']) {
      this.addSql(`
        create trigger announce_change_of_${name} after delete on program_keys
          for each row execute function announce_change('keys', '${name}')`);
      this.addSql(`
        create trigger announce_update_of_${name} after update on program_keys
          for each row when (
            (to_jsonb(old) - 'last_used_at') is distinct from (to_jsonb(new) - 'last_used_at'))
          execute function announce_change('keys', '${name}')`);
    }
    this.addSql(`
      create trigger announce_truncate after truncate on program_keys
        execute function announce_truncate()`);
  }
}

/** `audit_change()` of the first schema, which writes the entries of programs as `Program`. */
const auditChange = `
create or replace function audit_change() returns trigger language plpgsql security definer
  set search_path = pg_catalog, public, pg_temp as $$
declare
  actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
  record jsonb := to_jsonb(case tg_op when 'DELETE' then old else new end);
  before jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  after jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
  resource text := tg_argv[0];
  columns text[] := tg_argv[1:];
begin
  if resource = 'User' then
    if coalesce(
      before ->> 'confirmed_at', before ->> 'invited_at', before ->> 'disabled_at') is null then
      before := null;
    end if;

    if coalesce(
      after ->> 'confirmed_at', after ->> 'invited_at', after ->> 'disabled_at') is null then
      after := null;
    end if;

    before := before || jsonb_build_object(
      'role', (select name from roles where id = (before ->> 'role_id')::bigint),
      'is_disabled', before ->> 'disabled_at' is not null);
    after := after || jsonb_build_object(
      'role', (select name from roles where id = (after ->> 'role_id')::bigint),
      'is_disabled', after ->> 'disabled_at' is not null);
  end if;

  if resource = 'User' and record ->> 'kind' = 'program' then
    resource := 'Program';
    columns := array[
      'id', 'guid', 'name', 'role', 'scope', 'entity_id', 'networks', 'is_disabled', 'created_at'];
    before := before || jsonb_build_object('name', before -> 'first_name');
    after := after || jsonb_build_object('name', after -> 'first_name');
  end if;

  before := (
    select jsonb_object_agg(key, value) from jsonb_each(before) where key = any (columns));
  after := (
    select jsonb_object_agg(key, value) from jsonb_each(after) where key = any (columns));

  if before is not distinct from after then
    return null;
  end if;

  insert into audit_log (
    tenant_id, user_id, user_guid, entity_id, entity_since,
    action, resource, record_key,
    before, after,
    ip_address, trace_id, database_user)
  select t.id,
         (actor ->> 'userId')::bigint,
         (actor ->> 'userGuid')::uuid,
         (record ->> 'entity_id')::bigint,
         (record ->> 'entity_since')::timestamptz,

         case when before is null then 'create' when after is null then 'delete' else 'update' end,
         resource,
         record ->> 'id',

         before,
         after,

         actor ->> 'ipAddress',
         actor ->> 'traceId',
         session_user
    -- No row while a tenant is deleted with its users.
    from tenants t
   where t.id = (record ->> 'tenant_id')::bigint;

  return null;
end $$`;

/** Returns the statement of the first schema that makes `audit_change()`. */
function firstAuditChange(): string {
  const page = readFileSync(new URL('0001-first-schema.sql', import.meta.url), 'utf8');
  const [statement] = /create function audit_change\(\)[\s\S]*?\nend \$\$/.exec(page) ?? [];
  if (statement === undefined) throw new Error('the first schema has no function audit_change()');

  return statement.replace('create function', 'create or replace function');
}

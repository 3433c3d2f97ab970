import { Migration } from '@mikro-orm/migrations';

/**
 * What administrators of a tenant need to manage its people: the audit log of users and roles, invitations, keys of
 * repeatable requests, and the time of the last login by an index.
 */
export class People extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table users add column invited_at timestamptz');
    this.addSql(
      `comment on column users.invited_at is 'time of the last invitation; null for a user who registered or was added by an operator'`,
    );
    // The newest session of a user tells the last login: a login deletes expired sessions when it inserts its own.
    this.addSql('create index sessions_user_id_created_at_index on sessions (user_id, created_at)');
    this.addSql('drop index sessions_user_id_index');
    this.#auditLog();
    this.#triggers();
    this.addSql(`
      create table idempotency_keys (
        user_id bigint not null constraint idempotency_keys_user_id_fkey references users on delete cascade,
        key text not null,
        fingerprint bytea not null,
        rows text not null,
        created_at timestamptz not null default now(),
        primary key (user_id, key)
      )`);
    this.addSql('create index idempotency_keys_created_at_index on idempotency_keys (created_at)');
  }

  /** Rows can be neither changed nor deleted, except with their tenant. */
  #auditLog(): void {
    this.addSql(`
      create table audit_log (
        id bigint generated always as identity primary key,
        tenant_id bigint not null constraint audit_log_tenant_id_fkey references tenants on delete cascade,
        created_at timestamptz not null default now(),
        user_id bigint,
        user_guid uuid,
        entity_id bigint,
        action text not null,
        resource text not null,
        record_key text not null,
        before jsonb,
        after jsonb,
        ip_address text,
        trace_id text,
        database_user text not null
      )`);
    this.addSql(
      `comment on table audit_log is 'changes of users and roles; the other resources have theirs in the tenant database'`,
    );
    this.addSql(
      'create index audit_log_resource_record_key_index on audit_log (tenant_id, resource, record_key, id desc)',
    );
    this.addSql('create index audit_log_user_id_index on audit_log (tenant_id, user_id, id desc)');
    this.addSql('create index audit_log_resource_index on audit_log (tenant_id, resource, id desc)');
    this.addSql(`
      create function refuse_audit_change() returns trigger language plpgsql
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if tg_op = 'DELETE' and not exists (select from tenants where id = old.tenant_id) then return old; end if;
        raise exception '% is append-only', tg_table_name using errcode = 'insufficient_privilege';
      end $$`);
    this.addSql(
      'create trigger append_only before update or delete on audit_log for each row execute function refuse_audit_change()',
    );
    this.addSql(
      'create trigger append_only_truncate before truncate on audit_log execute function refuse_audit_change()',
    );
  }

  /**
   * The entries are written by triggers that run as the owner of the tables, because the service may not write to the
   * audit log. They contain the named columns only, so never a password hash.
   */
  #triggers(): void {
    this.addSql(`
      create function audit_change() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
        record jsonb := to_jsonb(case tg_op when 'DELETE' then old else new end);
        before jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
        after jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
      begin
        if tg_argv[0] = 'User' then
          -- a registration that nobody has confirmed is not a user yet: its confirmation is the creation
          if coalesce(before ->> 'confirmed_at', before ->> 'invited_at', before ->> 'disabled_at') is null then before := null; end if;
          if coalesce(after ->> 'confirmed_at', after ->> 'invited_at', after ->> 'disabled_at') is null then after := null; end if;
          before := before || jsonb_build_object('role', (select name from roles where id = (before ->> 'role_id')::bigint));
          after := after || jsonb_build_object('role', (select name from roles where id = (after ->> 'role_id')::bigint));
        end if;
        before := (select jsonb_object_agg(key, value) from jsonb_each(before) where key = any (tg_argv[1:]));
        after := (select jsonb_object_agg(key, value) from jsonb_each(after) where key = any (tg_argv[1:]));
        if before is not distinct from after then return null; end if;
        insert into audit_log (tenant_id, user_id, user_guid, entity_id, action, resource, record_key, before, after,
                               ip_address, trace_id, database_user)
        select t.id, (actor ->> 'userId')::bigint, (actor ->> 'userGuid')::uuid, (record ->> 'entity_id')::bigint,
               case when before is null then 'create' when after is null then 'delete' else 'update' end,
               tg_argv[0], record ->> 'id', before, after, actor ->> 'ipAddress', actor ->> 'traceId', session_user
          from tenants t where t.id = (record ->> 'tenant_id')::bigint; -- none while a tenant is deleted with its users
        return null;
      end $$`);
    const audit = (table: string, resource: string, columns: string[]): void => {
      const names = [resource, ...columns].map(name => `'${name}'`).join(', ');
      this.addSql(
        `create trigger audit_create_delete after insert or delete on ${table} for each row execute function audit_change(${names})`,
      );
      this.addSql(
        `create trigger audit_update after update on ${table} for each row when (old.* is distinct from new.*) execute function audit_change(${names})`,
      );
    };
    audit('roles', 'Role', ['id', 'name', 'permissions']);
    audit(
      'users',
      'User',
      'id guid email first_name last_name role scope entity_id invited_at confirmed_at disabled_at created_at'.split(
        ' ',
      ),
    );
    // The end of a session belongs to its user. Logouts and expiry are not changes of a user.
    this.addSql(`
      create function audit_session_end() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
      begin
        insert into audit_log (tenant_id, user_id, user_guid, entity_id, action, resource, record_key, before, after,
                               ip_address, trace_id, database_user)
        select u.tenant_id, (actor ->> 'userId')::bigint, (actor ->> 'userGuid')::uuid, u.entity_id, 'update', 'User', u.id,
               jsonb_build_object('session_id', new.id, 'session_created_at', new.created_at, 'session_revoked_at', null),
               jsonb_build_object('session_id', new.id, 'session_created_at', new.created_at, 'session_revoked_at', new.revoked_at),
               actor ->> 'ipAddress', actor ->> 'traceId', session_user
          from users u where u.id = new.user_id;
        return null;
      end $$`);
    this.addSql(`
      create trigger audit_session_end after update on sessions for each row
        when (old.revoked_at is null and new.revoked_at is not null
          and new.revoked_reason in ('ended', 'user_disabled', 'operator'))
        execute function audit_session_end()`);
  }

  override down(): void {
    this.addSql('drop table idempotency_keys');
    this.addSql('drop trigger audit_session_end on sessions');
    for (const table of ['users', 'roles']) {
      this.addSql(`drop trigger audit_update on ${table}`);
      this.addSql(`drop trigger audit_create_delete on ${table}`);
    }
    this.addSql('drop function audit_session_end, audit_change');
    this.addSql('drop table audit_log');
    this.addSql('drop function refuse_audit_change');
    this.addSql('create index sessions_user_id_index on sessions (user_id)');
    this.addSql('drop index sessions_user_id_created_at_index');
    this.addSql('alter table users drop column invited_at');
  }
}

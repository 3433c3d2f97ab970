import { Migration } from '@mikro-orm/migrations';
import { appendOnly, grant } from './sql.ts';

/**
 * What every tenant database has before any resource: the guid of the tenant it belongs to, the audit log and its
 * trigger, and the rights of the role the service connects as. That role is a member of the group named in
 * `app.tenant_group` (set by whoever migrates); a table grants to the group, so a database copied from the template is
 * ready at once.
 */
export class Foundation extends Migration {
  override up(): void {
    this.addSql(`
      create table tenant_identity (
        singleton boolean primary key default true check (singleton),
        guid uuid not null
      )`);

    this.addSql(`
      create table audit_log (
        id bigint generated always as identity primary key,
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
    this.addSql(`create index audit_log_resource_record_key_index on audit_log (resource, record_key, id desc)`);
    this.addSql(`create index audit_log_user_id_index on audit_log (user_id, id desc)`);

    this.addSql(`
      create function refuse_change() returns trigger language plpgsql as $$
      begin
        raise exception '% is append-only', tg_table_name using errcode = 'insufficient_privilege';
      end $$`);
    this.addSql(appendOnly('audit_log'));

    // Runs as the owner of the tables, because the service itself may not write to the audit log.
    this.addSql(`
      create function audit_change() returns trigger language plpgsql security definer set search_path = pg_catalog, public as $$
      declare
        actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
        record jsonb := to_jsonb(case tg_op when 'DELETE' then old else new end);
      begin
        insert into audit_log (user_id, user_guid, entity_id, action, resource, record_key, before, after, ip_address, trace_id, database_user)
        values (
          (actor ->> 'userId')::bigint, (actor ->> 'userGuid')::uuid,
          case when tg_nargs > 2 then (record ->> tg_argv[2])::bigint end,
          case tg_op when 'INSERT' then 'create' when 'DELETE' then 'delete' else
            -- marking a row as deleted is what its users call deleting it
            case when (to_jsonb(new) ->> 'is_deleted') = 'true' and (to_jsonb(old) ->> 'is_deleted') = 'false' then 'delete' else 'update' end
          end,
          tg_argv[0], record ->> tg_argv[1],
          case when tg_op <> 'INSERT' then to_jsonb(old) end,
          case when tg_op <> 'DELETE' then to_jsonb(new) end,
          actor ->> 'ipAddress', actor ->> 'traceId', session_user);
        return null;
      end $$`);

    this.addSql(grant('usage', 'schema public'));
    this.addSql(grant('select', 'tenant_identity', 'audit_log', 'migrations'));
  }

  override down(): void {
    this.addSql('drop table audit_log, tenant_identity');
    this.addSql('drop function audit_change, refuse_change');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** Each new entry of the audit log removes up to this many old ones, so that their number falls. */
const batch = 10;

/**
 * How long the audit log of users and roles is kept. Each new entry removes some old ones: nothing else is needed for
 * the table to stay bounded. The trigger that makes the table append-only lets exactly these pass.
 */
export class AgeOfPeopleAudit extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      alter table retention_policies add column people text
        constraint retention_policies_people_check check (people ~ '^(forever|[1-9][0-9]{0,4}[dmy])$')`);
    this.addSql(
      `comment on column retention_policies.people is 'of the default: how long the audit log of users and roles is kept; null: 10y'`,
    );
    this.addSql(`
      create function people_audit_kept_from() returns timestamptz language sql stable
        set search_path = pg_catalog, public, pg_temp as $$
        select case when age = 'forever' then '-infinity'
                    else now() - (left(age, -1) || case right(age, 1) when 'd' then ' days' when 'm' then ' months' else ' years' end)::interval
                end
          from (select coalesce((select people from retention_policies where tenant_id is null), '10y')) as policy (age)
      $$`);
    this.addSql(`
      create or replace function refuse_audit_change() returns trigger language plpgsql
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if tg_op = 'DELETE' then
          if not exists (select from tenants where id = old.tenant_id) then return old; end if;
          if old.created_at < people_audit_kept_from() then return old; end if;
        end if;
        raise exception '% is append-only', tg_table_name using errcode = 'insufficient_privilege';
      end $$`);
    this.addSql(`
      create function remove_old_audit_entries() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        delete from audit_log where id in (
          select id from audit_log
           where id = any (array(select id from audit_log order by id limit ${batch})) and created_at < people_audit_kept_from()
             for update skip locked);
        return null;
      end $$`);
    this.addSql(
      'create trigger remove_old after insert on audit_log for each statement execute function remove_old_audit_entries()',
    );
  }

  override down(): void {
    this.addSql('drop trigger remove_old on audit_log');
    this.addSql('drop function remove_old_audit_entries');
    this.addSql(`
      create or replace function refuse_audit_change() returns trigger language plpgsql
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if tg_op = 'DELETE' and not exists (select from tenants where id = old.tenant_id) then return old; end if;
        raise exception '% is append-only', tg_table_name using errcode = 'insufficient_privilege';
      end $$`);
    this.addSql('drop function people_audit_kept_from');
    this.addSql('alter table retention_policies drop column people');
  }
}

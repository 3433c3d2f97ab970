import { Migration } from '@mikro-orm/migrations';

/**
 * No audit entry of the service without the request that it comes from: a change that would write one is refused. Who
 * may act as the owner of the tables (an operator with psql, a migration) has no request, and is let pass.
 */
export class AuditedActor extends Migration {
  override up(): void {
    this.addSql(`
      create function require_actor() returns trigger language plpgsql set search_path = pg_catalog, public as $$
      begin
        if not pg_has_role(session_user, (select relowner from pg_class where oid = tg_relid), 'member') then
          raise exception 'a change without an actor' using errcode = 'insufficient_privilege';
        end if;
        return new;
      end $$`);
    this.addSql(`
      create trigger require_actor before insert on audit_log
        for each row when (new.trace_id is null) execute function require_actor()`);
  }

  override down(): void {
    this.addSql('drop trigger require_actor on audit_log');
    this.addSql('drop function require_actor');
  }
}

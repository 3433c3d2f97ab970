import { Migration } from '@mikro-orm/migrations';

/**
 * Whoever opens a connection asks which tenant's database it is, and at which version. Both stand in one row now: to
 * open a second table costs a new connection half a millisecond. The table of migrations decides, whoever writes to it.
 */
export class IdentityVersion extends Migration {
  override up(): void {
    this.addSql('alter table tenant_identity add column schema_version text');
    this.addSql(`
      create function stamp_schema_version() returns trigger language plpgsql set search_path = pg_catalog, public as $$
      begin
        if tg_table_name = 'tenant_identity' then
          new.schema_version := (select max(name) from migrations);
          return new;
        end if;
        update tenant_identity set schema_version = (select max(name) from migrations);
        return null;
      end $$`);
    this.addSql(`
      create trigger stamp_schema_version before insert or update on tenant_identity
        for each row execute function stamp_schema_version()`);
    this.addSql(`
      create trigger stamp_schema_version after insert or update or delete or truncate on migrations
        for each statement execute function stamp_schema_version()`);
  }

  override down(): void {
    this.addSql('drop trigger stamp_schema_version on migrations');
    this.addSql('drop trigger stamp_schema_version on tenant_identity');
    this.addSql('drop function stamp_schema_version');
    this.addSql('alter table tenant_identity drop column schema_version');
  }
}

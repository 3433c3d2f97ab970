import { Migration } from '@mikro-orm/migrations';

/**
 * Records with each migration whether the build before it can serve the new schema, and with the identity the oldest
 * build that can. A build reads the identity with each new connection, so a running build knows of a later migration,
 * whose file it does not have, whether it can go on.
 */
export class CompatibleVersions extends Migration {
  static readonly compatible = false;

  override up(): void {
    this.addSql('alter table migrations add column compatible boolean not null default false');
    this.addSql('alter table tenant_identity add column compatible_from text');
    this.addSql(`
      create or replace function stamp_schema_version() returns trigger language plpgsql
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if tg_table_name = 'tenant_identity' then
          select max(name), max(name) filter (where not compatible) into new.schema_version, new.compatible_from
            from migrations;
          return new;
        end if;
        update tenant_identity set guid = guid;
        return null;
      end $$`);
  }

  override down(): void {
    this.addSql(`
      create or replace function stamp_schema_version() returns trigger language plpgsql
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if tg_table_name = 'tenant_identity' then
          new.schema_version := (select max(name) from migrations);
          return new;
        end if;
        update tenant_identity set schema_version = (select max(name) from migrations);
        return null;
      end $$`);
    this.addSql('alter table tenant_identity drop column compatible_from');
    this.addSql('alter table migrations drop column compatible');
  }
}

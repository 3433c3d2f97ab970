import { Migration } from '@mikro-orm/migrations';

/** Restored tenants beside the tenants that they were restored from, and where the databases of tenants were before. */
export class RestoredTenants extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table restored_tenants (
        tenant_id bigint primary key references tenants on delete cascade,
        source_id bigint not null references tenants on delete cascade,
        restored_from text not null,
        complete_at timestamptz,
        swapped_at timestamptz,
        created_at timestamptz not null default now()
      )`);
    this.addSql('create index restored_tenants_source_id_index on restored_tenants (source_id)');
    this.addSql(
      `comment on column restored_tenants.restored_from is 'an archive or a moment, in words; the data keeps the ids of the users of the source'`,
    );
    this.addSql(
      `comment on column restored_tenants.swapped_at is 'when the source got the restored database, and this tenant its former one; null: not, or undone'`,
    );
    this.addSql(`
      create table former_databases (
        tenant_id bigint not null references tenants on delete cascade,
        server_id smallint not null references servers on delete cascade,
        database_name text not null,
        until timestamptz not null default clock_timestamp()
      )`);
    this.addSql('create index former_databases_tenant_id_index on former_databases (tenant_id, until)');
    this.addSql(`
      create function remember_database() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        insert into former_databases (tenant_id, server_id, database_name)
        values (old.id, old.server_id, old.database_name);
        return null;
      end $$`);
    this.addSql(`
      create trigger remember_database after update on tenants for each row
        when ((old.server_id, old.database_name) is distinct from (new.server_id, new.database_name))
        execute function remember_database()`);
  }

  override down(): void {
    this.addSql('drop trigger remember_database on tenants');
    this.addSql('drop function remember_database');
    this.addSql('drop table former_databases, restored_tenants');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** The capacity of a server, and a record of each purged tenant. */
export class ServersAndPurges extends Migration {
  override up(): void {
    this.addSql(`alter table servers add capacity integer constraint servers_capacity_check check (capacity >= 0)`);
    this.addSql(
      `comment on column servers.capacity is 'most tenants placed there without being asked for it by name; null: no limit'`,
    );
    this.addSql(`
      create table purged_tenants (
        id bigint primary key,
        guid uuid not null,
        slug text not null,
        name text not null,
        database_name text not null,
        created_at timestamptz not null,
        purged_at timestamptz not null default now()
      )`);
  }

  override down(): void {
    this.addSql('drop table purged_tenants');
    this.addSql('alter table servers drop capacity');
  }
}

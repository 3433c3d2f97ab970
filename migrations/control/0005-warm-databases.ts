import { Migration } from '@mikro-orm/migrations';

/** The warm pool: databases that were prepared for future tenants. */
export class WarmDatabases extends Migration {
  override up(): void {
    this.addSql(`
      create table warm_databases (
        id bigint primary key,
        server_id smallint not null references servers on delete cascade,
        digest text not null,
        ready_at timestamptz,
        created_at timestamptz not null default now()
      )`);
    this.addSql(
      `comment on column warm_databases.id is 'out of the sequence of tenants.id: the tenant that claims it has this number'`,
    );
    this.addSql(`comment on column warm_databases.digest is 'of the migrations that it has'`);
    this.addSql(
      `create index warm_databases_ready_index on warm_databases (server_id, digest, id) where ready_at is not null`,
    );
  }

  override down(): void {
    this.addSql('drop table warm_databases');
  }
}

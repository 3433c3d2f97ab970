import { Migration } from '@mikro-orm/migrations';

/** Every run compares each tenant database with the template again (decision 0029), so nothing is recorded for that. */
export class NoCatalogRecords extends Migration {
  static readonly compatible = true;
  /** What it drops although it is compatible: only commands of the build before use it, and they must fail. */
  static readonly withdrawn = ['catalog_records'];

  override up(): void {
    this.addSql('drop table catalog_records');
  }

  override down(): void {
    this.addSql(`
      create table catalog_records (
        tenant_id bigint primary key constraint catalog_records_tenant_id_fkey references tenants on delete cascade,
        source text not null,
        counters text not null,
        digest text not null,
        recorded_at timestamptz not null default now()
      )`);
    this.addSql(
      `comment on table catalog_records is 'catalogs of tenant databases, when a migration or a rollback was committed'`,
    );
    this.addSql(`comment on column catalog_records.source is 'the database, and the run of its server'`);
    this.addSql(`comment on column catalog_records.counters is 'rows that were written since, by catalog'`);
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * What a run needs to leave out the comparison of tenant databases whose catalogs nobody has changed since the last
 * one.
 */
export class CatalogRecords extends Migration {
  static readonly compatible = true;

  override up(): void {
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

  override down(): void {
    this.addSql('drop table catalog_records');
  }
}

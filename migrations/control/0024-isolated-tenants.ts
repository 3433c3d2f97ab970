import { Migration } from '@mikro-orm/migrations';

/** Tenants that reach nobody outside, and tenants whose lost databases are being restored. */
export class IsolatedTenants extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table tenants add column isolated boolean not null default false, add column restoring text');
    this.addSql(
      `comment on column tenants.isolated is 'true: the tenant sends no mail, and its legacy clients get no access'`,
    );
    this.addSql(
      `comment on column tenants.restoring is 'what its lost database is being restored from, in words; null: it is not'`,
    );
    this.addSql(
      `update tenants set isolated = true
        where id in (select tenant_id from restored_tenants where tenant_id <> source_id)`,
    );
    this.addSql(
      `update tenants set restoring = restored_from from restored_tenants r
        where r.tenant_id = tenants.id and r.source_id = tenants.id`,
    );
    this.addSql('delete from restored_tenants where tenant_id = source_id');
  }

  override down(): void {
    this.addSql('alter table tenants drop column restoring, drop column isolated');
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * The oldest build that can serve a tenant's database, by the last migration of the build; and with each migration of
 * the control database, whether processes of the build before it can start and go on.
 */
export class CompatibleVersions extends Migration {
  static readonly compatible = false;

  override up(): void {
    this.addSql('alter table migrations add column compatible boolean not null default false');
    this.addSql('alter table tenants add column compatible_from text');
    this.addSql(
      `comment on column tenants.compatible_from is 'the oldest build that can serve schema_version; null if only the build of that version can'`,
    );
  }

  override down(): void {
    this.addSql('alter table tenants drop column compatible_from');
    this.addSql('alter table migrations drop column compatible');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** The address of the pages that links in the mails of a tenant lead to. */
export class AppUrls extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table tenants add app_url text');
  }

  override down(): void {
    this.addSql('alter table tenants drop app_url');
  }
}

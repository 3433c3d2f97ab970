import { Migration } from '@mikro-orm/migrations';

/** Finds the users with an address in all tenants. */
export class UserAddresses extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('create index users_email_index on users (email)');
  }

  override down(): void {
    this.addSql('drop index users_email_index');
  }
}

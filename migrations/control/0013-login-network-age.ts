import { Migration } from '@mikro-orm/migrations';

/** Finds the networks that users have not logged in from for 30 days: each new network removes some of them. */
export class LoginNetworkAge extends Migration {
  override up(): void {
    this.addSql('create index login_networks_last_login_at_index on login_networks (last_login_at)');
  }

  override down(): void {
    this.addSql('drop index login_networks_last_login_at_index');
  }
}

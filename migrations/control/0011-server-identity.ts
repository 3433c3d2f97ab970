import { Migration } from '@mikro-orm/migrations';

/**
 * Which PostgreSQL server an address leads to, by its own account: two addresses of one server share its connections.
 */
export class ServerIdentity extends Migration {
  override up(): void {
    this.addSql('alter table servers add column identity text');
  }

  override down(): void {
    this.addSql('alter table servers drop column identity');
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * Remembers how far the feed of a tenant was when its webhooks were served last. The places of the webhooks are in the
 * tenant's database: when the files of its server are put back to a snapshot, they go back with the changes, and only
 * another database can tell.
 */
export class FeedPlaces extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table webhook_tenants add column feed_cursor text');
    this.addSql(
      `comment on column webhook_tenants.feed_cursor is 'cursor of the feed when the webhooks were served last'`,
    );
  }

  override down(): void {
    this.addSql('alter table webhook_tenants drop column feed_cursor');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** Finds expired legacy tokens, expired mail tokens and users who never confirmed: each insert removes some of them. */
export class ExpiryIndexes extends Migration {
  override up(): void {
    this.addSql('create index legacy_tokens_expires_at_index on legacy_tokens (expires_at)');
    this.addSql('create index mail_tokens_expires_at_index on mail_tokens (expires_at)');
    this.addSql('create index users_unconfirmed_index on users (created_at) where confirmed_at is null');
  }

  override down(): void {
    this.addSql('drop index legacy_tokens_expires_at_index, mail_tokens_expires_at_index, users_unconfirmed_index');
  }
}

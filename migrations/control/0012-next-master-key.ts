import { Migration } from '@mikro-orm/migrations';

/** The proof of the next master key, while the master key is being changed. */
export class NextMasterKey extends Migration {
  override up(): void {
    this.addSql('alter table installation add column next_master_key_canary bytea');
    this.addSql(
      `comment on column installation.next_master_key_canary is 'the id, sealed under the next master key; null unless the master key is being changed'`,
    );
  }

  override down(): void {
    this.addSql('alter table installation drop column next_master_key_canary');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** Which tenants a purge has begun to remove: nothing brings them back. */
export class PurgingTenants extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table tenants add column purging_at timestamptz');
    this.addSql(
      `comment on column tenants.purging_at is 'when a purge has begun, which can only be ended; null: none has'`,
    );
    this.addSql(
      `comment on column purged_tenants.signature is 'Ed25519, of the bytes of the record, by the key that the record names; null: the keyring of the backup target may still have the key'`,
    );
  }

  override down(): void {
    this.addSql('alter table tenants drop column purging_at');
  }
}

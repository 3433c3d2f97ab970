import { Migration } from '@mikro-orm/migrations';

/** Which master keys each running process has, and an announcement when another one seals the secrets. */
export class MasterKeysOfProcesses extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table processes add column master_key text, add column previous_master_key text');
    this.addSql(
      `comment on column processes.master_key is 'fingerprint of MASTER_KEY, which tells nothing of the key; null for a build that does not register it'`,
    );
    this.addSql(
      `comment on column processes.previous_master_key is 'fingerprint of MASTER_KEY_PREVIOUS; null without one'`,
    );
    this.addSql(`
      create trigger announce_change after update on installation for each row
        when (old.master_key_canary is distinct from new.master_key_canary)
        execute function announce_change('master_key', 'id')`);
    this.addSql('create trigger announce_truncate after truncate on installation execute function announce_truncate()');
  }

  override down(): void {
    this.addSql('drop trigger announce_change on installation; drop trigger announce_truncate on installation');
    this.addSql('alter table processes drop column master_key, drop column previous_master_key');
  }
}

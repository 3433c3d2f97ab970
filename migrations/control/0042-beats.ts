import { Migration } from '@mikro-orm/migrations';

/** The connection budget that each running process has in its settings, and which master key is the present one. */
export class Beats extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table processes add column connection_budget integer');
    this.addSql(
      `comment on column processes.seen_at is 'the last beat: a process runs while it is younger than five seconds'`,
    );
    this.addSql(`comment on column processes.connection_budget is 'CONNECTION_BUDGET of the process'`);
    this.addSql('alter table installation add column key_fingerprint text');
    this.addSql(
      `comment on column installation.key_fingerprint is 'fingerprint of the master key that seals the secrets; null before the first secret'`,
    );
  }

  override down(): void {
    this.addSql('alter table installation drop column key_fingerprint');
    this.addSql('alter table processes drop column connection_budget');
    this.addSql(`comment on column processes.seen_at is 'for people; no process decides by it, because clocks jump'`);
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * No activity of the service without the request that it comes from: an insert outside of the transaction that carries
 * the actor is refused. That transaction may be missing because its `begin` alone was cancelled. Other tables are
 * audited, so `require_actor` on the audit log refuses such changes of theirs.
 */
export class ActivityActor extends Migration {
  override up(): void {
    this.addSql(`
      create trigger require_actor before insert on activities
        for each row when (coalesce(current_setting('app.actor', true), '') = '') execute function require_actor()`);
  }

  override down(): void {
    this.addSql('drop trigger require_actor on activities');
  }
}

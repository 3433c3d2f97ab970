import { Migration } from '@mikro-orm/migrations';

/** Who sent a registration with a token: the audit log names this administrator when the person confirms. */
export class SendersOfRegistrations extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table registrations add column actor text');
    this.addSql(
      `comment on column registrations.actor is 'app.actor of the administrator who registered the person; null: anyone'`,
    );
  }

  override down(): void {
    this.addSql('alter table registrations drop column actor');
  }
}

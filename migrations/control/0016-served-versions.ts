import { Migration } from '@mikro-orm/migrations';

/** The last migrations that the build of a running process has, so that a migration run knows what it can serve. */
export class ServedVersions extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table processes add column tenant_head text, add column control_head text');
    this.addSql(
      `comment on column processes.tenant_head is 'the last tenant migration of the build; null for a build that does not register it'`,
    );
    this.addSql(
      `comment on column processes.control_head is 'the last control migration of the build; null for a build that does not register it'`,
    );
  }

  override down(): void {
    this.addSql('alter table processes drop column tenant_head, drop column control_head');
  }
}

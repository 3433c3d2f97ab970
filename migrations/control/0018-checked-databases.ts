import { Migration } from '@mikro-orm/migrations';

/** What `doctor` needs to leave out tenant databases that did not change since it found nothing wrong inside. */
export class CheckedDatabases extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table checked_databases (
        tenant_id bigint primary key constraint checked_databases_tenant_id_fkey references tenants on delete cascade,
        evidence text not null,
        checked_at timestamptz not null default now()
      )`);
    this.addSql(
      `comment on table checked_databases is 'tenant databases in which doctor found nothing wrong; evidence is a digest of all that its checks depend on'`,
    );
  }

  override down(): void {
    this.addSql('drop table checked_databases');
  }
}

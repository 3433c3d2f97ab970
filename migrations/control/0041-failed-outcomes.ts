import { Migration } from '@mikro-orm/migrations';

/** Finds the tenants whose last migration failed, among all outcomes of all runs. */
export class FailedOutcomes extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('drop index migration_outcomes_tenant_id_index');
    this.addSql('create index migration_outcomes_tenant_id_run_id_index on migration_outcomes (tenant_id, run_id)');
    this.addSql(`create index migration_outcomes_failed_index on migration_outcomes (tenant_id, run_id)
      where state = 'failed'`);
  }

  override down(): void {
    this.addSql('drop index migration_outcomes_failed_index, migration_outcomes_tenant_id_run_id_index');
    this.addSql('create index migration_outcomes_tenant_id_index on migration_outcomes (tenant_id)');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** Finds the tenants whose last migration failed, and the last run of each command, in a large fleet. */
export class ConsoleIndexes extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('drop index migration_outcomes_tenant_id_index');
    this.addSql('create index migration_outcomes_tenant_id_run_id_index on migration_outcomes (tenant_id, run_id)');
    this.addSql(`create index migration_outcomes_failed_index on migration_outcomes (tenant_id, run_id)
      where state = 'failed'`);
    this.addSql('create index operator_actions_command_index on operator_actions (command, id desc)');
  }

  override down(): void {
    this.addSql('drop index operator_actions_command_index');
    this.addSql('drop index migration_outcomes_failed_index, migration_outcomes_tenant_id_run_id_index');
    this.addSql('create index migration_outcomes_tenant_id_index on migration_outcomes (tenant_id)');
  }
}

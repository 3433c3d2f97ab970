import { Migration } from '@mikro-orm/migrations';

/** Counts the processes that an import has outlived, so that a file that ends processes is not applied for ever. */
export class LostRunsOfImports extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table unfinished_imports add column lost_runs integer not null default 0');
    this.addSql(
      `comment on column unfinished_imports.lost_runs is 'processes whose lease ended while they ran the import; after one it runs alone, after two it is rejected'`,
    );
  }

  override down(): void {
    this.addSql('alter table unfinished_imports drop column lost_runs');
  }
}

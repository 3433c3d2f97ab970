import { Migration } from '@mikro-orm/migrations';

/**
 * `audit_change` runs as the owner of the tables. With a path that does not name `pg_temp`, PostgreSQL searches the
 * caller's temporary tables first, so that a temporary `audit_log` would receive the audit entries.
 */
export class TemporarySchemaLast extends Migration {
  override up(): void {
    this.addSql('alter function audit_change() set search_path = pg_catalog, public, pg_temp');
    this.addSql('alter function require_actor() set search_path = pg_catalog, public, pg_temp');
    this.addSql('alter function stamp_schema_version() set search_path = pg_catalog, public, pg_temp');
  }

  override down(): void {
    this.addSql('alter function audit_change() set search_path = pg_catalog, public');
    this.addSql('alter function require_actor() set search_path = pg_catalog, public');
    this.addSql('alter function stamp_schema_version() set search_path = pg_catalog, public');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** The number of the run that may change the database, which was in a comment of the table before. */
export class IdentityEpoch extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table tenant_identity add column epoch bigint not null default 0');
    this.addSql(`
      update tenant_identity
         set epoch = coalesce(substring(obj_description('tenant_identity'::regclass, 'pg_class')
                                from '^move (\\d+)$')::bigint, 0)`);
    this.addSql('comment on table tenant_identity is null');
    this.addSql(
      `comment on column tenant_identity.epoch is 'number of the last run that has claimed the database: an earlier one changes nothing in it'`,
    );
  }

  override down(): void {
    this.addSql('alter table tenant_identity drop column epoch');
  }
}

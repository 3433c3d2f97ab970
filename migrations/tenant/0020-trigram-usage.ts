import { Migration } from '@mikro-orm/migrations';

/**
 * Lets the logins of tenants look up the operator class of the trigram indexes, as
 * `create table … (like … including all)` does. Searches need no privilege on the schema.
 */
export class TrigramUsage extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(ifTrigrams('grant usage on schema trigrams to'));
  }

  override down(): void {
    this.addSql(ifTrigrams('revoke usage on schema trigrams from'));
  }
}

/** Changes a privilege of the group of the tenants, if the server has the extension `pg_trgm`. */
const ifTrigrams = (change: string): string => `
  do $$ begin
    if to_regnamespace('trigrams') is not null then
      execute format('${change} %I', current_setting('app.tenant_group'));
    end if;
  end $$`;

import { Migration } from '@mikro-orm/migrations';

/** Every function of PostgreSQL for large objects, except `lo_import` and `lo_export`, which only superusers have. */
const functions = [
  ...['lo_creat(integer)', 'lo_create(oid)', 'lo_from_bytea(oid, bytea)', 'lo_put(oid, bigint, bytea)'],
  ...['lo_get(oid)', 'lo_get(oid, bigint, integer)', 'lo_open(oid, integer)', 'lo_close(integer)'],
  ...['loread(integer, integer)', 'lowrite(integer, bytea)', 'lo_lseek(integer, integer, integer)'],
  ...['lo_lseek64(integer, bigint, integer)', 'lo_tell(integer)', 'lo_tell64(integer)'],
  ...['lo_truncate(integer, integer)', 'lo_truncate64(integer, bigint)', 'lo_unlink(oid)'],
].map(name => `pg_catalog.${name}`);

/**
 * By default every login may store large objects, which no limit and no archive of the tenant covers. Only a
 * superuser can revoke that: run with another login, the migration changes nothing.
 */
export class NoLargeObjects extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(asSuperuser(`revoke execute on function ${functions.join(', ')} from public`));
  }

  override down(): void {
    this.addSql(asSuperuser(`grant execute on function ${functions.join(', ')} to public`));
  }
}

function asSuperuser(statement: string): string {
  return `do $$ begin if current_setting('is_superuser')::boolean then ${statement}; end if; end $$`;
}

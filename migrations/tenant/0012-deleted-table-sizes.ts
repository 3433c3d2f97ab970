import { Migration } from '@mikro-orm/migrations';
import { countChanges, countRows } from './sql.ts';

const tablesWithDeleted = ['countries', 'currencies'];

/**
 * Counts the rows that are marked as deleted apart from the others. Only the others count toward the maxima, so that
 * setting the mark always succeeds and makes room for a new row. A marked row keeps its code, can be restored, and may
 * be referenced, so none is removed. Instead, a table accepts no new row while its marked rows are more than ten times
 * `max_rows`, or have more than twice `max_bytes`: that bounds a list with `includeDeleted` to about four times the
 * bytes.
 */
export class DeletedTableSizes extends Migration {
  override up(): void {
    // Locks in the order of the writers: first a table, then its counts. No row changes between recount and commit.
    this.addSql(`lock table ${tablesWithDeleted.join(', ')} in share row exclusive mode`);
    this.addSql(`
      alter table table_sizes
        add deleted_rows bigint not null default 0,
        add deleted_bytes bigint not null default 0`);
    this.addSql(countChanges);
    for (const statement of countRows(tablesWithDeleted)) this.addSql(statement);
  }

  override down(): void {
    this.addSql(`lock table ${tablesWithDeleted.join(', ')} in share row exclusive mode`);
    this.addSql('update table_sizes set rows = rows + deleted_rows, bytes = bytes + deleted_bytes');
    this.addSql('alter table table_sizes drop deleted_rows, drop deleted_bytes');
    this.addSql(`
      create or replace function check_table_size() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
      declare
        more_rows bigint := 0;
        more_bytes bigint := 0;
        size table_sizes;
      begin
        if tg_op = 'TRUNCATE' then
          update table_sizes set rows = 0, bytes = 0 where table_name = tg_table_name;
          return null;
        end if;
        if tg_op <> 'DELETE' then
          select count(*), coalesce(sum(octet_length(t::text)), 0) into more_rows, more_bytes from added t;
        end if;
        if tg_op <> 'INSERT' then
          select more_rows - count(*), more_bytes - coalesce(sum(octet_length(t::text)), 0)
            into more_rows, more_bytes from removed t;
        end if;
        if more_rows = 0 and more_bytes = 0 then
          return null;
        end if;
        update table_sizes set rows = rows + more_rows, bytes = bytes + more_bytes
          where table_name = tg_table_name returning * into size;
        if more_rows > 0 and size.rows > size.max_rows or more_bytes > 0 and size.bytes > size.max_bytes then
          raise exception 'the table % may not grow', tg_table_name using errcode = 'SB001';
        end if;
        return null;
      end $$`);
  }
}

import { Migration } from '@mikro-orm/migrations';
import { checkSize, limitedTables } from './sql.ts';

/**
 * Lets changes of a small table run without the function that compares its size with its limits, which costs some 40
 * µs; the condition of the trigger costs 5 to 20 µs.
 *
 * A table whose files have less than 256 KiB can exceed none of the limits that the service sets, by steps 1 and 2 of
 * migration 0014: it has at most 9,362 rows, of 10,000, and at most 1.25 MiB of text, of 4 MiB. A lower limit, which
 * only an operator can set, holds from 256 KiB of files on.
 *
 * Also lets changes wait for each other from 1,000 rows or 1 MiB of text before a maximum, even where that is less than
 * half of it: concurrent changes, which do not see each other's rows, could exceed a small maximum together.
 */
export class SmallTables extends Migration {
  static readonly compatible = true;

  override up(): void {
    for (const table of limitedTables) {
      this.addSql(dropTriggers(table));
      this.addSql(checkSize(table));
    }
    this.addSql(
      exceededLimits(`
        size.rows + greatest(size.rows, 1000) > maximum.max_rows
          or size.bytes + greatest(size.bytes, 1024 * 1024) > maximum.max_bytes
          or size.deleted_rows + greatest(size.deleted_rows, 1000) > 10 * maximum.max_rows
          or size.deleted_bytes + greatest(size.deleted_bytes, 1024 * 1024) > 2 * maximum.max_bytes`),
    );
  }

  override down(): void {
    for (const table of limitedTables) {
      this.addSql(dropTriggers(table));
      this.addSql(`
        create trigger check_table_size_insert after insert on ${table}
          for each statement execute function check_table_size()`);
      this.addSql(`
        create trigger check_table_size_update after update on ${table}
          referencing old table as removed new table as added
          for each statement execute function check_table_size()`);
    }
    this.addSql(
      exceededLimits(`
        2 * size.rows > maximum.max_rows or 2 * size.bytes > maximum.max_bytes
          or size.deleted_rows > 5 * maximum.max_rows or size.deleted_bytes > maximum.max_bytes`),
    );
  }
}

const dropTriggers = (table: string): string => `
  drop trigger check_table_size_insert on ${table};
  drop trigger check_table_size_update on ${table}`;

/** Runs as the owner of the tables, because the service itself may not lock the limits, which it could then change. */
const exceededLimits = (near: string): string => `
  create or replace function exceeded_limits(name regclass, out rows boolean, out bytes boolean, out deleted boolean)
    language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
  declare
    maximum table_sizes;
    size record;
    with_bytes boolean;
  begin
    select s.* into maximum from table_sizes s join pg_class c on relname = table_name where c.oid = name;
    with_bytes := pg_table_size(name) >= maximum.max_bytes / 5;
    size := measure_table(name, with_bytes);
    if ${near} then
      select * into maximum from table_sizes where table_name = maximum.table_name for update;
      with_bytes := pg_table_size(name) >= maximum.max_bytes / 5;
      size := measure_table(name, with_bytes);
    end if;
    rows := size.rows > maximum.max_rows;
    bytes := size.bytes > maximum.max_bytes;
    deleted := size.deleted_rows > 10 * maximum.max_rows or size.deleted_bytes > 2 * maximum.max_bytes;
  end $$`;

import { Migration } from '@mikro-orm/migrations';
import { countChanges, countRows, grant, limitedTables, setStorage } from './sql.ts';

/**
 * Measures a table that may be near its maximum, instead of counting each change of every table: a counter is a row
 * that all changes of a table update in turn, each waiting for the commit of the one before.
 *
 * A change of a table whose files are small costs one query of their size (30 µs), because such a table cannot exceed a
 * maximum:
 *
 * 1. A row takes at least 28 bytes of a file: its header and its line pointer.
 * 2. The text of a row has at most five times the bytes that the row takes. A timestamp, the worst, prints 35 bytes for
 *    8; a quotation mark prints two for one. No column is compressed (`storage external`). Rows that were compressed
 *    before this migration have at most `max_bytes` of text together, because until then it was counted.
 * 3. So below 28 bytes × `max_rows` and a fifth of `max_bytes`, neither maximum is reached.
 *
 * A larger table is measured with each statement: its rows are counted, in about 0.2 ms per 1,000 rows, and from a
 * fifth of `max_bytes` also the bytes of their text, which takes some ten times as long. Below half of a maximum,
 * changes do not wait for each other. From there on, each locks the row of the table in `table_sizes` and measures
 * again, so that concurrent changes together do not exceed a maximum either.
 */
export class MeasuredTableSizes extends Migration {
  override up(): void {
    this.addSql(`lock table ${limitedTables.join(', ')} in share row exclusive mode`);
    for (const table of limitedTables) {
      for (const event of ['insert', 'delete', 'truncate'])
        this.addSql(`drop trigger check_table_size_${event} on ${table}`);
      this.addSql(`
        create trigger check_table_size_insert after insert on ${table}
          for each statement execute function check_table_size()`);
      this.addSql(setStorage(table, 'external'));
    }
    this.addSql(
      'alter table table_sizes drop rows, drop bytes, drop deleted_rows, drop deleted_bytes, reset (fillfactor)',
    );
    this.addSql(`
      create function measure_table(name regclass, with_bytes boolean default true,
        out rows bigint, out bytes bigint, out deleted_rows bigint, out deleted_bytes bigint)
        language plpgsql set timezone = 'UTC' set datestyle = 'ISO' as $$
      declare
        deleted text := case when exists (select from pg_attribute where attrelid = name and attname = 'is_deleted')
          then 'is_deleted' else 'false' end;
      begin
        execute format('
          select count(*) filter (where not %1$s),
                 coalesce(sum(octet_length(t::text)) filter (where $1 and not %1$s), 0),
                 count(*) filter (where %1$s),
                 coalesce(sum(octet_length(t::text)) filter (where $1 and %1$s), 0)
            from %2$s t', deleted, name) using with_bytes into rows, bytes, deleted_rows, deleted_bytes;
      end $$`);
    // Runs as the owner of the tables, because the service itself may not lock the limits, which it could then change.
    this.addSql(`
      create function exceeded_limits(name regclass, out rows boolean, out bytes boolean, out deleted boolean)
        language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
      declare
        maximum table_sizes;
        size record;
        with_bytes boolean;
      begin
        select s.* into maximum from table_sizes s join pg_class c on relname = table_name where c.oid = name;
        with_bytes := pg_table_size(name) >= maximum.max_bytes / 5;
        size := measure_table(name, with_bytes);
        if 2 * size.rows > maximum.max_rows or 2 * size.bytes > maximum.max_bytes
          or size.deleted_rows > 5 * maximum.max_rows or size.deleted_bytes > maximum.max_bytes then
          select * into maximum from table_sizes where table_name = maximum.table_name for update;
          with_bytes := pg_table_size(name) >= maximum.max_bytes / 5;
          size := measure_table(name, with_bytes);
        end if;
        rows := size.rows > maximum.max_rows;
        bytes := size.bytes > maximum.max_bytes;
        deleted := size.deleted_rows > 10 * maximum.max_rows or size.deleted_bytes > 2 * maximum.max_bytes;
      end $$`);
    this.addSql('revoke execute on function measure_table, exceeded_limits from public');
    this.addSql(grant('execute', 'function exceeded_limits(regclass)'));
    this.addSql(grant('select', 'table_sizes'));
    // Has no settings of its own, which would cost each change more than the look at the sizes. Only growth is refused,
    // so that a tenant above a maximum can still delete and shorten.
    this.addSql(`
      create or replace function check_table_size() returns trigger language plpgsql as $$
      declare
        exceeded record;
        more_rows boolean := true;
        more_bytes boolean := true;
      begin
        if not exists (
          select from public.table_sizes
           where table_name = tg_table_name
             and pg_table_size(tg_relid) >= least(28 * max_rows, max_bytes / 5)) then
          return null;
        end if;
        exceeded := public.exceeded_limits(tg_relid);
        if tg_op = 'UPDATE' and (exceeded.rows or exceeded.bytes) then
          with lengths as (
            select 1 as sign, octet_length(t::text) as length, to_jsonb(t) ->> 'is_deleted' = 'true' as deleted
              from added t
            union all
            select -1, octet_length(t::text), to_jsonb(t) ->> 'is_deleted' = 'true' from removed t)
          select coalesce(sum(sign), 0) > 0, coalesce(sum(sign * length), 0) > 0
            into more_rows, more_bytes from lengths where deleted is not true;
        end if;
        if more_rows and exceeded.rows or more_bytes and exceeded.bytes or tg_op = 'INSERT' and exceeded.deleted then
          raise exception 'the table % may not grow', tg_table_name using errcode = 'SB001';
        end if;
        return null;
      end $$`);
  }

  override down(): void {
    this.addSql(`lock table ${limitedTables.join(', ')} in share row exclusive mode`);
    this.addSql('drop function measure_table, exceeded_limits');
    this.addSql(`
      do $$
      declare
        name text;
      begin
        for name in
          select grantee::regrole from pg_class, aclexplode(relacl) where relname = 'table_sizes' and grantee <> relowner
        loop
          execute 'revoke select on table_sizes from ' || name;
        end loop;
      end $$`);
    this.addSql(`
      alter table table_sizes
        add rows bigint not null default 0, add bytes bigint not null default 0,
        add deleted_rows bigint not null default 0, add deleted_bytes bigint not null default 0,
        set (fillfactor = 20)`);
    this.addSql(countChanges);
    for (const table of limitedTables) {
      this.addSql(`drop trigger check_table_size_insert on ${table}`);
      for (const [event, transitionTable] of [
        ['insert', 'referencing new table as added'],
        ['delete', 'referencing old table as removed'],
        ['truncate', ''],
      ])
        this.addSql(`
          create trigger check_table_size_${event} after ${event} on ${table} ${transitionTable}
            for each statement execute function check_table_size()`);
      this.addSql(setStorage(table, 'default'));
    }
    for (const statement of countRows(limitedTables)) this.addSql(statement);
  }
}

import { Migration } from '@mikro-orm/migrations';

const tables = [
  'entity_statuses',
  'countries',
  'order_statuses',
  'units_of_measure',
  'promotions',
  'currencies',
  'tax_codes',
];

/**
 * The number of rows and bytes of each table whose list is served whole, and their maxima. Each change of such a table
 * updates its row here in the same transaction, so that concurrent changes wait for each other and none exceeds a
 * maximum.
 */
export class TableSizes extends Migration {
  override up(): void {
    this.addSql(`
      create table table_sizes (
        table_name text primary key,
        rows bigint not null,
        bytes bigint not null,
        max_rows bigint not null,
        max_bytes bigint not null
      ) with (fillfactor = 20)`);
    // One statement counts once, however many rows it changes. Only growth is refused, so that a tenant above a maximum
    // can still delete. Runs as the owner of the tables, because the service itself may not change the counts.
    this.addSql(`
      create function check_table_size() returns trigger language plpgsql security definer
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
    // As in the function, so that a row has the same length whenever it is measured.
    this.addSql(`set local timezone = 'UTC'`);
    this.addSql(`set local datestyle = 'ISO'`);
    for (const table of tables) this.addSql(countSize(table));
    this.addSql(countSize('system_options', { maxRows: 50_000 }));
  }

  override down(): void {
    for (const table of [...tables, 'system_options'])
      for (const event of ['insert', 'update', 'delete', 'truncate'])
        this.addSql(`drop trigger check_table_size_${event} on ${table}`);
    this.addSql('drop function check_table_size');
    this.addSql('drop table table_sizes');
  }
}

/** Limits the rows of a table and the text in them: the length, in bytes, of the rows as PostgreSQL prints them. */
function countSize(table: string, { maxRows = 10_000, maxBytes = 4 * 1024 * 1024 } = {}): string {
  const trigger = (event: string, transitionTables = '') => `
    create trigger check_table_size_${event} after ${event} on ${table} ${transitionTables}
      for each statement execute function check_table_size()`;
  return [
    `insert into table_sizes (table_name, rows, bytes, max_rows, max_bytes)
      select '${table}', count(*), coalesce(sum(octet_length(t::text)), 0), ${maxRows}, ${maxBytes} from ${table} t`,
    trigger('insert', 'referencing new table as added'),
    trigger('update', 'referencing old table as removed new table as added'),
    trigger('delete', 'referencing old table as removed'),
    trigger('truncate'),
  ].join(';');
}

/** The tables whose lists are served whole, when `table_sizes` was made to limit them. */
export const limitedTables = [
  'entity_statuses',
  'countries',
  'order_statuses',
  'units_of_measure',
  'promotions',
  'currencies',
  'tax_codes',
  'system_options',
];

/** Grants rights on tables to the group that every tenant's login role is a member of. */
export function grant(rights: string, ...tables: string[]): string {
  return `do $$ begin
    execute format('grant ${rights} on ${tables.join(', ')} to %I', current_setting('app.tenant_group'));
  end $$`;
}

/**
 * Writes an audit entry with every change of the table, in the same transaction; none for an update that changes
 * nothing. `entityColumn` names the column with the business entity a row belongs to, for readers of scope `Self`.
 */
export function audit(table: string, resource: string, keyColumn: string, entityColumn?: string): string {
  const names = [resource, keyColumn, ...(entityColumn ? [entityColumn] : [])].map(name => `'${name}'`).join(', ');
  return `
    create trigger audit_create_delete after insert or delete on ${table}
      for each row execute function audit_change(${names});
    create trigger audit_update after update on ${table}
      for each row when (old.* is distinct from new.*) execute function audit_change(${names})`;
}

/** Refuses every change of rows once written, whoever asks. */
export function appendOnly(table: string): string {
  return `create trigger append_only before update or delete or truncate on ${table} execute function refuse_change()`;
}

/**
 * Limits the rows of a new table whose list is served whole, and the text in them. The limits stay in `table_sizes`, as
 * an operator may have raised them, when the migration is reverted.
 */
export function limitSize(table: string, { maxRows = 10_000, maxBytes = 4 * 1024 * 1024 } = {}): string {
  return [
    `insert into table_sizes (table_name, max_rows, max_bytes) values ('${table}', ${maxRows}, ${maxBytes})
       on conflict do nothing`,
    setStorage(table, 'external'),
    checkSize(table),
  ].join(';');
}

/**
 * Compares the size of a table with its limits in `table_sizes` after each statement that may enlarge it, unless the
 * table is small: see migrations 0014 and 0016.
 */
export const checkSize = (table: string): string => {
  const check = `when (pg_table_size('${table}') >= 256 * 1024) execute function check_table_size()`;
  return `
    create trigger check_table_size_insert after insert on ${table} for each statement ${check};
    create trigger check_table_size_update after update on ${table}
      referencing old table as removed new table as added for each statement ${check}`;
};

/**
 * Sets the storage of all columns of a table whose values have no fixed length. Those of a table whose size is limited
 * are `external`, which is never compressed: the proof in migration 0014 needs it.
 */
export function setStorage(table: string, storage: 'external' | 'default'): string {
  return `do $$
    declare
      name text;
    begin
      for name in
        select attname from pg_attribute
         where attrelid = '${table}'::regclass and attnum > 0 and attlen = -1 and not attisdropped
      loop
        execute format('alter table ${table} alter column %I set storage ${storage}', name);
      end loop;
    end $$`;
}

/** The length of each row, in bytes, and whether it is marked as deleted; a table without marks has no such column. */
const lengthsOf = (table: string): string => `
  (select octet_length(t::text) as length, coalesce(to_jsonb(t) ->> 'is_deleted' = 'true', false) as deleted from ${table} t)`;

/**
 * The function of the triggers of migration 0012, which counts each change. Restoring a row counts it again, and may be
 * refused. The marked rows exceed their bound by at most the rows that were not marked when it was reached, because
 * from then on there are no new ones.
 */
export const countChanges = `
  create or replace function check_table_size() returns trigger language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
  declare
    more_rows bigint := 0;
    more_bytes bigint := 0;
    more_deleted_rows bigint := 0;
    more_deleted_bytes bigint := 0;
    size table_sizes;
  begin
    if tg_op = 'TRUNCATE' then
      update table_sizes set rows = 0, bytes = 0, deleted_rows = 0, deleted_bytes = 0 where table_name = tg_table_name;
      return null;
    end if;
    if tg_op <> 'DELETE' then
      select count(*) filter (where not deleted), coalesce(sum(length) filter (where not deleted), 0),
             count(*) filter (where deleted), coalesce(sum(length) filter (where deleted), 0)
        into more_rows, more_bytes, more_deleted_rows, more_deleted_bytes
        from ${lengthsOf('added')} r;
    end if;
    if tg_op <> 'INSERT' then
      select more_rows - count(*) filter (where not deleted),
             more_bytes - coalesce(sum(length) filter (where not deleted), 0),
             more_deleted_rows - count(*) filter (where deleted),
             more_deleted_bytes - coalesce(sum(length) filter (where deleted), 0)
        into more_rows, more_bytes, more_deleted_rows, more_deleted_bytes
        from ${lengthsOf('removed')} r;
    end if;
    if more_rows = 0 and more_bytes = 0 and more_deleted_rows = 0 and more_deleted_bytes = 0 then
      return null;
    end if;
    update table_sizes
       set rows = rows + more_rows, bytes = bytes + more_bytes,
           deleted_rows = deleted_rows + more_deleted_rows, deleted_bytes = deleted_bytes + more_deleted_bytes
     where table_name = tg_table_name returning * into size;
    if more_rows > 0 and size.rows > size.max_rows or more_bytes > 0 and size.bytes > size.max_bytes
      or tg_op = 'INSERT'
         and (size.deleted_rows > 10 * size.max_rows or size.deleted_bytes > 2 * size.max_bytes) then
      raise exception 'the table % may not grow', tg_table_name using errcode = 'SB001';
    end if;
    return null;
  end $$`;

/**
 * Counts the rows that tables have, for migration 0012. Printed with the settings of the function, a row has the same
 * length.
 */
export function countRows(tables: string[]): string[] {
  return [
    `set local timezone = 'UTC'`,
    `set local datestyle = 'ISO'`,
    ...tables.map(
      table => `
        update table_sizes set (rows, bytes, deleted_rows, deleted_bytes) = (
          select count(*) filter (where not deleted), coalesce(sum(length) filter (where not deleted), 0),
                 count(*) filter (where deleted), coalesce(sum(length) filter (where deleted), 0)
            from ${lengthsOf(table)} r)
         where table_name = '${table}'`,
    ),
  ];
}

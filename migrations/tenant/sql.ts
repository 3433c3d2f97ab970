/*
 * What a new tenant migration needs; `../README.md` has an example. Each function returns SQL
 * for `addSql`.
 */

/** Grants rights on tables to the group that every tenant's login role is a member of. */
export function grant(rights: string, ...tables: string[]): string {
  return `do $$ begin
    execute format('grant ${rights} on ${tables.join(', ')} to %I', current_setting('app.tenant_group'));
  end $$`;
}

/**
 * Writes an audit entry with every change of the table, in the same transaction; none for an
 * update that changes nothing. `entityColumn` names the column with the business entity a row
 * belongs to, for readers of scope `Self`.
 */
export function audit(
  table: string,
  resource: string,
  keyColumn: string,
  entityColumn?: string,
): string {
  const names = [resource, keyColumn, ...(entityColumn ? [entityColumn] : [])]
    .map(name => `'${name}'`)
    .join(', ');
  return `
    create trigger audit_create_delete after insert or delete on ${table}
      for each row execute function audit_change(${names});
    create trigger audit_update after update on ${table}
      for each row when (old.* is distinct from new.*) execute function audit_change(${names})`;
}

/**
 * Limits the rows of a new table whose list is served whole, and the text in them, as section 9
 * of the first schema explains. The limits stay in `table_sizes`, as an operator may have
 * raised them, when the migration is reverted.
 */
export function limitSize(
  table: string,
  { maxRows = 10_000, maxBytes = 4 * 1024 * 1024 } = {},
): string {
  const check = `when (pg_table_size('${table}') >= 256 * 1024) execute function check_table_size()`;
  return `
    insert into table_sizes (table_name, max_rows, max_bytes) values ('${table}', ${maxRows}, ${maxBytes})
      on conflict do nothing;
    ${storeUncompressed(table)};
    create trigger check_table_size_insert after insert on ${table} for each statement ${check};
    create trigger check_table_size_update after update on ${table}
      referencing old table as removed new table as added for each statement ${check}`;
}

/**
 * Stores the values of a table uncompressed, which its limits depend on. Needed after a
 * migration that adds a column to a table with limits.
 */
export function storeUncompressed(table: string): string {
  return `do $$
    declare
      name text;
    begin
      for name in
        select attname from pg_attribute
         where attrelid = '${table}'::regclass and attnum > 0 and attlen = -1 and not attisdropped
      loop
        execute format('alter table ${table} alter column %I set storage external', name);
      end loop;
    end $$`;
}

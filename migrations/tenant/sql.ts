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
 * Limits the rows of a table whose list is served whole, and the text in them: the length, in bytes, of the rows as
 * PostgreSQL prints them. Counts the rows that the table has.
 */
export function limitSize(table: string, { maxRows = 10_000, maxBytes = 4 * 1024 * 1024 } = {}): string {
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

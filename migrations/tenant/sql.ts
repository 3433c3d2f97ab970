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
    create trigger audit_change after insert or update or delete on ${table}
      for each row execute function audit_change(${names})`;
}

/**
 * Fills columns of an existing table by one `update`, without a change of the feed and a message
 * for each row: for columns that no released build shows to clients. Writes one audit entry for
 * the table, with the key `*` and outside of the feed; none in a template. No other statement
 * can change rows of `activities` and `audit_log`.
 *
 * The triggers that write entries and those that refuse changes are off for this statement.
 * Until the transaction ends, nobody else can write to the table.
 */
export function backfill(table: string, sql: string): string {
  if (!new RegExp(`^\\s*update ${table}\\s`, 'i').test(sql)) {
    throw new Error(`a back-fill of ${table} is one statement: update ${table} set …`);
  }

  const turn = (state: 'disable' | 'enable'): string => `do $$
    declare
      name text;
    begin
      for name in
        select tgname from pg_trigger
         where tgrelid = '${table}'::regclass
           and tgfoid in ('audit_change'::regproc, 'refuse_change'::regproc)
      loop
        execute format('alter table ${table} ${state} trigger %I', name);
      end loop;
    end $$`;

  return `${turn('disable')};
    ${sql};
    ${turn('enable')};
    insert into audit_log (action, resource, record_key, database_user, feed_era)
    select 'update', coalesce(
             (select split_part(encode(tgargs, 'escape'), '\\000', 1) from pg_trigger
               where tgrelid = '${table}'::regclass and tgfoid = 'audit_change'::regproc limit 1),
             '${unauditedResources[table] ?? table}'),
           '*', session_user, null
      from tenant_identity`;
}

/** The resources of the tables whose changes have no entries: their rows do not change. */
const unauditedResources: Readonly<Record<string, string>> = {
  activities: 'Activity',
  audit_log: 'AuditEntry',
};

/**
 * Limits the rows of a new table whose list is served whole, and the text in them, as section 9
 * of the first schema explains. The limits stay in `table_sizes`, as an operator may have
 * raised them, when the migration is reverted.
 */
export function limitSize(
  table: string,
  { maxRows = 10_000, maxBytes = 4 * 1024 * 1024 } = {},
): string {
  return `
    insert into table_sizes (table_name, max_rows, max_bytes) values ('${table}', ${maxRows}, ${maxBytes})
      on conflict do nothing;
    ${storeUncompressed(table)};
    create trigger check_table_size_insert after insert on ${table}
      for each statement execute function check_table_size();
    create trigger check_table_size_update after update on ${table}
      referencing old table as removed new table as added
      for each statement execute function check_table_size()`;
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

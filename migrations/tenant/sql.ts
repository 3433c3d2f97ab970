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

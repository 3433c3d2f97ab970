import { Migration } from '@mikro-orm/migrations';

/**
 * The imports of all tenants that have not ended, so that a process finds those that another one left without opening
 * every tenant's database. The import itself, its file and its result are in the tenant's database.
 */
export class UnfinishedImports extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table unfinished_imports (
        id bigint generated always as identity primary key,
        tenant_id bigint not null constraint unfinished_imports_tenant_id_fkey references tenants on delete cascade,
        import_id bigint,
        session_id uuid,
        user_id bigint,
        idempotency_key text,
        arrived_at timestamptz,
        holder uuid,
        leased_until timestamptz not null,
        created_at timestamptz not null default now(),
        constraint unfinished_imports_import_id_unique unique (tenant_id, import_id)
      )`);
    // One request with a key sends its file at a time.
    this.addSql(`
      create unique index unfinished_imports_idempotency_key_unique
        on unfinished_imports (tenant_id, user_id, idempotency_key) where arrived_at is null`);
    this.addSql(
      `comment on column unfinished_imports.import_id is 'the id in the tenant database; null until the import is inserted there'`,
    );
    this.addSql(
      `comment on column unfinished_imports.session_id is 'the session that sent the file; null for a legacy token, which has none'`,
    );
    this.addSql(`comment on column unfinished_imports.arrived_at is 'null while a process receives the file'`);
    this.addSql(
      `comment on column unfinished_imports.leased_until is 'until then no other process than the holder receives or runs the import; two that do would exclude each other by a lock in the tenant database'`,
    );
  }

  override down(): void {
    this.addSql('drop table unfinished_imports');
  }
}

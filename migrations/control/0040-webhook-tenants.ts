import { Migration } from '@mikro-orm/migrations';

/**
 * The tenants that have webhooks, so that a process finds those that are due without opening every tenant's database.
 * The webhooks are in the tenant's database.
 */
export class WebhookTenants extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table webhook_tenants (
        id bigint generated always as identity primary key,
        tenant_id bigint not null constraint webhook_tenants_tenant_id_unique unique
          constraint webhook_tenants_tenant_id_fkey references tenants on delete cascade,
        sealed bytea not null,
        activated_at timestamptz not null default now(),
        is_active boolean not null default true,
        due_at timestamptz default now(),
        waiting_since timestamptz,
        wakes bigint not null default 0,
        polled text,
        failing integer not null default 0,
        disabled integer not null default 0,
        failing_since timestamptz,
        holder uuid,
        leased_until timestamptz not null default now()
      )`);
    this.addSql('create index webhook_tenants_due_at_index on webhook_tenants (due_at) where is_active');
    const comments = {
      sealed: 'the key that seals the secrets of the webhooks in the tenant database',
      is_active: 'false: no webhook is enabled',
      due_at: 'when the webhooks are served next; null: when the tenant database changes',
      waiting_since: 'since when the tenant is served without success; null: not at the moment',
      wakes: 'grows when somebody says that there may be work: a process that ends then serves the tenant again',
      polled: 'what a poll has seen of the tenant database when it said that last',
      failing: 'enabled webhooks whose last attempt failed, when they were served last',
      leased_until: 'until then no other process than the holder serves the webhooks',
    };
    for (const [column, comment] of Object.entries(comments))
      this.addSql(`comment on column webhook_tenants.${column} is '${comment}'`);
    // Another database, or a tenant that is served again, may have work, and other webhooks.
    this.addSql(`
      create function serve_webhooks() returns trigger language plpgsql as $$
      begin
        update webhook_tenants set is_active = true, activated_at = now(), due_at = now(), wakes = wakes + 1
          where tenant_id = new.id;
        return null;
      end $$`);
    this.addSql(`
      create trigger serve_webhooks after update of database_name, status, isolated on tenants
        for each row when (old.* is distinct from new.*) execute function serve_webhooks()`);
  }

  override down(): void {
    this.addSql('drop trigger serve_webhooks on tenants');
    this.addSql('drop function serve_webhooks');
    this.addSql('drop table webhook_tenants');
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * How long tenants keep activities and audit entries, the ledger of what was removed, and the archives that have it.
 */
export class Retention extends Migration {
  static readonly compatible = true;

  override up(): void {
    const age = (column: string) =>
      `${column} text constraint retention_policies_${column}_check check (${column} ~ '^(forever|[1-9][0-9]{0,4}[dmy])$')`;
    this.addSql(`
      create table retention_policies (
        tenant_id bigint references tenants on delete cascade,
        ${age('activity')},
        ${age('audit')},
        changed_by text not null,
        changed_at timestamptz not null default now()
      )`);
    this.addSql('create unique index retention_policies_tenant_unique on retention_policies (coalesce(tenant_id, 0))');
    this.addSql(`comment on column retention_policies.tenant_id is 'null: the default of all tenants'`);
    this.addSql(`comment on column retention_policies.activity is 'such as 90d, 18m or 2y; null: the default'`);
    this.addSql(`
      create table history_removals (
        id bigint generated always as identity primary key,
        tenant_id bigint not null references tenants on delete cascade,
        database_name text not null,
        kind text not null constraint history_removals_kind_check check (kind in ('activity', 'audit')),
        removed_before timestamptz not null,
        state text not null default 'removing'
          constraint history_removals_state_check check (state in ('removing', 'done', 'stopped')),
        archive uuid,
        rows bigint not null default 0,
        oldest timestamptz,
        newest timestamptz,
        requested_by text not null,
        started_at timestamptz not null default now(),
        finished_at timestamptz,
        error text
      )`);
    this.addSql(`create index history_removals_tenant_id_index on history_removals (tenant_id, id desc)`);
    this.addSql(
      `comment on column history_removals.archive is 'the archive that every removed row is in; null: there was no row to remove'`,
    );
    this.addSql(`comment on column history_removals.rows is 'removed rows; while removing and when stopped, at least'`);
    this.addSql('alter table archives add column kept_until timestamptz');
    this.addSql(
      `comment on column archives.kept_until is 'not removed before, because it has rows that the retention of a tenant removed'`,
    );
  }

  override down(): void {
    this.addSql('alter table archives drop column kept_until');
    this.addSql('drop table history_removals, retention_policies');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** What operators changed: one row for each command. */
export class OperatorActions extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table operator_actions (
        id bigint generated always as identity primary key,
        operator text not null,
        build text not null,
        command text not null,
        slug text,
        tenant_guid uuid,
        arguments jsonb not null default '{}',
        reason text,
        state text not null default 'running' constraint operator_actions_state_check
          check (state in ('running', 'done', 'failed', 'refused')),
        error text,
        started_at timestamptz not null default now(),
        finished_at timestamptz
      )`);
    this.addSql(`comment on column operator_actions.tenant_guid is 'no reference: the rows of a purged tenant stay'`);
    this.addSql(
      `comment on column operator_actions.arguments is 'never secrets; empty after a purge of the tenant, as is error, because they may name people'`,
    );
    this.addSql(
      `comment on column operator_actions.state is 'refused: wrong usage, nothing was changed; running and old: the command was killed'`,
    );
    this.addSql('create index operator_actions_slug_index on operator_actions (slug, id desc)');
    this.addSql('create index operator_actions_tenant_guid_index on operator_actions (tenant_guid)');
  }

  override down(): void {
    this.addSql('drop table operator_actions');
  }
}

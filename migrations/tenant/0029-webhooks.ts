import { Migration } from '@mikro-orm/migrations';
import { grant } from './sql.ts';

/**
 * The webhooks of a tenant: where its changes are sent, how far each endpoint has come, the messages that are sent
 * apart from that, and the attempts.
 */
export class Webhooks extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table webhooks (
        id integer generated always as identity primary key,
        url text not null,
        description text,
        resources text[] not null,
        actions text[] not null,
        payload text not null constraint webhooks_payload_check check (payload in ('thin', 'record')),
        ordering text not null constraint webhooks_ordering_check check (ordering in ('strict', 'none')),
        is_enabled boolean not null,
        disabled_reason text
          constraint webhooks_disabled_reason_check check (disabled_reason in ('gone', 'failing', 'operator')),
        created_at timestamptz not null default now(),
        position text not null,
        position_at timestamptz not null default now(),
        version bigint not null default 0,
        failures integer not null default 0,
        failing_since timestamptz,
        next_attempt_at timestamptz,
        last_success_at timestamptz
      )`);
    this.addSql(`comment on column webhooks.position is 'cursor of the last change that the endpoint needs no more'`);
    this.addSql(
      `comment on column webhooks.version is 'grows with each change of the position and of the attempts: a process changes the row that it has read'`,
    );
    this.addSql(`
      create table webhook_secrets (
        webhook_id integer primary key
          constraint webhook_secrets_webhook_id_fkey references webhooks on delete cascade,
        secret bytea not null,
        previous bytea,
        previous_until timestamptz
      )`);
    this.addSql(`
      create table webhook_messages (
        id bigint generated always as identity primary key,
        webhook_id integer not null
          constraint webhook_messages_webhook_id_fkey references webhooks on delete cascade,
        message_id text not null,
        body text not null,
        failures integer not null default 0,
        next_attempt_at timestamptz not null default now(),
        created_at timestamptz not null default now()
      )`);
    this.addSql('create index webhook_messages_webhook_id_index on webhook_messages (webhook_id, next_attempt_at, id)');
    this.addSql(
      `comment on table webhook_messages is 'sent beside the feed: tests, replays, gaps, and retries of endpoints without an order'`,
    );
    this.addSql(`
      create table webhook_deliveries (
        id bigint generated always as identity primary key,
        webhook_id integer not null
          constraint webhook_deliveries_webhook_id_fkey references webhooks on delete cascade,
        message_id text not null,
        type text not null,
        attempted_at timestamptz not null default now(),
        duration_ms integer not null,
        status integer,
        error text,
        response text
      )`);
    this.addSql('create index webhook_deliveries_webhook_id_index on webhook_deliveries (webhook_id, id desc)');
    // An update that moves an endpoint on is no change by anybody: it writes no audit entry.
    this.addSql(`
      create trigger audit_create_delete after insert or delete on webhooks
        for each row execute function audit_change('Webhook', 'id')`);
    this.addSql(`
      create trigger audit_update
        after update of url, description, resources, actions, payload, ordering, is_enabled, disabled_reason on webhooks
        for each row when (old.* is distinct from new.*) execute function audit_change('Webhook', 'id')`);
    this.addSql(
      grant('select, insert, update, delete', 'webhooks', 'webhook_secrets', 'webhook_messages', 'webhook_deliveries'),
    );
  }

  override down(): void {
    this.addSql('drop table webhook_deliveries, webhook_messages, webhook_secrets, webhooks');
  }
}

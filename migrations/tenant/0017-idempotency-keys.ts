import { Migration } from '@mikro-orm/migrations';
import { grant } from './sql.ts';

/**
 * The rows that POST requests with an `Idempotency-Key` have returned, for 24 hours. Written in the transaction of the
 * change, so that a key is stored exactly when its change is.
 */
export class IdempotencyKeys extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table idempotency_keys (
        user_id bigint not null,
        key text not null,
        fingerprint bytea not null,
        rows text not null,
        created_at timestamptz not null default now(),
        primary key (user_id, key)
      )`);
    this.addSql('create index idempotency_keys_created_at_index on idempotency_keys (created_at)');
    // As in migration 0008: an insert outside of the transaction that carries the actor is refused.
    this.addSql(`
      create trigger require_actor before insert on idempotency_keys
        for each row when (coalesce(current_setting('app.actor', true), '') = '') execute function require_actor()`);
    this.addSql(grant('select, insert, update, delete', 'idempotency_keys'));
  }

  override down(): void {
    this.addSql('drop table idempotency_keys');
  }
}

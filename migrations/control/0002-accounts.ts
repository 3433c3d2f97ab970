import { Migration } from '@mikro-orm/migrations';

/** Mail tokens; API clients and their legacy tokens. */
export class Accounts extends Migration {
  override up(): void {
    this.addSql(`
      create table mail_tokens (
        hash bytea primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        purpose text not null constraint mail_tokens_purpose_check check (purpose in ('confirm', 'reset')),
        expires_at timestamptz not null,
        created_at timestamptz not null default now(),
        constraint mail_tokens_user_id_purpose_unique unique (user_id, purpose),
        constraint mail_tokens_user_fkey foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(
      `comment on table mail_tokens is 'the newest of each purpose for a user; a row is removed when it is used'`,
    );
    this.addSql(`
      create table api_clients (
        id text primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        name text not null,
        secret_hash bytea not null,
        created_at timestamptz not null default now(),
        revoked_at timestamptz,
        constraint api_clients_user_fkey foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`create index api_clients_tenant_id_index on api_clients (tenant_id)`);
    this.addSql(`
      create table legacy_tokens (
        hash bytea primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        client_id text not null references api_clients on delete cascade,
        entity_type text,
        created_at timestamptz not null default now(),
        expires_at timestamptz not null,
        revoked_at timestamptz,
        uses bigint not null default 0,
        last_used_at timestamptz,
        constraint legacy_tokens_user_fkey foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`create index legacy_tokens_client_id_index on legacy_tokens (client_id)`);
    this.addSql(`
      create trigger announce_change after delete on legacy_tokens for each row execute function announce_change('legacy_tokens', 'hash')`);
    // A change of `uses` or `last_used_at` is not announced, because the cache does not hold these columns.
    this.addSql(`
      create trigger announce_revocation after update on legacy_tokens for each row
        when ((old.revoked_at, old.expires_at, old.user_id, old.tenant_id, old.entity_type)
          is distinct from (new.revoked_at, new.expires_at, new.user_id, new.tenant_id, new.entity_type))
        execute function announce_change('legacy_tokens', 'hash')`);
    this.addSql(
      `create trigger announce_truncate after truncate on legacy_tokens execute function announce_truncate()`,
    );
    // Revoking a client revokes all its tokens.
    this.addSql(`
      create function revoke_tokens_of_client() returns trigger language plpgsql as $$
      begin
        update legacy_tokens set revoked_at = new.revoked_at where client_id = new.id and revoked_at is null;
        return null;
      end $$`);
    this.addSql(`
      create trigger revoke_tokens after update on api_clients for each row
        when (old.revoked_at is null and new.revoked_at is not null) execute function revoke_tokens_of_client()`);
  }

  override down(): void {
    this.addSql('drop table legacy_tokens, api_clients, mail_tokens');
    this.addSql('drop function revoke_tokens_of_client');
  }
}

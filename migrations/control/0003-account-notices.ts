import { Migration } from '@mikro-orm/migrations';

/** Mails that tell people of changes nobody has asked them about, such as keys that end. */
export class AccountNotices extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addNotices();
    this.#addMaker();
    // the keys that end soon, of all tenants
    this.addSql(`
      create index program_keys_expires_at_index on program_keys (expires_at)
        where revoked_at is null`);
  }

  override down(): void {
    this.addSql('drop index program_keys_expires_at_index');
    this.addSql('alter table users drop column made_by');
    this.addSql('drop table account_notices');
  }

  // The kind has no check: it could not be made longer while an earlier build runs.
  #addNotices(): void {
    this.addSql(`
      create table account_notices (
        id bigint generated always as identity primary key,
        tenant_id bigint not null
          constraint account_notices_tenant_id_fkey references tenants on delete cascade,
        user_id bigint,
        address text,
        kind text not null,
        details jsonb not null default '{}',
        occasion text,
        trace_id text
          default nullif(current_setting('app.actor', true), '')::jsonb ->> 'traceId',
        state text not null default 'waiting'
          constraint account_notices_state_check check (state in ('waiting', 'sent', 'refused')),
        reason text,
        attempts integer not null default 0,
        next_attempt_at timestamptz not null default now(),
        tried_at timestamptz,
        settled_at timestamptz,
        expires_at timestamptz not null default now() + interval '7 days',
        created_at timestamptz not null default now(),
        holder uuid,
        leased_until timestamptz not null default now(),
        constraint account_notices_occasion_unique unique (tenant_id, kind, occasion),
        constraint account_notices_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table account_notices is
        'One mail that informs a person, or an event of which the administrators of a tenant '
        'learn: a process leases it, and adds a mail to each of them. Written by the transaction '
        'of the change. A build sends the kinds that it knows. Rows are removed 30 days after '
        'their end.'`);
    this.addSql(`
      comment on column account_notices.user_id is
        'the person who gets it; null: its address is in the row, or the row is an event'`);
    this.addSql(`
      comment on column account_notices.address is
        'where it is sent to in place of the present address of the user; null: to that one'`);
    this.addSql(`
      comment on column account_notices.details is
        'the facts that the mail names, or by which they are read; no secret'`);
    this.addSql(`
      comment on column account_notices.occasion is
        'names what a notice of its kind is added once for, in a tenant; null: nothing'`);
    this.addSql(`
      comment on column account_notices.trace_id is
        'the request that made the change, as its response and the logs name it; null: none did'`);
    this.addSql(`
      comment on column account_notices.reason is
        'why the last attempt failed, in words without an address; null: none has'`);
    this.addSql(`
      comment on column account_notices.tried_at is
        'time since which it may have arrived; null: it has certainly not arrived'`);
    this.addSql(`
      comment on column account_notices.settled_at is
        'when it was accepted, refused or given up; null while it waits'`);
    this.addSql(`comment on column account_notices.expires_at is 'end of the attempts'`);

    // the notices that are due, of one tenant after the other
    this.addSql(`
      create index account_notices_due_index on account_notices (tenant_id, next_attempt_at, id)
        where state = 'waiting'`);
    // those of a kind to a person in the last day, which have a limit
    this.addSql(`
      create index account_notices_user_id_index on account_notices (user_id, kind, created_at)`);
    // the removal of old notices
    this.addSql('create index account_notices_expires_at_index on account_notices (expires_at)');
  }

  #addMaker(): void {
    this.addSql('alter table users add column made_by bigint');
    this.addSql(`
      alter table users alter made_by
        set default (nullif(current_setting('app.actor', true), '')::jsonb ->> 'userId')::bigint`);
    this.addSql(`
      comment on column users.made_by is
        'the id of the user whose request added it, who may be gone; null: none did'`);
  }
}

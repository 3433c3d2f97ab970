import { Migration } from '@mikro-orm/migrations';

/** Logins of people: those that succeeded, and those that failed. */
export class Logins extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addLogins();
    this.#addAge();
    this.#addRemoval();
  }

  override down(): void {
    this.addSql('drop table logins');
    this.addSql('drop function remove_old_logins()');
    this.addSql('drop function logins_kept_from()');
    this.addSql('alter table retention_policies drop column logins');
  }

  // Method and reason have no check: it could not be made longer while an earlier build runs.
  #addLogins(): void {
    this.addSql(`
      create table logins (
        id bigint generated always as identity primary key,
        tenant_id bigint not null
          constraint logins_tenant_id_fkey references tenants on delete cascade,
        user_id bigint,
        created_at timestamptz not null default now(),
        method text,
        outcome text not null
          constraint logins_outcome_check check (outcome in ('succeeded', 'failed')),
        reason text,
        network text,
        user_agent text,
        count integer not null default 1,
        failures integer,
        constraint logins_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table logins is
        'One login of a person, which succeeded or failed; or the failed logins of an hour. Those '
        'that succeed are written by the transaction of their session, those that fail within a '
        'second by the process.'`);
    this.addSql(`
      comment on column logins.user_id is
        'the person; null: addresses that no user of the tenant has, which are not stored'`);
    this.addSql(`
      comment on column logins.created_at is
        'when the person logged in, or tried to; of the failed logins of an hour, its beginning'`);
    this.addSql(`
      comment on column logins.method is
        'what was proved or tried, by RFC 8176, such as pwd or pwd otp; null: of several logins'`);
    this.addSql(`comment on column logins.reason is 'why it failed; null: it succeeded'`);
    this.addSql(`
      comment on column logins.network is 'an IPv4 address, or an IPv6 network of 64 bits'`);
    this.addSql(`
      comment on column logins.user_agent is
        'the first characters of the header of that name; null: there was none'`);
    this.addSql(`
      comment on column logins.count is
        'the logins that the row stands for; 0: those of the hour have rows of their own'`);
    this.addSql(`
      comment on column logins.failures is
        'all failed logins of a person, or to unknown addresses, in the hour; null: the row is one '
        'login'`);

    // the list of a tenant, the newest first
    this.addSql('create index logins_tenant_id_index on logins (tenant_id, id)');
    // the list of a person, and the deletion of a user
    this.addSql('create index logins_user_id_index on logins (tenant_id, user_id, id)');
    // the row of an hour, to which processes add failed logins
    this.addSql(`
      create unique index logins_hour_unique on logins (tenant_id, user_id, created_at)
        nulls not distinct where failures is not null`);
  }

  #addAge(): void {
    this.addSql(`
      alter table retention_policies
        add column logins text constraint retention_policies_logins_check
          check (logins ~ '^(forever|[1-9][0-9]{0,4}[dmy])$')`);
    this.addSql(`
      comment on column retention_policies.logins is
        'age of logins, in the row of the default only; null: 1y'`);
    this.addSql(`
      create function logins_kept_from() returns timestamptz language sql stable
        set search_path = pg_catalog, public, pg_temp as $$
        select case
                 when age = 'forever' then '-infinity'
                 else now() - (
                   left(age, -1) || case right(age, 1)
                     when 'd' then ' days'
                     when 'm' then ' months'
                     else ' years'
                   end)::interval
               end
          from (select coalesce((select logins from retention_policies where tenant_id is null), '1y'))
            as policy (age)
      $$`);
  }

  // Removes old rows with each statement that adds some, more than it adds: the oldest have the
  // lowest ids. So the table stays bounded without a task of its own. A session plans this once,
  // also while the table is almost empty: with sequential scans, or with a join by id, each login
  // would then read the whole table until the next `analyze`.
  #addRemoval(): void {
    this.addSql(`
      create function remove_old_logins() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp
        set enable_seqscan = off as $$
      declare
        kept_from constant timestamptz := logins_kept_from();
        examined constant bigint := 10 + 2 * (select count(*) from added);
      begin
        delete from logins where ctid = any (array(
          select ctid from logins
           where id = any (array(select id from logins order by id limit examined))
             and created_at < kept_from
             for update skip locked));

        return null;
      end $$`);
    this.addSql(`
      create trigger remove_old after insert on logins referencing new table as added
        for each statement execute function remove_old_logins()`);
  }
}

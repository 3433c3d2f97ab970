import { Migration } from '@mikro-orm/migrations';

/**
 * Notices to people on changes of their accounts. Triggers write them, so that no way to such a
 * change misses them: the API, the command line, SQL of an operator, a process of a former
 * build.
 */
export class AccountNoticesOfPeople extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addOrigin();
    this.#addChanges();
    this.#addFactors();
    this.#addNetworks();
    this.#endClients();
    this.#removeOld();
  }

  override down(): void {
    this.addSql('drop trigger remove_old on account_notices');
    this.addSql('drop function remove_old_notices()');
    this.addSql('drop trigger end_clients on mail_deliveries');
    this.addSql('drop function end_clients_of_link()');
    this.addSql('drop trigger notify_person on login_networks');
    this.addSql('drop function notify_of_network()');
    this.addSql('drop trigger note_previous_login on sessions');
    this.addSql('drop function note_previous_login()');
    this.addSql('alter table sessions drop column previous_login_at');
    this.addSql('drop trigger notify_person on recovery_codes');
    this.addSql('drop function notify_of_recovery_code()');
    this.addSql('drop trigger notify_of_removal on factors');
    this.addSql('drop function notify_of_removed_factors()');
    this.addSql('drop trigger notify_person on factors');
    this.addSql('drop function notify_of_factor()');
    this.addSql('drop trigger notify_person on users');
    this.addSql('drop function notify_of_account()');
    this.addSql('drop function factors_of(bigint)');
    this.addSql('drop function add_notice(bigint, text, jsonb)');
    this.addSql('comment on column account_notices.created_at is null');
  }

  // Not security definer: only the functions of triggers call it, which run as the owner.
  #addOrigin(): void {
    this.addSql(`
      comment on column account_notices.created_at is
        'when it was written; of one that gathers what happens in a day, when that ends'`);
    // Adds a notice to a person, with who made the change. The address of a client is that of
    // the person alone: the one of an administrator concerns nobody else.
    this.addSql(`
      create function add_notice(person bigint, notice text, facts jsonb) returns void
        language plpgsql set search_path = pg_catalog, public, pg_temp as $$
      declare
        actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
        maker text := case
          when actor ->> 'userId' is null then 'operator'
          when (actor ->> 'userId')::bigint = person then 'person'
          else 'administrator'
        end;
      begin
        insert into account_notices (tenant_id, user_id, kind, details)
        select u.tenant_id, u.id, notice,
               facts || jsonb_build_object(
                 'by', maker,
                 'ipAddress', case maker when 'person' then actor ->> 'ipAddress' end)
          -- No row while the person is deleted.
          from users u
         where u.id = person and u.kind = 'person' and u.confirmed_at is not null;
      end $$`);
    this.addSql(`
      create function factors_of(person bigint) returns jsonb language sql stable
        set search_path = pg_catalog, public, pg_temp as $$
        select coalesce(
          jsonb_agg(
            jsonb_build_object('name', f.name, 'kind', f.kind, 'addedAt', f.confirmed_at)
            order by f.confirmed_at, f.id),
          '[]')
          from factors f join users u on u.tenant_id = f.tenant_id and u.id = f.user_id
         where u.id = person and f.confirmed_at is not null
      $$`);
  }

  // Who confirms an address sets the first password, which is no change. A login that stores the
  // same password with other parameters says so by app.renews_password.
  #addChanges(): void {
    this.addSql(`
      create function notify_of_account() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if old.password_hash <> new.password_hash
           and coalesce(current_setting('app.renews_password', true), '') <> 'true' then
          perform add_notice(new.id, 'password_changed', jsonb_build_object(
            'factors', factors_of(new.id),
            -- The link is marked as used before, in this transaction.
            'isByLink', exists (
              select from mail_deliveries
               where user_id = new.id and kind = 'reset' and used_at = now())));
        end if;

        if (old.role_id, old.scope) is distinct from (new.role_id, new.scope) then
          perform add_notice(new.id, 'rights_changed', jsonb_build_object(
            'before', jsonb_build_object(
              'role', (select name from roles where id = old.role_id), 'scope', old.scope),
            'after', jsonb_build_object(
              'role', (select name from roles where id = new.role_id), 'scope', new.scope)));
        end if;

        if (old.disabled_at is null) <> (new.disabled_at is null) then
          perform add_notice(
            new.id,
            case when new.disabled_at is null then 'account_enabled' else 'account_disabled' end,
            '{}');
        end if;

        return null;
      end $$`);
    this.addSql(`
      create trigger notify_person after update on users
        for each row when (
          new.kind = 'person' and old.confirmed_at is not null
          and (old.password_hash, old.role_id, old.scope, old.disabled_at is null)
            is distinct from
            (new.password_hash, new.role_id, new.scope, new.disabled_at is null))
        execute function notify_of_account()`);
  }

  #addFactors(): void {
    this.addSql(`
      create function notify_of_factor() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if new.confirmed_at is null or tg_op = 'UPDATE' and old.confirmed_at is not null then
          return null;
        end if;

        perform add_notice(
          new.user_id, 'factor_added', jsonb_build_object('name', new.name, 'kind', new.kind));
        return null;
      end $$`);
    this.addSql(`
      create trigger notify_person after insert or update of confirmed_at on factors
        for each row execute function notify_of_factor()`);

    // One notice for all factors that a reset removes.
    this.addSql(`
      create function notify_of_removed_factors() returns trigger language plpgsql
        security definer set search_path = pg_catalog, public, pg_temp as $$
      begin
        perform add_notice(user_id, 'factors_removed', jsonb_build_object(
            'removed', names, 'left', jsonb_array_length(factors_of(user_id))))
           from (select user_id, jsonb_agg(name order by confirmed_at, id) as names
                   from removed where confirmed_at is not null group by user_id) r;
        return null;
      end $$`);
    this.addSql(`
      create trigger notify_of_removal after delete on factors
        referencing old table as removed
        for each statement execute function notify_of_removed_factors()`);

    this.addSql(`
      create function notify_of_recovery_code() returns trigger language plpgsql
        security definer set search_path = pg_catalog, public, pg_temp as $$
      begin
        perform add_notice(new.user_id, 'recovery_code_used', jsonb_build_object('left', (
          select count(*) from recovery_codes
           where tenant_id = new.tenant_id and user_id = new.user_id and used_at is null)));
        return null;
      end $$`);
    this.addSql(`
      create trigger notify_person after update of used_at on recovery_codes
        for each row when (old.used_at is null and new.used_at is not null)
        execute function notify_of_recovery_code()`);
  }

  #addNetworks(): void {
    this.addSql('alter table sessions add column previous_login_at timestamptz');
    this.addSql(`
      comment on column sessions.previous_login_at is
        'the login of the user before this one; null: this is the first one'`);
    this.addSql(`
      create function note_previous_login() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        new.previous_login_at := (select last_login_at from users where id = new.user_id);
        return new;
      end $$`);
    this.addSql(`
      create trigger note_previous_login before insert on sessions
        for each row execute function note_previous_login()`);

    // Notes a login from a network that is new for its person: in a notice that waits, or in one
    // that is due a day after the last one. A login writes its session before its network, in
    // one transaction; the link of a mail writes no session.
    this.addSql(`
      create function notify_of_network() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        known_since timestamptz := now() - interval '30 days';
        found_network inet := case
          when pg_input_is_valid(new.network, 'inet') then new.network::inet
        end;
        wide cidr := network(set_masklen(
          found_network, case family(found_network) when 4 then 16 else 32 end));
        login jsonb := jsonb_build_object('network', new.network, 'at', now());
        due timestamptz;
      begin
        if tg_op = 'UPDATE' and old.last_login_at > known_since then
          return null;
        end if;

        if not exists (
          select from sessions
           where user_id = new.user_id and created_at = now() and previous_login_at is not null)
        then
          return null;
        end if;

        if exists (
          select from login_networks
           where user_id = new.user_id and network <> new.network and last_login_at > known_since
             and case when pg_input_is_valid(network, 'inet') then network::inet <<= wide end)
        then
          return null;
        end if;

        update account_notices
           set details = jsonb_build_object('logins', jsonb_build_object(
                 'count', (details #>> '{logins,count}')::integer + 1,
                 'items', case
                   when jsonb_array_length(details #> '{logins,items}') < 20
                     then details #> '{logins,items}' || jsonb_build_array(login)
                   else details #> '{logins,items}'
                 end))
         where user_id = new.user_id and kind = 'new_network' and state = 'waiting'
           and created_at > now() - interval '1 day' and tried_at is null
           and leased_until <= now();
        if found then
          return null;
        end if;

        select greatest(now(), max(created_at) + interval '1 day') into due
          from account_notices
         where user_id = new.user_id and kind = 'new_network';
        insert into account_notices (
          tenant_id, user_id, kind, details, created_at, next_attempt_at)
        select tenant_id, id, 'new_network',
               jsonb_build_object('logins', jsonb_build_object(
                 'count', 1, 'items', jsonb_build_array(login))),
               due, due
          from users
         where id = new.user_id;

        return null;
      end $$`);
    this.addSql(`
      create trigger notify_person after insert or update on login_networks
        for each row execute function notify_of_network()`);
  }

  // The link of a mail has set a password: nobody who had the account before has a way in
  // afterwards. Runs as the owner, because the service may not change a client.
  #endClients(): void {
    this.addSql(`
      create function end_clients_of_link() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        ended jsonb;
      begin
        with revoked as (
          update api_clients set revoked_at = now()
           where tenant_id = new.tenant_id and user_id = new.user_id and revoked_at is null
          returning name, id)
        select jsonb_build_object(
                 'count', count(*),
                 'items', jsonb_path_query_array(
                   jsonb_agg(name order by name, id), '$[0 to 19]'))
          into ended from revoked having count(*) > 0;

        update legacy_tokens set revoked_at = now()
         where tenant_id = new.tenant_id and user_id = new.user_id and revoked_at is null;
        delete from login_challenges
         where tenant_id = new.tenant_id and user_id = new.user_id;

        if ended is not null then
          insert into account_notices (tenant_id, kind, details)
          values (new.tenant_id, 'clients_ended',
                  jsonb_build_object('userId', new.user_id, 'clients', ended));
        end if;

        return null;
      end $$`);
    this.addSql(`
      create trigger end_clients after update of set_password on mail_deliveries
        for each row when (
          new.kind = 'reset' and new.user_id is not null
          and old.set_password is null and new.set_password is not null)
        execute function end_clients_of_link()`);
  }

  // As the audit log: some old notices with each statement that adds some.
  #removeOld(): void {
    this.addSql(`
      create function remove_old_notices() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        delete from account_notices where id in (
          select id from account_notices where expires_at <= now() - interval '30 days'
           order by expires_at limit 100 for update skip locked);

        return null;
      end $$`);
    this.addSql(`
      create trigger remove_old after insert on account_notices
        for each statement execute function remove_old_notices()`);
  }
}

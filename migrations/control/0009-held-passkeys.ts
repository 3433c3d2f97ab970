import { Migration } from '@mikro-orm/migrations';

/**
 * Passkeys that a new password holds, until their person confirms them; roles of whose people
 * sessions are being revoked; and logins that cost less.
 */
export class HeldPasskeys extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addHolds();
    this.addSql(factorsOf(`, 'addedFrom', f.added_from, 'isHeld', f.held_at is not null`));
    this.#addRevocations();
    this.#removeSeldom();
    this.#notePreviousLogin('when (new.previous_login_at is null)');
  }

  override down(): void {
    this.#notePreviousLogin('');
    this.addSql('drop trigger remove_old on logins');
    this.addSql(removeOldLogins('10 + 2 * (select count(*) from added)'));
    this.addSql(`
      create trigger remove_old after insert on logins referencing new table as added
        for each statement execute function remove_old_logins()`);
    this.addSql('drop trigger mark_role_of_user on users');
    this.addSql('drop function mark_role_of_user()');
    this.addSql('drop trigger mark_role on roles');
    this.addSql('drop function mark_role()');
    this.addSql('alter table roles drop column revokes_sessions');
    this.addSql(factorsOf(''));
    this.addSql('drop trigger refuse_held_way_in on sessions');
    this.addSql('drop function refuse_held_way_in()');
    this.addSql('drop trigger hold_ways_in on mail_deliveries');
    this.addSql('drop function hold_ways_in()');
    this.addSql('alter table factors drop column held_at, drop column added_from');
  }

  #addHolds(): void {
    this.addSql('alter table factors add column held_at timestamptz, add column added_from text');
    this.addSql(`
      alter table factors alter added_from
        set default nullif(current_setting('app.actor', true), '')::jsonb ->> 'ipAddress'`);
    this.addSql(`
      comment on column factors.held_at is
        'since when the link of a mail, by which a password was set, holds this passkey: it is no '
        'whole login before its person confirms it; null: it is not held'`);
    this.addSql(`
      comment on column factors.added_from is
        'the address of the client that added it; null: not known'`);

    // The link of a mail has set a password: a way in without the password, which whoever had
    // the account before may have added, is held.
    this.addSql(`
      create function hold_ways_in() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        update factors set held_at = now()
         where tenant_id = new.tenant_id and user_id = new.user_id and kind = 'passkey'
           and held_at is null and confirmed_at > now() - interval '30 days';
        return null;
      end $$`);
    this.addSql(`
      create trigger hold_ways_in after update of set_password on mail_deliveries
        for each row when (
          new.kind = 'reset' and new.user_id is not null
          and old.set_password is null and new.set_password is not null)
        execute function hold_ways_in()`);

    // Beside a password, or the sign-in at a provider, a passkey is a second factor. It notes
    // its use in the transaction of the session that it opens, whose time is now().
    this.addSql(`
      create function refuse_held_way_in() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        if exists (
          select from factors
           where tenant_id = new.tenant_id and user_id = new.user_id
             and held_at is not null and last_used_at = now()) then
          raise insufficient_privilege using message = 'this way to log in is held';
        end if;

        return new;
      end $$`);
    this.addSql(`
      create trigger refuse_held_way_in before insert on sessions
        for each row when (not new.methods && '{pwd,idp}')
        execute function refuse_held_way_in()`);
  }

  // The sessions are refused at each use already; there may be many of them.
  #addRevocations(): void {
    this.addSql('alter table roles add column revokes_sessions boolean not null default false');
    this.addSql(`
      comment on column roles.revokes_sessions is
        'true: the role requires a second factor, and sessions of its people that have none may '
        'be left to be revoked'`);
    // the roles whose sessions are being revoked
    this.addSql('create index roles_revokes_sessions_index on roles (id) where revokes_sessions');

    this.addSql(`
      create function mark_role() returns trigger language plpgsql
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        new.revokes_sessions := true;
        return new;
      end $$`);
    this.addSql(`
      create trigger mark_role before update of requires_second_factor on roles
        for each row when (new.requires_second_factor and not old.requires_second_factor)
        execute function mark_role()`);

    // Also for a command of a former build, which gives a person another role. A role that is
    // marked already is locked, too: otherwise its mark could end before this change is seen.
    this.addSql(`
      create function mark_role_of_user() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        update roles set revokes_sessions = true
         where id = new.role_id and requires_second_factor;
        return null;
      end $$`);
    this.addSql(`
      create trigger mark_role_of_user after update of role_id on users
        for each row when (old.role_id <> new.role_id and new.kind = 'person')
        execute function mark_role_of_user()`);
  }

  // Every 16th row removes those that are old among more than 16: so the table stays bounded as
  // before, and 15 of 16 logins do not look for them.
  #removeSeldom(): void {
    this.addSql('drop trigger remove_old on logins');
    this.addSql(removeOldLogins('42'));
    this.addSql(`
      create trigger remove_old after insert on logins
        for each row when (new.id % 16 = 0) execute function remove_old_logins()`);
  }

  /**
   * Makes the trigger that notes the login before a new session.
   * @param condition of the sessions whose statement has not noted it: those of a first login,
   *   and of a former build
   */
  #notePreviousLogin(condition: string): void {
    this.addSql('drop trigger note_previous_login on sessions');
    this.addSql(`
      create trigger note_previous_login before insert on sessions
        for each row ${condition} execute function note_previous_login()`);
  }
}

/**
 * Returns the statement that makes `remove_old_logins()`. A session plans this once, also while
 * the table is almost empty: so the plan uses indexes alone.
 * @param examined SQL of the number of rows of which those that are old are removed
 */
const removeOldLogins = (examined: string): string => `
  create or replace function remove_old_logins() returns trigger language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp
    set enable_seqscan = off as $$
  declare
    kept_from constant timestamptz := logins_kept_from();
    examined constant bigint := ${examined};
  begin
    delete from logins where ctid = any (array(
      select ctid from logins
       where id = any (array(select id from logins order by id limit examined))
         and created_at < kept_from
         for update skip locked));

    return null;
  end $$`;

/**
 * Returns the statement that makes `factors_of()`: the factors of a person, for a notice.
 * @param facts SQL of those that each has beside name, kind and time
 */
const factorsOf = (facts: string): string => `
  create or replace function factors_of(person bigint) returns jsonb language sql stable
    set search_path = pg_catalog, public, pg_temp as $$
    select coalesce(
      jsonb_agg(
        jsonb_build_object('name', f.name, 'kind', f.kind, 'addedAt', f.confirmed_at${facts})
        order by f.confirmed_at, f.id),
      '[]')
      from factors f join users u on u.tenant_id = f.tenant_id and u.id = f.user_id
     where u.id = person and f.confirmed_at is not null
  $$`;

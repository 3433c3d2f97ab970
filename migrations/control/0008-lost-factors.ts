import { Migration } from '@mikro-orm/migrations';

/** People whose second factor is lost with a restore, or cannot be copied. */
export class LostFactors extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table users add column must_set_up_factor boolean not null default false');
    this.addSql(`
      comment on column users.must_set_up_factor is
        'true: the second factor of this person is lost, and no session opens before there is '
        'another one, or somebody resets the factors of the person'`);

    // However a factor comes about: by a code, or by a passkey.
    this.addSql(`
      create function end_lost_factor() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        update users set must_set_up_factor = false where id = new.user_id and must_set_up_factor;
        return null;
      end $$`);
    this.addSql(`
      create trigger end_lost_factor after insert or update of confirmed_at on factors
        for each row when (new.confirmed_at is not null) execute function end_lost_factor()`);

    this.addSql(refuseSession('(r.requires_second_factor or u.must_set_up_factor)'));
  }

  override down(): void {
    this.addSql(refuseSession('r.requires_second_factor'));
    this.addSql('drop trigger end_lost_factor on factors');
    this.addSql('drop function end_lost_factor()');
    this.addSql('alter table users drop column must_set_up_factor');
  }
}

/**
 * Returns the statement that makes `refuse_session()`. It binds also a process of a build
 * before, which does not know who may have a session.
 * @param mustHaveFactor SQL: true for a user who must have a second factor
 */
const refuseSession = (mustHaveFactor: string): string => `
  create or replace function refuse_session() returns trigger language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp as $$
  begin
    if exists (select from users where id = new.user_id and kind = 'program') then
      raise insufficient_privilege using message = 'a program has no session';
    end if;

    if not new.methods && '{otp,pop}' and (
      exists (select from factors where user_id = new.user_id and confirmed_at is not null)
      or exists (
        select from users u join roles r on r.id = u.role_id
         where u.id = new.user_id and ${mustHaveFactor})) then
      raise insufficient_privilege using message = 'this session needs a second factor';
    end if;

    return new;
  end $$`;

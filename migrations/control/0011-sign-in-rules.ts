import { Migration } from '@mikro-orm/migrations';

/** Rules of sign-in: tenants that refuse passwords. */
export class SignInRules extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addRules();
    this.#keepException();
    // the sessions that a logout token names
    this.addSql(`
      create index sessions_provider_sid_index on sessions (provider_sid)
        where provider_sid is not null`);
    // tokens of before a logout, which nobody has used yet
    this.addSql('alter table identities add column logged_out_at timestamptz');
    this.addSql(`
      comment on column identities.logged_out_at is
        'when its person was last logged out at the provider, by the clock of the provider, or '
        'the database was restored: sign-ins of before are refused; null: never'`);
    this.addSql(refuseSession);
  }

  override down(): void {
    this.addSql(refuseSessionWithoutRules);
    this.addSql('alter table identities drop column logged_out_at');
    this.addSql('drop index sessions_provider_sid_index');
    this.addSql('drop trigger require_sign_in_exception on users');
    this.addSql('drop trigger require_sign_in_exception_after_delete on users');
    this.addSql('drop trigger require_sign_in_exception on roles');
    this.addSql('drop table sign_in_rules');
    this.addSql('drop function require_sign_in_exception()');
    this.addSql('drop function notify_of_sign_in_rules()');
  }

  #addRules(): void {
    this.addSql(`
      create table sign_in_rules (
        id bigint generated always as identity primary key,
        tenant_id bigint not null
          constraint sign_in_rules_tenant_id_unique unique
          constraint sign_in_rules_tenant_id_fkey references tenants on delete cascade,
        password_logins text not null default 'allowed'
          constraint sign_in_rules_password_logins_check
          check (password_logins in ('allowed', 'refused')),
        except_users bigint[] not null default '{}',
        changed_at timestamptz not null default now()
      )`);
    this.addSql(`
      comment on table sign_in_rules is
        'How the people of a tenant may log in; without a row: in every way.'`);
    this.addSql(`
      comment on column sign_in_rules.password_logins is
        'refused: no session opens by a password or a passkey, and none of those that are open '
        'goes on'`);
    this.addSql(`
      comment on column sign_in_rules.except_users is
        'the users who may use their passwords and passkeys all the same'`);

    const columns = `'SignInRule', 'password_logins', 'except_users'`;
    this.addSql(`
      create trigger audit_create_delete after insert or delete on sign_in_rules
        for each row execute function audit_change(${columns})`);
    this.addSql(`
      create trigger audit_update after update on sign_in_rules
        for each row execute function audit_change(${columns})`);
    // An event for the administrators, whoever makes the change.
    this.addSql(`
      create function notify_of_sign_in_rules() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
      begin
        insert into account_notices (tenant_id, kind, details)
        values (new.tenant_id, 'sign_in_rules_changed', jsonb_build_object(
          'passwordLogins', new.password_logins, 'userId', (actor ->> 'userId')::bigint));
        return null;
      end $$`);
    this.addSql(`
      create trigger notify_administrators after insert or update on sign_in_rules
        for each row execute function notify_of_sign_in_rules()`);
    // the caches have it with the tenant
    this.addSql(`
      create trigger announce_change after insert or update or delete on sign_in_rules
        for each row execute function announce_tenant_of_row('tenant_id')`);
    this.addSql(`
      create trigger announce_truncate after truncate on sign_in_rules
        execute function announce_truncate()`);
  }

  // Whoever changes people: a request, an operator, or SQL. A restore has to take rights away all
  // the same, and sets app.restores.
  #keepException(): void {
    this.addSql(`
      create function require_sign_in_exception() returns trigger language plpgsql
        security definer set search_path = pg_catalog, public, pg_temp as $$
      declare
        changed bigint := case tg_op when 'DELETE' then old.tenant_id else new.tenant_id end;
      begin
        if current_setting('app.restores', true) = 'true' then
          return null;
        end if;

        if exists (
          -- No row while the tenant is deleted.
          select from sign_in_rules s join tenants t on t.id = s.tenant_id
           where s.tenant_id = changed and s.password_logins = 'refused'
             and not exists (
               select from users u join roles r on r.id = u.role_id
                where u.tenant_id = s.tenant_id and u.id = any (s.except_users)
                  and u.kind = 'person' and u.password_hash <> 'none'
                  and u.disabled_at is null and u.confirmed_at is not null
                  and u.scope = 'All' and 'users.manage' = any (r.permissions))) then
          raise check_violation using
            constraint = 'sign_in_rules_exception_check',
            message = 'nobody would remain who manages the users and may use a password';
        end if;

        return null;
      end $$`);
    this.addSql(`
      create trigger require_sign_in_exception after insert or update on sign_in_rules
        for each row when (new.password_logins = 'refused')
        execute function require_sign_in_exception()`);

    const facts = (row: string): string =>
      `(${['disabled_at', 'confirmed_at', 'scope', 'role_id']
        .map(column => `${row}.${column}`)
        .join(', ')}, ${row}.password_hash = 'none')`;
    this.addSql(`
      create trigger require_sign_in_exception
        after update of disabled_at, confirmed_at, scope, role_id, password_hash on users
        for each row when (${facts('old')} is distinct from ${facts('new')})
        execute function require_sign_in_exception()`);
    this.addSql(`
      create trigger require_sign_in_exception_after_delete after delete on users
        for each row when (old.confirmed_at is not null)
        execute function require_sign_in_exception()`);
    this.addSql(`
      create trigger require_sign_in_exception after update of permissions on roles
        for each row when (
          'users.manage' = any (old.permissions) and not 'users.manage' = any (new.permissions))
        execute function require_sign_in_exception()`);
  }
}

/**
 * Returns the statement that makes `refuse_session()`. It binds also a process of a build
 * before, which does not know who may have a session.
 * @param refusals statements that refuse further sessions
 */
const refuseSessionWhere = (refusals: string): string => `
  create or replace function refuse_session() returns trigger language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp as $$
  begin
    if exists (select from users where id = new.user_id and kind = 'program') then
      raise insufficient_privilege using message = 'a program has no session';
    end if;

    if new.identity_id is not null and not exists (
      select from identities i where i.id = new.identity_id and i.user_id = new.user_id)
      or ('idp' = any (new.methods)) <> (new.identity_id is not null)
      or new.identity_id is not null
        and end_of_session(new.identity_id, new.created_at) <= now() then
      raise insufficient_privilege using message = 'the identity of this session is not good';
    end if;
${refusals}
    if not (new.methods && '{otp,pop}'
      or new.idp_is_factor and exists (
        select from identities i join identity_providers p on p.id = i.provider_id
         where i.id = new.identity_id and p.second_factor is distinct from '{}')) and (
      exists (select from factors where user_id = new.user_id and confirmed_at is not null)
      or exists (
        select from users u join roles r on r.id = u.role_id
         where u.id = new.user_id and (r.requires_second_factor or u.must_set_up_factor))) then
      raise insufficient_privilege using message = 'this session needs a second factor';
    end if;

    return new;
  end $$`;

const refuseSession = refuseSessionWhere(`
    if not 'idp' = any (new.methods) and exists (
      select from sign_in_rules s
       where s.tenant_id = new.tenant_id and s.password_logins = 'refused'
         and not new.user_id = any (s.except_users)) then
      raise insufficient_privilege using message = 'the tenant of this session refuses passwords';
    end if;
`);

/** The function as `0010-identity-providers` makes it. */
const refuseSessionWithoutRules = refuseSessionWhere('');

import { Migration } from '@mikro-orm/migrations';

/** Sign-in by a tenant's own providers of OpenID Connect. */
export class IdentityProviders extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addProviders();
    this.#addIdentities();
    this.#addSessionFacts();
    this.#addUsedTokens();
    this.#addStates();
    this.#hold();
    this.#notify();
    this.addSql(refuseSession);
  }

  override down(): void {
    this.addSql(refuseSessionWithoutIdentities);
    this.addSql('drop trigger add_identities on account_notices');
    this.addSql('drop function add_identities_to_notice()');
    this.addSql('drop trigger hold_identities on mail_deliveries');
    this.addSql('drop function hold_identities()');
    this.addSql('drop table provider_states');
    this.addSql('drop table used_id_tokens');
    this.addSql('alter table login_challenges drop column identity_id, drop column provider_sid');
    this.addSql('drop function end_of_session(bigint, timestamptz)');
    // A session of a provider would live on without the checks that end it.
    this.addSql('delete from sessions where identity_id is not null');
    this.addSql('drop index sessions_identity_id_index');
    this.addSql('alter table sessions drop column provider_sid, drop column idp_is_factor');
    this.addSql('drop table identities');
    this.addSql('drop function notify_of_identity()');
    this.addSql('drop function end_sessions_of_identities()');
    this.addSql('drop table identity_providers');
    this.addSql('drop function notify_of_provider()');
    this.addSql('drop function announce_sessions_of_provider()');
    this.addSql('drop function end_sessions_of_provider()');
  }

  #addProviders(): void {
    this.addSql(`
      create table identity_providers (
        id bigint generated always as identity primary key,
        guid uuid not null default gen_random_uuid()
          constraint identity_providers_guid_unique unique,
        tenant_id bigint not null
          constraint identity_providers_tenant_id_fkey references tenants on delete cascade,
        name text not null,
        issuer text not null,
        client_ids text[] not null
          constraint identity_providers_client_ids_check
          check (cardinality(client_ids) between 1 and 10),
        is_enabled boolean not null default true,
        second_factor text[] default '{}',
        session_hours integer not null default 12
          constraint identity_providers_session_hours_check check (session_hours between 1 and 720),
        sessions_from timestamptz not null default '-infinity',
        creates_role_id bigint,
        creates_scope text,
        creates_entity_id bigint,
        creates_entity_since timestamptz,
        creates_domains text[],
        creates_claims jsonb,
        creates_permissions text[],
        created_at timestamptz not null default now(),
        constraint identity_providers_tenant_id_id_unique unique (tenant_id, id),
        constraint identity_providers_tenant_id_issuer_unique unique (tenant_id, issuer),
        constraint identity_providers_role_fkey
          foreign key (tenant_id, creates_role_id) references roles (tenant_id, id),
        constraint identity_providers_creates_check check (
          num_nonnulls(
            creates_role_id, creates_scope, creates_domains, creates_claims, creates_permissions)
            in (0, 5)
          and (creates_entity_id is null) = (creates_entity_since is null)
          and (creates_entity_id is null or creates_role_id is not null))
      )`);
    this.addSql(`
      comment on table identity_providers is
        'One provider of OpenID Connect, at which people of a tenant sign in.'`);
    this.addSql(`
      comment on column identity_providers.guid is
        'names it in the address to which the provider sends logout tokens'`);
    this.addSql(`
      comment on column identity_providers.issuer is
        'iss of its tokens, to the letter; does not change'`);
    this.addSql(`
      comment on column identity_providers.client_ids is
        'the values that aud and azp of an ID token may have'`);
    this.addSql(`
      comment on column identity_providers.second_factor is
        'the values of amr of which one says that the provider has asked for a second factor; '
        'empty: it never counts as one; null: it always does'`);
    this.addSql(`
      comment on column identity_providers.session_hours is
        'the hours after a login by this provider in which its session ends'`);
    this.addSql(`
      comment on column identity_providers.sessions_from is
        'sessions that were opened before have ended: when it was last disabled or enabled; set by a '
        'trigger'`);
    this.addSql(`
      comment on column identity_providers.creates_role_id is
        'the role of accounts that are made for people whom the provider knows; null, as all '
        'columns of accounts: none are made'`);
    this.addSql(`
      comment on column identity_providers.creates_domains is
        'the domains of the addresses for which accounts are made'`);
    this.addSql(`
      comment on column identity_providers.creates_claims is
        'the claims that an ID token must have for it, with their values'`);
    this.addSql(`
      comment on column identity_providers.creates_permissions is
        'the permissions of the person who has stored this: no account is made with others, '
        'should the role have got some'`);
    // for the foreign key, and the deletion of a role
    this.addSql(`
      create index identity_providers_role_id_index
        on identity_providers (tenant_id, creates_role_id) where creates_role_id is not null`);

    const columns = `
      'IdentityProvider', 'id', 'guid', 'name', 'issuer', 'client_ids', 'is_enabled',
      'second_factor', 'session_hours', 'creates_role_id', 'creates_scope', 'creates_entity_id',
      'creates_domains', 'creates_claims', 'created_at'`;
    this.addSql(`
      create trigger audit_create_delete after insert or delete on identity_providers
        for each row execute function audit_change(${columns})`);
    this.addSql(`
      create trigger audit_update after update on identity_providers
        for each row execute function audit_change(${columns})`);

    // Whoever disables it: the sessions do not come back when it is enabled again.
    this.addSql(`
      create function end_sessions_of_provider() returns trigger language plpgsql as $$
      begin
        new.sessions_from := now();
        return new;
      end $$`);
    this.addSql(`
      create trigger end_sessions before update on identity_providers
        for each row when (old.is_enabled <> new.is_enabled)
        execute function end_sessions_of_provider()`);

    // A provider may have 100,000 people: the sessions of its tenant that a provider has opened are
    // looked up again, in place of a change of each row.
    this.addSql(`
      create function announce_sessions_of_provider() returns trigger language plpgsql as $$
      begin
        perform pg_notify('control_changes', 'provider_sessions:' || old.tenant_id);
        return null;
      end $$`);
    this.addSql(`
      create trigger announce_delete after delete on identity_providers
        for each row execute function announce_sessions_of_provider()`);
    this.addSql(`
      create trigger announce_update after update on identity_providers
        for each row when (
          (old.is_enabled, old.second_factor, old.session_hours, old.sessions_from)
            is distinct from
            (new.is_enabled, new.second_factor, new.session_hours, new.sessions_from))
        execute function announce_sessions_of_provider()`);
    this.addSql(`
      create trigger announce_truncate after truncate on identity_providers
        execute function announce_truncate()`);
  }

  #addIdentities(): void {
    this.addSql(`
      create table identities (
        id bigint generated always as identity primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        provider_id bigint not null,
        subject text not null,
        email text,
        is_by_rule boolean not null default false,
        added_from text
          default nullif(current_setting('app.actor', true), '')::jsonb ->> 'ipAddress',
        created_at timestamptz not null default now(),
        last_used_at timestamptz,
        held_at timestamptz,
        constraint identities_provider_id_subject_unique unique (provider_id, subject),
        constraint identities_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade,
        constraint identities_provider_fkey
          foreign key (tenant_id, provider_id)
          references identity_providers (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table identities is
        'One account of a person at a provider, by which the person logs in.'`);
    this.addSql(`
      comment on column identities.subject is 'sub of its tokens, by which alone it is found'`);
    this.addSql(`
      comment on column identities.email is
        'the address that the provider has named when it was linked, by which its person '
        'recognises it; no login is decided by it'`);
    this.addSql(`
      comment on column identities.is_by_rule is
        'true: the account was made with it, because the provider knows the person'`);
    this.addSql(`
      comment on column identities.added_from is
        'the address of the client that linked it; null: not known'`);
    this.addSql(`
      comment on column identities.held_at is
        'when a new password was set by a link: refused until its person confirms it; null: it '
        'is good'`);
    // the identities of a person
    this.addSql('create index identities_user_id_index on identities (tenant_id, user_id)');
    // for the foreign key, and the accounts that were made in the last hour
    this.addSql(`
      create index identities_provider_id_index
        on identities (tenant_id, provider_id, is_by_rule, created_at)`);

    const columns = `
      'Identity', 'id', 'user_id', 'provider_id', 'subject', 'email', 'held_at', 'created_at'`;
    this.addSql(`
      create trigger audit_create_delete after insert or delete on identities
        for each row execute function audit_change(${columns})`);
    this.addSql(`
      create trigger audit_update after update of held_at on identities
        for each row execute function audit_change(${columns})`);
  }

  #addSessionFacts(): void {
    this.addSql(`
      alter table sessions
        add column provider_sid text,
        add column idp_is_factor boolean not null default false`);
    this.addSql(`
      comment on column sessions.provider_sid is
        'sid of the ID token: the session at the provider, which a logout token names; null: '
        'it has none'`);
    this.addSql(`
      comment on column sessions.idp_is_factor is
        'true: the provider has asked for a second factor, as its row says'`);
    // the sessions that end with an identity
    this.addSql(`
      create index sessions_identity_id_index on sessions (identity_id)
        where identity_id is not null`);

    this.addSql(`
      alter table login_challenges
        add column identity_id bigint,
        add column provider_sid text`);
    this.addSql(`
      comment on column login_challenges.identity_id is
        'the identity at a provider that was proved in place of a password; null: a password was'`);
    this.addSql(`
      comment on column login_challenges.provider_sid is 'as sessions.provider_sid'`);

    // Not security definer, and without a search path of its own, so that a query has it inline.
    this.addSql(`
      create function end_of_session(by_identity bigint, opened_at timestamptz)
        returns timestamptz language sql stable as $$
        select case
          when by_identity is null then 'infinity'::timestamptz
          else coalesce(
            (select opened_at + p.session_hours * interval '1 hour'
               from public.identities i
               join public.identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
              where i.id = by_identity and i.held_at is null
                and p.is_enabled and p.sessions_from <= opened_at),
            '-infinity'::timestamptz)
        end
      $$`);
    this.addSql(`
      comment on function end_of_session(bigint, timestamptz) is
        'the time at which a session of an identity ends at the latest; -infinity: its identity '
        'is gone or held, or its provider was disabled since; infinity: no identity opened it'`);

    // Those of a provider that is deleted end with its row, and are not written one by one.
    this.addSql(`
      create function end_sessions_of_identities() returns trigger language plpgsql
        security definer set search_path = pg_catalog, public, pg_temp as $$
      begin
        update sessions set revoked_at = now(), revoked_reason = 'identity_unlinked'
         where revoked_at is null and identity_id in (
           select r.id from removed r join identity_providers p on p.id = r.provider_id);
        return null;
      end $$`);
    this.addSql(`
      create trigger end_sessions after delete on identities
        referencing old table as removed
        for each statement execute function end_sessions_of_identities()`);
  }

  #addUsedTokens(): void {
    this.addSql(`
      create table used_id_tokens (
        hash bytea primary key,
        expires_at timestamptz not null
      )`);
    this.addSql(`
      comment on table used_id_tokens is
        'One token of a provider that was used, and is not good again, in any tenant; or one person '
        'whom a provider has logged out: ID tokens of before are refused.'`);
    this.addSql(`
      comment on column used_id_tokens.hash is
        'SHA-256 of what its provider has signed, of the name of a logout token, or of the guid of '
        'the provider and sub of the person'`);
    this.addSql(`
      comment on column used_id_tokens.expires_at is
        'when the row may go: the token has expired; of a logout, 11 minutes after it, when all ID '
        'tokens of before have'`);
    // for the removal of expired ones
    this.addSql('create index used_id_tokens_expires_at_index on used_id_tokens (expires_at)');
  }

  #addStates(): void {
    this.addSql(`
      create table provider_states (
        provider_id bigint primary key
          constraint provider_states_provider_id_fkey references identity_providers on delete cascade,
        reached_at timestamptz,
        failing_since timestamptz,
        failure text
      )`);
    this.addSql(`
      comment on table provider_states is
        'Whether the processes have lately read the metadata and keys of a provider.'`);
    this.addSql(`
      comment on column provider_states.reached_at is 'when one last has; null: none has yet'`);
    this.addSql(`
      comment on column provider_states.failing_since is
        'the first failure after that; null: it can be read'`);
    this.addSql(`comment on column provider_states.failure is 'the reason of the last failure'`);
  }

  // Whoever could read the mails of a person could have linked an identity before.
  #hold(): void {
    this.addSql(`
      create function hold_identities() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        update identities set held_at = now()
         where tenant_id = new.tenant_id and user_id = new.user_id and held_at is null
           and created_at > now() - interval '30 days';
        return null;
      end $$`);
    this.addSql(`
      create trigger hold_identities after update of set_password on mail_deliveries
        for each row when (
          new.kind = 'reset' and new.user_id is not null
          and old.set_password is null and new.set_password is not null)
        execute function hold_identities()`);
  }

  #notify(): void {
    // The mail on a new password names the ways in that are left.
    this.addSql(`
      create function add_identities_to_notice() returns trigger language plpgsql
        security definer set search_path = pg_catalog, public, pg_temp as $$
      declare
        is_by_link boolean := coalesce((new.details ->> 'isByLink')::boolean, false);
        linked jsonb := (
          select jsonb_agg(
                   jsonb_build_object(
                     'provider', p.name, 'email', i.email, 'addedAt', i.created_at,
                     'addedFrom', i.added_from,
                     'isHeld', i.held_at is not null
                       or is_by_link and i.created_at > now() - interval '30 days')
                   order by i.id)
            from identities i join identity_providers p on p.id = i.provider_id
           where i.tenant_id = new.tenant_id and i.user_id = new.user_id);
      begin
        new.details := new.details || jsonb_strip_nulls(jsonb_build_object('identities', linked));
        return new;
      end $$`);
    this.addSql(`
      create trigger add_identities before insert on account_notices
        for each row when (new.kind = 'password_changed' and new.user_id is not null)
        execute function add_identities_to_notice()`);

    // An event for the administrators, whoever makes the change.
    this.addSql(`
      create function notify_of_provider() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        actor jsonb := coalesce(nullif(current_setting('app.actor', true), ''), '{}')::jsonb;
        provider identity_providers := case tg_op when 'DELETE' then old else new end;
      begin
        insert into account_notices (tenant_id, kind, details)
        select t.id, 'provider_changed', jsonb_build_object(
                 'name', provider.name,
                 'issuer', provider.issuer,
                 'userId', (actor ->> 'userId')::bigint,
                 'change', case
                   when tg_op = 'INSERT' then 'added'
                   when tg_op = 'DELETE' then 'removed'
                   when old.is_enabled and not new.is_enabled then 'disabled'
                   else 'changed'
                 end)
          -- No row while the tenant is deleted.
          from tenants t where t.id = provider.tenant_id;
        return null;
      end $$`);
    this.addSql(`
      create trigger notify_administrators after insert or delete on identity_providers
        for each row execute function notify_of_provider()`);
    this.addSql(`
      create trigger notify_administrators_of_update after update on identity_providers
        for each row when (old is distinct from new) execute function notify_of_provider()`);

    // A person whose account was made with the identity knows of it: the administrators get one
    // mail a day. Nor is a person told who is removed, or whose provider is.
    this.addSql(`
      create function notify_of_identity() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      declare
        identity identities := case tg_op when 'DELETE' then old else new end;
        today date := (now() at time zone 'UTC')::date;
        tomorrow timestamptz := (today + 1)::timestamp at time zone 'UTC';
      begin
        if tg_op = 'INSERT' and new.is_by_rule then
          insert into account_notices (
            tenant_id, kind, details, occasion, created_at, next_attempt_at)
          values (
            new.tenant_id, 'accounts_made', jsonb_build_object('day', today), today::text,
            tomorrow, tomorrow)
          on conflict on constraint account_notices_occasion_unique do nothing;
          return null;
        end if;

        perform add_notice(
          identity.user_id,
          case tg_op when 'DELETE' then 'identity_unlinked' else 'identity_linked' end,
          jsonb_build_object('provider', name, 'email', identity.email))
           from identity_providers where id = identity.provider_id;
        return null;
      end $$`);
    this.addSql(`
      create trigger notify_person after insert or delete on identities
        for each row execute function notify_of_identity()`);
  }
}

/**
 * Returns the statement that makes `refuse_session()`. It binds also a process of a build
 * before, which does not know who may have a session.
 * @param proved SQL: true for a session `new` with a second factor
 * @param refusals statements that refuse further sessions
 */
const refuseSessionWhere = (proved: string, refusals: string): string => `
  create or replace function refuse_session() returns trigger language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp as $$
  begin
    if exists (select from users where id = new.user_id and kind = 'program') then
      raise insufficient_privilege using message = 'a program has no session';
    end if;
${refusals}
    if not ${proved} and (
      exists (select from factors where user_id = new.user_id and confirmed_at is not null)
      or exists (
        select from users u join roles r on r.id = u.role_id
         where u.id = new.user_id and (r.requires_second_factor or u.must_set_up_factor))) then
      raise insufficient_privilege using message = 'this session needs a second factor';
    end if;

    return new;
  end $$`;

const refuseSession = refuseSessionWhere(
  `(new.methods && '{otp,pop}'
      or new.idp_is_factor and exists (
        select from identities i join identity_providers p on p.id = i.provider_id
         where i.id = new.identity_id and p.second_factor is distinct from '{}'))`,
  `
    if new.identity_id is not null and not exists (
      select from identities i where i.id = new.identity_id and i.user_id = new.user_id)
      or ('idp' = any (new.methods)) <> (new.identity_id is not null)
      or new.identity_id is not null
        and end_of_session(new.identity_id, new.created_at) <= now() then
      raise insufficient_privilege using message = 'the identity of this session is not good';
    end if;
`,
);

/** The function as `0008-lost-factors` makes it. */
const refuseSessionWithoutIdentities = refuseSessionWhere(`new.methods && '{otp,pop}'`, '');

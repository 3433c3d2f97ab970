import { Migration } from '@mikro-orm/migrations';

/** Second factors of people: what a login needs beside the password. */
export class SecondFactors extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.#addFactors();
    this.#addRecoveryCodes();
    this.#addChallenges();
    this.#addRequirement();
    this.addSql(refuseSession);
  }

  override down(): void {
    this.addSql(refuseSessionOfPrograms);
    this.addSql('drop trigger announce_proof on sessions');
    this.addSql('drop trigger audit_second_factor on roles');
    this.addSql('alter table roles drop column requires_second_factor');
    this.addSql('drop table login_challenges');
    this.addSql('drop table wrong_codes');
    this.addSql('drop table recovery_codes');
    this.addSql('drop table factors');
  }

  #addFactors(): void {
    this.addSql(`
      create table factors (
        id uuid primary key default gen_random_uuid(),
        tenant_id bigint not null,
        user_id bigint not null,
        kind text not null constraint factors_kind_check check (kind in ('totp', 'passkey')),
        name text not null,
        secret bytea,
        last_step bigint,
        created_at timestamptz not null default now(),
        confirmed_at timestamptz,
        last_used_at timestamptz,
        constraint factors_secret_check check ((kind = 'totp') = (secret is not null)),
        constraint factors_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table factors is
        'One second factor of a person: an app that computes codes (RFC 6238), or a passkey.'`);
    this.addSql(`comment on column factors.secret is 'the sealed key of the codes'`);
    this.addSql(`
      comment on column factors.last_step is
        'the 30 seconds of the last code that was used, counted from 1970: no code of these or '
        'earlier ones is accepted again'`);
    this.addSql(`
      comment on column factors.confirmed_at is
        'when the person first proved to have it; null: it counts for nothing yet'`);
    // the factors of a person
    this.addSql('create index factors_user_id_index on factors (tenant_id, user_id)');
    this.addSql(`
      create trigger require_present_key before insert or update of secret on factors
        for each row execute function require_present_key('secret')`);

    const columns = `'Factor', 'id', 'user_id', 'kind', 'name', 'created_at', 'confirmed_at'`;
    this.addSql(`
      create trigger audit_create_delete after insert or delete on factors
        for each row execute function audit_change(${columns})`);
    this.addSql(`
      create trigger audit_update after update on factors
        for each row execute function audit_change(${columns})`);
  }

  #addRecoveryCodes(): void {
    this.addSql(`
      create table recovery_codes (
        id bigint generated always as identity primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        hash bytea not null,
        used_at timestamptz,
        constraint recovery_codes_hash_unique unique (user_id, hash),
        constraint recovery_codes_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table recovery_codes is
        'One code that stands in once for a second factor of a person.'`);
    this.addSql(`
      comment on column recovery_codes.hash is
        'SHA-256 of the code, which is random and needs no slow hash'`);
    // the codes of a person, who may be deleted
    this.addSql('create index recovery_codes_user_id_index on recovery_codes (tenant_id, user_id)');

    this.addSql(`
      create table wrong_codes (
        user_id bigint primary key,
        tenant_id bigint not null,
        count integer not null,
        since timestamptz not null default now(),
        constraint wrong_codes_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table wrong_codes is
        'The wrong codes of a person in the 24 hours from the first one. A code is counted before '
        'it is compared, and taken off the count when it was right.'`);
    // for the foreign key
    this.addSql('create index wrong_codes_tenant_id_index on wrong_codes (tenant_id, user_id)');
  }

  #addChallenges(): void {
    this.addSql(`
      create table login_challenges (
        hash bytea primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        purpose text not null
          constraint login_challenges_purpose_check check (purpose in ('verify', 'setup')),
        password bytea not null,
        password_is_short boolean not null,
        tries integer not null default 0,
        expires_at timestamptz not null,
        constraint login_challenges_user_fkey
          foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`
      comment on table login_challenges is
        'One login with a right password, which a second factor has to complete.'`);
    this.addSql(`
      comment on column login_challenges.hash is
        'SHA-256 of the challenge, which is random and needs no slow hash'`);
    this.addSql(`
      comment on column login_challenges.purpose is
        'verify: by a factor that the person has; setup: by one that the person sets up'`);
    this.addSql(`
      comment on column login_challenges.password is
        'SHA-256 of the stored hash of the password: a new password makes the challenge void'`);
    this.addSql(`
      comment on column login_challenges.password_is_short is
        'true: new passwords of an account without a second factor have to be longer'`);
    this.addSql(`comment on column login_challenges.tries is 'the codes that it was sent with'`);
    // the challenges of a person, of which each login removes the expired ones
    this.addSql(
      'create index login_challenges_user_id_index on login_challenges (tenant_id, user_id)',
    );
    // for the removal of expired ones
    this.addSql('create index login_challenges_expires_at_index on login_challenges (expires_at)');
  }

  #addRequirement(): void {
    this.addSql(
      'alter table roles add column requires_second_factor boolean not null default false',
    );
    this.addSql(`
      comment on column roles.requires_second_factor is
        'true: a session of a person with this role needs a second factor'`);
    // Beside the entries of name and permissions, which this column does not change.
    this.addSql(`
      create trigger audit_second_factor after update of requires_second_factor on roles
        for each row when (old.requires_second_factor <> new.requires_second_factor)
        execute function audit_change('Role', 'id', 'name', 'requires_second_factor')`);

    // The caches have what was proved, beside what announce_revocation compares.
    this.addSql(`
      create trigger announce_proof after update of methods, password_is_short on sessions
        for each row when (
          (old.methods, old.password_is_short) is distinct from (new.methods, new.password_is_short))
        execute function announce_change('sessions', 'id')`);
  }
}

/**
 * Returns the statement that makes `refuse_session()`. It binds also a process of the build
 * before, which does not know who may have a session.
 */
const refuseSessionWhere = (refusals: string): string => `
  create or replace function refuse_session() returns trigger language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp as $$
  begin
    if exists (select from users where id = new.user_id and kind = 'program') then
      raise insufficient_privilege using message = 'a program has no session';
    end if;
${refusals}
    return new;
  end $$`;

const refuseSession = refuseSessionWhere(`
    if not new.methods && '{otp,pop}' and (
      exists (select from factors where user_id = new.user_id and confirmed_at is not null)
      or exists (
        select from users u join roles r on r.id = u.role_id
         where u.id = new.user_id and r.requires_second_factor)) then
      raise insufficient_privilege using message = 'this session needs a second factor';
    end if;
`);

/** The function as `0002-programs` makes it. */
const refuseSessionOfPrograms = refuseSessionWhere('');

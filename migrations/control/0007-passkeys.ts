import { Migration } from '@mikro-orm/migrations';

/** Passkeys (WebAuthn) of people, and the pages on which they work. */
export class Passkeys extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`alter table tenants add column passkey_origins text[] not null default '{}'`);
    this.addSql(`
      comment on column tenants.passkey_origins is
        'the origins of pages with passkeys, beside that of app_url'`);

    this.#addCredentials();
    this.#addUsedChallenges();
  }

  override down(): void {
    this.addSql('drop table used_challenges');
    this.addSql(`delete from factors where kind = 'passkey'`);
    this.addSql(`
      alter table factors
        drop column credential_id,
        drop column public_key,
        drop column sign_count,
        drop column transports,
        drop column rp_id`);
    this.addSql('alter table tenants drop column passkey_origins');
  }

  #addCredentials(): void {
    this.addSql(`
      alter table factors
        add column credential_id bytea,
        add column public_key bytea,
        add column sign_count bigint,
        add column transports text[],
        add column rp_id text,
        add constraint factors_credential_check
          check (num_nonnulls(credential_id, public_key, sign_count, transports, rp_id) in (0, 5))`);
    this.addSql(`
      comment on column factors.credential_id is
        'of a passkey: the name that its authenticator gave it; null, as the columns of passkeys '
        'after it: no passkey'`);
    this.addSql(`comment on column factors.public_key is 'as COSE has it (RFC 9052 §7)'`);
    this.addSql(`
      comment on column factors.sign_count is
        'the highest counter of its signatures; 0: its authenticator does not count'`);
    this.addSql(`
      comment on column factors.transports is
        'the ways to its authenticator, which a browser gets as hints'`);
    this.addSql(`
      comment on column factors.rp_id is 'the host of the pages on which it works'`);
    this.addSql(`
      create unique index factors_credential_id_unique on factors (credential_id)`);
  }

  #addUsedChallenges(): void {
    this.addSql(`
      create table used_challenges (
        hash bytea primary key,
        expires_at timestamptz not null
      )`);
    this.addSql(`
      comment on table used_challenges is
        'One challenge of a passkey that was used, and is not good again. The challenge itself is '
        'sealed, and stored nowhere.'`);
    this.addSql(`comment on column used_challenges.hash is 'SHA-256 of the challenge'`);
    this.addSql(`
      comment on column used_challenges.expires_at is
        'when the row may go: some time after the challenge has ended'`);
    // for the removal of expired ones
    this.addSql('create index used_challenges_expires_at_index on used_challenges (expires_at)');
  }
}

import { Migration } from '@mikro-orm/migrations';

/** The identity of the installation: the issuer of its access tokens, and the proof of its master key. */
export class Installation extends Migration {
  override up(): void {
    this.addSql(`
      create table installation (
        only_row boolean primary key default true constraint installation_only_row_check check (only_row),
        id uuid not null default gen_random_uuid(),
        master_key_canary bytea,
        created_at timestamptz not null default now()
      )`);
    this.addSql(
      `comment on column installation.master_key_canary is 'the id, sealed: opens only under the right master key; null before the first use of a key'`,
    );
    this.addSql('insert into installation default values');
  }

  override down(): void {
    this.addSql('drop table installation');
  }
}

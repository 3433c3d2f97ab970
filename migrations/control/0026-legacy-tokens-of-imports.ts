import { Migration } from '@mikro-orm/migrations';

/** Stores which legacy token sent the file of an import, so that the import ends when the token is revoked. */
export class LegacyTokensOfImports extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table unfinished_imports add column legacy_token_hash bytea');
    this.addSql(
      `comment on column unfinished_imports.legacy_token_hash is 'the legacy token that sent the file; it may have been deleted since; null for a session'`,
    );
  }

  override down(): void {
    this.addSql('alter table unfinished_imports drop column legacy_token_hash');
  }
}

import { Migration } from '@mikro-orm/migrations';

/**
 * Stores with an import the session or legacy token that sent its file: its end also ends an import that the control
 * database no longer lists, and that is queued again when somebody asks for it.
 */
export class SendersOfImports extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table imports add column session_id uuid, add column legacy_token_hash bytea');
    this.addSql(`comment on column imports.session_id is 'the session that sent the file; null for a legacy token'`);
    this.addSql(
      `comment on column imports.legacy_token_hash is 'the legacy token that sent the file; null for a session'`,
    );
  }

  override down(): void {
    this.addSql('alter table imports drop column session_id, drop column legacy_token_hash');
  }
}

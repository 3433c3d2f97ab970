import { Migration } from '@mikro-orm/migrations';
import { grant } from './sql.ts';

/**
 * The imports of CSV files, and the bytes of those that have not ended. An import belongs to the process that holds the
 * lock of its row; the lock ends with the process, so that another one can run it again.
 */
export class Imports extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table imports (
        id bigint generated always as identity primary key,
        resource text not null,
        mode text not null constraint imports_mode_check check (mode in ('create', 'upsert')),
        dry_run boolean not null,
        atomic boolean not null,
        state text not null default 'receiving'
          constraint imports_state_check check (state in ('receiving', 'queued', 'running', 'done', 'rejected')),
        attempts integer not null default 0,
        rows integer not null default 0,
        created integer not null default 0,
        updated integer not null default 0,
        unchanged integer not null default 0,
        refused integer not null default 0,
        errors jsonb not null default '[]',
        actor text not null,
        created_at timestamptz not null default now(),
        finished_at timestamptz
      )`);
    this.addSql('create index imports_created_at_index on imports (created_at)');
    this.addSql(`
      create table import_chunks (
        import_id bigint not null constraint import_chunks_import_id_fkey references imports on delete cascade,
        number integer not null,
        bytes bytea not null,
        primary key (import_id, number)
      )`);
    // The bytes are stored for a minute: compressing them would take longer than writing them.
    this.addSql('alter table import_chunks alter bytes set storage external');
    // As in migration 0008: an insert outside of the transaction that carries the actor is refused.
    for (const table of ['imports', 'import_chunks'])
      this.addSql(`
        create trigger require_actor before insert on ${table}
          for each row when (coalesce(current_setting('app.actor', true), '') = '') execute function require_actor()`);
    this.addSql(grant('select, insert, update, delete', 'imports', 'import_chunks'));
  }

  override down(): void {
    this.addSql('drop table import_chunks, imports');
  }
}

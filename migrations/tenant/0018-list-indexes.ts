import { Migration } from '@mikro-orm/migrations';

/**
 * The columns that the large lists can be sorted and filtered by, without those that have an index already. Each index
 * ends with the key, as each order does, and serves both directions.
 */
const columns = {
  entities: ['name', 'entity_type', 'status_id', 'currency_id', 'country_code', 'created_at'],
  activities: ['activity_code', 'screen', 'ip_address'],
  audit_log: ['created_at', 'user_id', 'user_guid', 'action', 'resource', 'record_key', 'ip_address', 'trace_id'],
};

/** The texts that are searched for a part of them. */
const searched = { entities: ['name'], activities: ['comment', 'screen'], audit_log: ['resource', 'record_key'] };

/**
 * Indexes for the lists that have no maximum of rows, so that each sort and each filter of 100,000 rows takes at most
 * 20 ms. The lists of reference data need none: they take less at their maximum.
 *
 * A part of a text is found by its trigrams, if the server has the extension `pg_trgm`, which the owner of a database
 * may create (it is trusted). Without it the search reads the whole table: 0.1 s for 100,000 rows. Its functions have a
 * schema of their own, which no login needs: the operators of `like` are PostgreSQL's own.
 */
export class ListIndexes extends Migration {
  static readonly compatible = true;

  override up(): void {
    // In their place: an index with the key, and one with the key in the other direction.
    this.addSql('drop index entities_status_id_index, audit_log_user_id_index');
    for (const [table, names] of Object.entries(columns))
      for (const name of names) this.addSql(`create index ${table}_${name}_id_index on ${table} (${name}, id)`);
    // A short list of pending entries, so that no insert has to sort in many.
    const trigramIndexes = Object.entries(searched).map(
      ([table, names]) => `
        create index ${table}_trigram_index on ${table}
          using gin (${names.map(name => `${name} trigrams.gin_trgm_ops`).join(', ')}) with (gin_pending_list_limit = 256);`,
    );
    this.addSql(`
      do $$ begin
        if exists (select from pg_available_extensions where name = 'pg_trgm') then
          create schema trigrams;
          create extension pg_trgm with schema trigrams;
          ${trigramIndexes.join('')}
        end if;
      end $$`);
  }

  override down(): void {
    this.addSql('drop extension if exists pg_trgm cascade');
    this.addSql('drop schema if exists trigrams');
    for (const [table, names] of Object.entries(columns))
      for (const name of names) this.addSql(`drop index ${table}_${name}_id_index`);
    this.addSql('create index entities_status_id_index on entities (status_id)');
    this.addSql('create index audit_log_user_id_index on audit_log (user_id, id desc)');
  }
}

import { Migration } from '@mikro-orm/migrations';

const codes = [
  ['countries', 'country_code'],
  ['units_of_measure', 'code'],
  ['currencies', 'code'],
  ['tax_codes', 'code'],
  ['promotions', 'promo_code'],
] as const;

/**
 * Tells codes with `İ` (U+0130) from those with `I`. `lower` returns `i` for both in most locales, although Unicode's simple
 * case folding leaves `İ` as it is. It is the only letter for which `lower` does that.
 *
 * `code_key(code)` is equal for two codes exactly when they are the same code. It is the code in lower case. If there is
 * an `İ`, a second line says where: `İST` has the key `ist⏎İ--`.
 *
 * No two codes with different `lower(code)` have the same key, whatever the locale of the database, so no tenant has two
 * codes that the new indexes refuse:
 * 1. `lower` returns no `İ` for a code without one. So the key of a code without `İ` has no `İ`; each other key has one.
 * 2. Of two codes without `İ`, each key is `lower(code)`.
 * 3. Of two codes with `İ`, the keys have no line feed after the one that ends `lower(code)`.
 *
 * `down` fails for a tenant that has two codes which differ only in `I` and `İ`.
 */
export class CodesWithDottedCapitalI extends Migration {
  override up(): void {
    // One expression, so that PostgreSQL puts it in the place of each call, which then costs about as much as `lower`.
    this.addSql(`
      create function code_key(code text) returns text language sql immutable parallel safe
      return case
        when strpos(code, 'İ') = 0 then lower(code)
        else lower(code) || chr(10) || regexp_replace(code, '[^İ]', '-', 'g')
      end`);
    for (const [table, column] of codes) {
      this.addSql(`drop index ${table}_${column}_unique`);
      this.addSql(`create unique index ${table}_${column}_unique on ${table} (code_key(${column}))`);
    }
  }

  override down(): void {
    for (const [table, column] of codes) {
      this.addSql(`drop index ${table}_${column}_unique`);
      this.addSql(`create unique index ${table}_${column}_unique on ${table} (lower(${column}))`);
    }
    this.addSql('drop function code_key');
  }
}

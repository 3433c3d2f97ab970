import { readFileSync } from 'node:fs';
import { Migration } from '@mikro-orm/migrations';

/** The first schema of a tenant database: the page beside this file. */
export class FirstSchema extends Migration {
  override up(): void {
    this.addSql(readFileSync(new URL('0001-first-schema.sql', import.meta.url), 'utf8'));
  }

  override down(): void {
    throw new Error(
      'The first schema is not undone, because that would remove all data of the tenant. To remove the tenant: bin/backoffice delete <slug>, then bin/backoffice purge <slug>',
    );
  }
}

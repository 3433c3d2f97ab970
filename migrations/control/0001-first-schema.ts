import { readFileSync } from 'node:fs';
import { Migration } from '@mikro-orm/migrations';

/** The first schema of the control database: the page beside this file. */
export class FirstSchema extends Migration {
  override up(): void {
    this.addSql(readFileSync(new URL('0001-first-schema.sql', import.meta.url), 'utf8'));
  }

  override down(): void {
    throw new Error(
      'The first schema of the control database is not undone. Drop the database, or bring back an archive of it: bin/backoffice control restore',
    );
  }
}

import { withoutUrls } from '../../log/describe-error.ts';
import { sqlState } from '../../postgres/database-error.ts';

const maxLength = 300;

/**
 * Describes an error in one line of at most 300 characters, to be printed or stored: without addresses of databases.
 */
export function errorText(error: unknown): string {
  const text = error instanceof Error ? error.message || (sqlState(error) ?? error.name) : String(error);
  // PostgreSQL stores neither half a character nor the character 0: it would refuse all that is recorded with this.
  return withoutUrls(text)
    .replace(/[\s\0]+/g, ' ')
    .trim()
    .slice(0, maxLength)
    .toWellFormed();
}

import { cleanText } from '../../lib/config/clean-text.ts';
import { normalPostgresUrl, PostgresUrlError } from '../../lib/config/postgres-url.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';

/**
 * Returns the one spelling of the URL of a PostgreSQL server that an operator has given.
 * @throws {OperatorError} when it cannot be used
 */
export function parseServerUrl(text: string): string {
  try {
    return normalPostgresUrl(cleanText(text));
  } catch (cause) {
    if (!(cause instanceof PostgresUrlError)) throw cause;
    throw new OperatorError(`The URL of the server ${cause.message}`, { usage: true, cause });
  }
}

import { errorFact } from '../narrow.ts';
import { sqlState } from '../postgres/database-error.ts';

/**
 * Returns the parts of an error that may be logged. Excludes the message of a database error,
 * which can contain values of the statement, URLs and e-mail addresses in other messages, and
 * all other properties, which can contain the statement, a request body or the text of a URL
 * that cannot be parsed.
 */
export function describeError(error: unknown): object | undefined {
  if (error === undefined) return undefined;
  if (!(error instanceof Error)) return { type: typeof error };

  const stack = error.stack
    ?.split('\n')
    .filter(line => /^\s+at /.test(line))
    .join('\n');
  const code = sqlState(error);
  if (code === undefined || !quotesValues(error, code)) {
    const message = withoutAddresses(withoutUrls(error.message));
    return { type: error.name, code, message, stack, cause: describeError(error.cause) };
  }

  return {
    type: error.name,
    code,
    constraint: errorFact(error, 'constraint'),
    table: errorFact(error, 'table'),
    routine: errorFact(error, 'routine'),
    severity: errorFact(error, 'severity'),
    stack,
  };
}

/**
 * True for an error of PostgreSQL or of MikroORM's driver, and for an error of Node whose
 * message repeats its input.
 */
function quotesValues(error: Error, code: string): boolean {
  return 'severity' in error || 'sqlMessage' in error || code.startsWith('ERR_INVALID_');
}

/** Replaces each URL of a text, because it can contain a password. */
export function withoutUrls(text: string): string {
  return text.replace(/\b[a-z][a-z+]*:\/\/\S+/gi, '(address)');
}

/** Replaces each e-mail address in a text: answers of mail servers repeat them. */
export function withoutAddresses(text: string): string {
  return text.replace(/\S*@\S*/g, '(address)');
}

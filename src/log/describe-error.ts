import { sqlState } from '../postgres/database-error.ts';

/**
 * Returns the parts of an error that may be logged. Excludes the message of a database error, which can contain values
 * of the statement, URLs in other messages, and all other properties, which can contain the statement, a request body
 * or the text of a URL that cannot be parsed.
 */
export function describeError(error: unknown): object | undefined {
  if (error === undefined) return undefined;
  if (!(error instanceof Error)) return { type: typeof error };
  const stack = error.stack
    ?.split('\n')
    .filter(line => /^\s+at /.test(line))
    .join('\n');
  const code = sqlState(error);
  if (code === undefined) {
    return { type: error.name, message: withoutUrls(error.message), stack, cause: describeError(error.cause) };
  }
  const { constraint, table, routine, severity } = error as {
    constraint?: string;
    table?: string;
    routine?: string;
    severity?: string;
  };
  return { type: error.name, code, constraint, table, routine, severity, stack };
}

/** Replaces each URL of a text, because it can contain a password. */
export function withoutUrls(text: string): string {
  return text.replace(/\b[a-z][a-z+]*:\/\/\S+/gi, '(address)');
}

import { type Logger, pino } from 'pino';
import { createLogOutput, type LogOutput } from './log-output.ts';
import { sqlState } from './postgres/database-error.ts';

/** The log of a process, and the standard output behind it. */
interface ProcessLog {
  readonly log: Logger;
  readonly output: LogOutput;
}

/**
 * Creates the log of this process, on standard output. Lines are buffered for at most 100 ms and written together,
 * because a system call for each line would cost more than the line itself. A line of level `warn` or above is written
 * at once, after all buffered lines. So a killed process loses at most 100 ms of lines below `warn`.
 */
export function createLog(level: string): ProcessLog {
  const output = createLogOutput(lines =>
    log.warn({ event: 'log_lines_dropped', lines }, 'log lines were dropped, because the output did not accept them'),
  );
  const destination = {
    [Symbol.for('pino.metadata')]: true, // makes pino set `lastLevel`
    lastLevel: 0,
    write(line: string): void {
      output.write(line);
      if (this.lastLevel >= flushLevel) output.flush();
    },
  };
  const log = pino({ level, serializers }, destination);
  return { log, output };
}

/** For an error that was logged without `describeError`: the default of pino would add all of its properties. */
const serializers = { err: (value: unknown) => (value instanceof Error ? describeError(value) : value) };

const flushLevel = pino.levels.values.warn ?? 0;

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

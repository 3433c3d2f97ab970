import { type Logger, pino } from 'pino';
import { sqlState } from './postgres/database-error.ts';

const bufferBytes = 4_096;
const maxBufferMs = 100;

/**
 * Creates the log of this process, on standard output. Lines are buffered for at most 100 ms and written together,
 * because a system call for each line would cost more than the line itself. A line of level `warn` or above is written
 * at once, after all buffered lines. So a killed process loses at most 100 ms of lines below `warn`.
 */
export function createLog(level: string): { log: Logger; flush: () => void } {
  const output = pino.destination({ sync: true, minLength: bufferBytes, periodicFlush: maxBufferMs });
  const destination = {
    [Symbol.for('pino.metadata')]: true, // makes pino set `lastLevel`
    lastLevel: 0,
    write(line: string): void {
      output.write(line);
      if (this.lastLevel >= flushLevel) output.flush();
    },
  };
  return { log: pino({ level }, destination), flush: () => output.flushSync() };
}

const flushLevel = pino.levels.values.warn ?? 0;

/**
 * Returns the parts of an error that may be logged. Excludes the message of a database error, which can contain values
 * of the statement, and all other properties, which can contain the statement or a request body.
 */
export function describeError(error: unknown): object | undefined {
  if (error === undefined) return undefined;
  if (!(error instanceof Error)) return { type: typeof error };
  const stack = error.stack
    ?.split('\n')
    .filter(line => /^\s+at /.test(line))
    .join('\n');
  const code = sqlState(error);
  if (code === undefined) return { type: error.name, message: error.message, stack, cause: describeError(error.cause) };
  const { constraint, table, routine, severity } = error as {
    constraint?: string;
    table?: string;
    routine?: string;
    severity?: string;
  };
  return { type: error.name, code, constraint, table, routine, severity, stack };
}

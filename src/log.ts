import { type Logger, pino } from 'pino';
import { sqlState } from './postgres/database-error.ts';

const bufferBytes = 4_096;
const maxBufferMs = 100;

/**
 * The log of this process, on its standard output. A line about a request waits to be written together with others, for
 * 100 ms at most, because a system call each would cost more than the line itself. Warnings and worse are written at
 * once, with all that waits; so a process that is killed loses a moment of requests that went well, and nothing else.
 */
export function createLog(level: string): { log: Logger; flush: () => void } {
  const output = pino.destination({ sync: true, minLength: bufferBytes, periodicFlush: maxBufferMs });
  const destination = {
    [Symbol.for('pino.metadata')]: true, // asks for `lastLevel`
    lastLevel: 0,
    write(line: string): void {
      output.write(line);
      if (this.lastLevel >= atOnce) output.flush();
    },
  };
  return { log: pino({ level }, destination), flush: () => output.flushSync() };
}

const atOnce = pino.levels.values.warn ?? 0;

/**
 * What the log may hold of an error: never the message of a database error, which can repeat values of the statement,
 * and no properties, which can hold the statement itself or a body.
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

import { type Logger, pino } from 'pino';

const bufferBytes = 4_096;
const longestWaitMs = 100;

/**
 * The log of this process, on its standard output. A line about a request waits to be written together with others, for
 * 100 ms at most, because a system call each would cost more than the line itself. Warnings and worse are written at
 * once, with all that waits; so a process that is killed loses a moment of requests that went well, and nothing else.
 */
export function createLog(level: string): { log: Logger; flush: () => void } {
  const output = pino.destination({ sync: true, minLength: bufferBytes, periodicFlush: longestWaitMs });
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

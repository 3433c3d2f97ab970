import { type Logger, pino } from 'pino';
import { describeError } from './describe-error.ts';
import { createLogOutput } from './log-output.ts';
import { prettyLine } from './pretty-log.ts';

/**
 * Creates the log of this process, on standard output: one JSON object per line, or on a
 * terminal text for a person. Lines are buffered for at most 100 ms and written together,
 * because a system call for each line would cost more than the line itself. A line of level
 * `warn` or above is written at once, after all buffered lines. So a killed process loses at
 * most 100 ms of lines below `warn`.
 * @returns the log, and the standard output behind it
 */
export function createLog(level: string) {
  const output = createLogOutput(lines =>
    log.warn(
      { event: 'log_lines_dropped', lines },
      'log lines were dropped, because the output did not accept them',
    ),
  );

  const format = process.stdout.isTTY ? prettyLine : undefined;
  const destination = {
    [Symbol.for('pino.metadata')]: true, // makes pino set `lastLevel`
    lastLevel: 0,
    write(line: string): void {
      output.write(format ? format(line) : line);
      if (this.lastLevel >= flushLevel) output.flush();
    },
  };

  const log: Logger = pino({ level, serializers }, destination);
  return { log, output };
}

/**
 * The serializer for an error that was logged without `describeError`: the default of pino
 * would add all of its properties.
 */
const serializers = {
  err: (value: unknown) => (value instanceof Error ? describeError(value) : value),
};

const flushLevel = pino.levels.values.warn ?? 0;

import type { Logger } from 'pino';
import { describeError } from '../../lib/log/describe-error.ts';

/**
 * Logs errors that nothing handled. The exit code is 1 after one, also when the process was
 * stopping already.
 */
export function onFault(log: Logger, stop: () => void): void {
  process.on('uncaughtException', error => {
    process.exitCode = 1;
    stop();
    logFault(log, error);
  });
}

/**
 * Never throws, whatever was thrown: an error in the handler of uncaught errors would end the
 * process at once.
 */
function logFault(log: Logger, error: unknown): void {
  try {
    log.fatal({ event: 'fault', err: describeError(error) }, 'an error was not handled');
  } catch {
    log.fatal({ event: 'fault' }, 'an error was not handled, and cannot be described');
  }
}

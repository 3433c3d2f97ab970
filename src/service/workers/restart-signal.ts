import { isatty } from 'node:tty';
import type { Logger } from 'pino';
import { type StopSignal, stopSignals } from '../../lib/runtime/signals.ts';
import { logReport } from './log-report.ts';

/**
 * Handles SIGHUP, which restarts the workers. It is handled from the beginning of the process,
 * which it would end otherwise. On a terminal it means that the terminal was closed, and ends
 * the process.
 */
export class RestartSignal {
  /** The signals that end the process: on a terminal, SIGHUP is one of them. */
  readonly stopSignals: readonly StopSignal[];
  readonly #log: Logger;
  #isRequested = false;
  #restart: (() => void) | undefined;

  constructor(log: Logger) {
    this.#log = log;
    const hasTerminal = isatty(0);
    this.stopSignals = stopSignals.filter(signal => signal !== 'SIGHUP' || hasTerminal);
    if (!hasTerminal) process.on('SIGHUP', () => this.#receive());
  }

  /**
   * Calls back at each signal, and now for signals that came before there were workers to
   * restart.
   */
  onRestart(restart: () => void): void {
    this.#restart = restart;
    if (this.#isRequested) restart();
  }

  #receive(): void {
    if (this.#restart) {
      this.#restart();
      return;
    }

    this.#isRequested = true;
    logReport(this.#log, { what: 'restart_queued' }, () => undefined);
  }
}

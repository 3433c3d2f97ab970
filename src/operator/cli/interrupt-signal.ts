import type { Installation } from '../../control/installation.ts';
import {
  exitCodes,
  onStopSignal,
  type StopSignal,
  stopSignals,
} from '../../lib/runtime/signals.ts';
import type { Handling } from '../command/operation.ts';
import type { CommandProgress } from './output.ts';

const maxCloseMs = 1_000;

/**
 * Returns the signal that is aborted by Ctrl-C, SIGTERM and a closed terminal, so that an
 * operation ends early; a second Ctrl-C ends the process. If the operation cannot end early, or
 * has not begun its work, they end the process at once.
 */
export function interruptSignal(
  { interrupt }: Handling,
  progress: CommandProgress,
  installation: Installation | undefined,
): AbortSignal {
  const interrupted = new AbortController();

  const stop = (signal: StopSignal): void => {
    if (!interrupt || (interrupt.isIdleBeforeCount && !progress.counts)) {
      void exitAtOnce(installation, signal);
      return;
    }

    interrupted.abort();
    if (signal === 'SIGHUP') return; // nobody reads
    progress.end();
    process.stderr.write(
      `Interrupted: waiting for ${interrupt.text}. Press Ctrl-C again to end at once; no data ` +
        'is lost.\n',
    );
  };

  onStopSignal(stopSignals, stop, signal => process.exit(exitCodes[signal]));
  return interrupted.signal;
}

/** Leaves an embedded PostgreSQL, so that it does not continue to run. */
async function exitAtOnce(
  installation: Installation | undefined,
  signal: StopSignal,
): Promise<void> {
  setTimeout(() => process.exit(exitCodes[signal]), maxCloseMs).unref();
  await installation?.close().catch(() => {});
  process.exit(exitCodes[signal]);
}

import type { Installation } from '../../installation.ts';
import { onStopSignal } from '../../runtime/signals.ts';
import type { Operation } from '../command/operation.ts';
import type { CommandProgress } from './output.ts';

const exitInterrupted = 130; // 128 and the number of SIGINT, as shells report it
const maxCloseMs = 1_000;

/**
 * Returns the signal that Ctrl-C and SIGTERM abort, so that an operation ends early; a second Ctrl-C ends the process.
 * Both end the process at once if the operation cannot end early, or has not begun anything yet.
 */
export function interruptSignal(
  { interrupt }: Operation,
  progress: CommandProgress,
  installation: Installation | undefined,
): AbortSignal {
  const interrupted = new AbortController();
  if (!interrupt) return interrupted.signal;
  const stop = (): void => {
    if (interrupt.isIdleBeforeCount && !progress.counts) return void exitAtOnce(installation);
    interrupted.abort();
    progress.end();
    process.stderr.write(
      `Interrupted: waiting for ${interrupt.text}. Press Ctrl-C again to end at once; no data is lost.\n`,
    );
  };
  onStopSignal(['SIGINT', 'SIGTERM'], stop, () => process.exit(exitInterrupted));
  return interrupted.signal;
}

/** Leaves an embedded PostgreSQL, so that it does not continue to run. */
async function exitAtOnce(installation: Installation | undefined): Promise<void> {
  setTimeout(() => process.exit(exitInterrupted), maxCloseMs).unref();
  await installation?.close().catch(() => {});
  process.exit(exitInterrupted);
}

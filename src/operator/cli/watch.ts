import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../operator-error.ts';
import { onStopSignal } from '../../signals.ts';
import { startScreen, wantsDocuments } from './output.ts';

/** Flags and description of `--watch`, for `Command.option`. */
export const watchOption = ['--watch', 'show it again every 2 seconds, until Ctrl-C'] as const;

const intervalMs = 2_000;

/**
 * Calls `show` every 2 s until Ctrl-C, until nobody reads the output, or until it returns false. On a terminal, clears the screen before each.
 * @throws {OperatorError} without a terminal, unless documents are printed
 */
export async function watch(show: () => Promise<unknown>): Promise<void> {
  if (!process.stdout.isTTY && !wantsDocuments())
    throw new OperatorError('--watch needs a terminal: add --json, or run the command again', { usage: true });
  const stopped = new AbortController();
  onStopSignal(
    ['SIGINT', 'SIGTERM'],
    () => stopped.abort(),
    () => process.exit(130), // 128 and the number of SIGINT, as shells report it
  );
  process.stdout.once('error', () => stopped.abort()); // the reader has closed the pipe
  while (!stopped.signal.aborted) {
    startScreen(`${new Date().toISOString().slice(11, 19)}Z  Ctrl-C ends`);
    if ((await show()) === false) return;
    await sleep(intervalMs, undefined, { signal: stopped.signal }).catch(() => {});
  }
}

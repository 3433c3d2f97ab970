import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { exitCodes, onStopSignal, stopSignals } from '../../lib/runtime/signals.ts';
import { startScreen, wantsDocuments } from './output.ts';

const intervalMs = 2_000;

/**
 * Calls `show` every 2 s, until Ctrl-C or until the reader of the output is gone. On a
 * terminal, clears the screen before each call.
 * @param untilDone true to end when `show` does not return `again`
 * @returns whether the last call succeeded
 * @throws {OperatorError} without a terminal, unless documents are printed
 */
export async function watch(
  // biome-ignore lint/suspicious/noConfusingVoidType: the type of `Operation.run`
  show: () => Promise<boolean | 'again' | void>,
  untilDone: boolean,
): Promise<boolean> {
  if (!process.stdout.isTTY && !wantsDocuments()) {
    throw new OperatorError(
      untilDone
        ? 'Without a terminal, add --json: one line every 2 seconds'
        : '--watch needs a terminal: add --json, or run the command again',
      { usage: true },
    );
  }

  const stopped = new AbortController();
  onStopSignal(
    stopSignals,
    () => stopped.abort(),
    signal => process.exit(exitCodes[signal]),
  );

  process.stdout.once('error', () => stopped.abort()); // the reader has closed the pipe
  while (!stopped.signal.aborted) {
    startScreen(`${new Date().toISOString().slice(11, 19)}Z  Ctrl-C ends`);
    const result = await show();
    if (untilDone && result !== 'again') return result !== false;
    await sleep(intervalMs, undefined, { signal: stopped.signal }).catch(() => {});
  }

  return true;
}

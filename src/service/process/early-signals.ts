import { exitCodes, type StopSignal } from '../../lib/runtime/signals.ts';

const maxCleanUpMs = 3_000;

/**
 * Returns true after a signal that ended the start: errors that follow from it need not be
 * reported.
 */
export function isEndedBySignal(): boolean {
  return Object.values<unknown>(exitCodes).includes(process.exitCode);
}

/**
 * Ends the process at one of the signals, without waiting for the start to finish.
 * @returns a function that ends this
 */
export function exitOnSignals(
  signals: readonly StopSignal[],
  cleanUp: () => Promise<void>,
): () => void {
  const handlers = signals.map(signal => {
    const code = exitCodes[signal];
    const handler = (): void => {
      process.exitCode = code;
      setTimeout(() => process.exit(code), maxCleanUpMs).unref();
      void cleanUp().finally(() => process.exit(code));
    };
    process.once(signal, handler);
    return () => process.off(signal, handler);
  });
  return () => {
    for (const remove of handlers) remove();
  };
}

/** Exit codes after a signal: 128 and its number, as shells report it. */
const exitCodes = { SIGINT: 130, SIGTERM: 143 } as const;

const maxCleanUpMs = 3_000;

/** Returns true after a signal that ended the start: errors that follow from it need not be reported. */
export function isEndedBySignal(): boolean {
  return Object.values<unknown>(exitCodes).includes(process.exitCode);
}

/** Ends the process at a signal, without waiting for the start to finish. @returns a function that ends this */
export function exitOnSignals(cleanUp: () => Promise<void>): () => void {
  const handlers = Object.entries(exitCodes).map(([signal, code]) => {
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

/** The signals that end a process. A terminal that is closed sends SIGHUP. */
export const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type StopSignal = (typeof stopSignals)[number];

/** Exit codes after a signal: 128 and its number, as shells report it. */
export const exitCodes: Readonly<Record<StopSignal, number>> = {
  SIGINT: 130,
  SIGTERM: 143,
  SIGHUP: 129,
};

/**
 * A program that npm or `node --watch` runs receives one Ctrl-C twice within milliseconds: from
 * the terminal, which signals the whole process group, and from its parent, which forwards the
 * signal.
 */
const repetitionMs = 1_000;

/**
 * Calls `stop` on the first of the given signals. A further signal calls `abort`, for an
 * operator who does not want to wait any longer; one that arrives within 1 s of the first is
 * taken for its repetition and ignored.
 */
export function onStopSignal<Signal extends StopSignal>(
  signals: readonly Signal[],
  stop: (signal: Signal) => void,
  abort: (signal: Signal) => void,
): void {
  let stoppedAt: number | undefined;
  for (const signal of signals) {
    process.on(signal, () => {
      if (stoppedAt === undefined) {
        stoppedAt = performance.now();
        stop(signal);
      } else if (performance.now() - stoppedAt > repetitionMs) {
        abort(signal);
      }
    });
  }
}

type StopSignal = 'SIGINT' | 'SIGTERM' | 'SIGHUP';

/**
 * A program that npm or `node --watch` runs receives one Ctrl-C twice within milliseconds: from the terminal, which
 * signals the whole process group, and from its parent, which forwards the signal.
 */
const repetitionMs = 1_000;

/**
 * Calls `stop` on the first of the given signals. A further signal calls `abort`, for an operator who does not want to
 * wait any longer; one that arrives within 1 s of the first is taken for its repetition and ignored.
 */
export function onStopSignal<Signal extends StopSignal>(
  signals: readonly Signal[],
  stop: (signal: Signal) => void,
  abort: () => void,
): void {
  let stoppedAt: number | undefined;
  for (const signal of signals) {
    process.on(signal, () => {
      if (stoppedAt === undefined) {
        stoppedAt = performance.now();
        stop(signal);
      } else if (performance.now() - stoppedAt > repetitionMs) {
        abort();
      }
    });
  }
}

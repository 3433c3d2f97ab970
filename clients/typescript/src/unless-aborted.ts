/**
 * Settles as `work` does, or rejects once a signal is aborted. The fetch of Node does not hear
 * the signal of a `Request` any more after a garbage collection (nodejs/undici#3644), so each
 * wait that has to end hears it itself.
 * @throws the reason of the signal
 */
export async function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal | null | undefined,
): Promise<T> {
  if (!signal) return work;

  let abort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });

  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (abort) signal.removeEventListener('abort', abort);
  }
}

/**
 * Rejects when the promise has not settled within `ms` milliseconds. At the end of the time, it
 * first lets the event loop read data that has already arrived, so that a pause of this process
 * does not count as a pause of the other side.
 */
export function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => setImmediate(reject, new Error(`no reply within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/**
 * Waits for a promise, but not longer than `ms` milliseconds: then it resolves to undefined, and
 * what the promise stands for goes on. The wait keeps no process alive.
 */
export async function atMost<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  const timeout = Promise.withResolvers<undefined>();
  const timer = setTimeout(timeout.resolve, ms, undefined).unref();
  try {
    return await Promise.race([promise, timeout.promise]);
  } finally {
    clearTimeout(timer);
  }
}

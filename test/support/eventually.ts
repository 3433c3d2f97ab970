import { setTimeout as sleep } from 'node:timers/promises';

const pollMs = 10;

/**
 * Polls every 10 ms until `read` returns something other than undefined, null or false, and returns that value.
 * @throws after `withinMs`: the error of the last `read`, or else that the condition was not met
 */
export async function eventually<Value>(
  read: () => Value | Promise<Value>,
  withinMs = 30_000,
): Promise<NonNullable<Exclude<Value, false>>> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    let lastError: unknown;
    try {
      const value = await read();
      if (value !== undefined && value !== null && value !== false) return value as never;
    } catch (error) {
      lastError = error;
    }
    if (performance.now() > deadline) throw lastError ?? new Error(`the condition was not met within ${withinMs} ms`);
    await sleep(pollMs);
  }
}

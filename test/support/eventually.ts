import { setTimeout as sleep } from 'node:timers/promises';

const minPauseMs = 10;
/**
 * The limit of a wait for what another process announces. The service promises 1 s, which a
 * busy machine may exceed: `stale-reads.drill.ts` measures it. A cached response that nobody
 * announces expires after 50 s at the earliest.
 */
export const announcedMs = 40_000;
/**
 * A read that takes long, such as a command, would otherwise keep a core busy. The longer
 * pauses are for long waits, each of which takes at most 5 % too long. A condition in memory,
 * which may hold for a moment only, is read every 10 ms.
 */
const [minPausePerRead, maxPausePerRead, pausePerWait] = [3, 20, 1 / 20];

/**
 * Polls until `read` returns a truthy value, and returns that value: a count of 0, and an empty
 * text, are waited out. Pauses for at least 10 ms, and for 3 to 20 times as long as the read
 * took, the longer the more time has passed.
 * @throws after `withinMs`: the error of the last `read`, or else that the condition was not
 *   met
 */
export async function eventually<Value>(
  read: () => Value | Promise<Value>,
  withinMs = 60_000,
): Promise<NonNullable<Exclude<Value, false | 0 | ''>>> {
  const beganAt = performance.now();
  const deadline = beganAt + withinMs;

  for (;;) {
    let lastError: unknown;
    const startedAt = performance.now();
    try {
      const value = await read();
      if (value) return value as never;
    } catch (error) {
      lastError = error;
    }

    const now = performance.now();
    if (now > deadline) {
      throw lastError ?? new Error(`the condition was not met within ${withinMs} ms`);
    }

    const readMs = now - startedAt;
    const longPauseMs = Math.min(maxPausePerRead * readMs, pausePerWait * (now - beganAt));
    const pauseMs = Math.max(minPausePerRead * readMs, longPauseMs);
    await sleep(Math.max(minPauseMs, Math.min(pauseMs, deadline - now)));
  }
}

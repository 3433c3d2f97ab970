import { setTimeout as sleep } from 'node:timers/promises';

const minPauseMs = 10;
/**
 * The limit of a wait for what another process announces. The service promises 1 s, which a busy machine may exceed; a
 * cached response that nobody announces expires after 50 s at the earliest.
 */
export const announcedMs = 40_000;
/** A read that takes long, such as a command, would otherwise keep a core busy. */
const pausePerRead = 3;
/** Of the time waited: a wait takes at most 5 % too long, and one of 10 s takes 100 reads, not 700. */
const pausePerWait = 1 / 20;

/**
 * Polls until `read` returns something other than undefined, null or false, and returns that value. Pauses for 10 ms,
 * three times as long as the read took, or a twentieth of the time waited, whichever is the longest.
 * @throws after `withinMs`: the error of the last `read`, or else that the condition was not met
 */
export async function eventually<Value>(
  read: () => Value | Promise<Value>,
  withinMs = 60_000,
): Promise<NonNullable<Exclude<Value, false>>> {
  const beganAt = performance.now();
  const deadline = beganAt + withinMs;
  for (;;) {
    let lastError: unknown;
    const startedAt = performance.now();
    try {
      const value = await read();
      if (value !== undefined && value !== null && value !== false) return value as never;
    } catch (error) {
      lastError = error;
    }
    const now = performance.now();
    if (now > deadline) throw lastError ?? new Error(`the condition was not met within ${withinMs} ms`);
    const pauseMs = Math.max(pausePerRead * (now - startedAt), pausePerWait * (now - beganAt));
    await sleep(Math.max(minPauseMs, Math.min(pauseMs, deadline - now)));
  }
}

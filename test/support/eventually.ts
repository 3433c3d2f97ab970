import { setTimeout as sleep } from 'node:timers/promises';

/** Asks again and again until the answer is not undefined, null or false, and tells it. @throws when time is over */
export async function eventually<Answer>(
  ask: () => Answer | Promise<Answer>,
  withinMs = 5_000,
): Promise<NonNullable<Exclude<Answer, false>>> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    let fault: unknown;
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== null && answer !== false) return answer as never;
    } catch (error) {
      fault = error;
    }
    if (performance.now() > deadline) throw fault ?? new Error(`did not come true within ${withinMs} ms`);
    await sleep(10);
  }
}

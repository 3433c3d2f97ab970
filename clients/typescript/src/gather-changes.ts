import type { Change } from './change-stream.ts';

/**
 * Yields each change together with those that come in the time after it, so that a page that
 * reads a list again does so once for all of them. Changes that come while the caller uses a
 * list are in the next one.
 * @param stop ends the changes: a generator that waits for a change cannot be ended otherwise
 */
export async function* gatherChanges(
  changes: AsyncGenerator<Change, void>,
  gatherMs: number,
  stop: () => void,
): AsyncGenerator<Change[], void> {
  let next = changes.next();

  try {
    for (;;) {
      const first = await next;
      if (first.done) return;

      const gathered = [first.value];
      next = changes.next();
      const end = pause(gatherMs);
      for (;;) {
        // An error is thrown after the changes before it: by the next turn.
        const result = await Promise.race([next, end.passed]).catch(() => undefined);
        if (!result || result.done) break;

        gathered.push(result.value);
        next = changes.next();
      }

      end.cancel();
      yield gathered;
    }
  } finally {
    stop();
    next.catch(() => {});
  }
}

function pause(ms: number) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const passed = new Promise<undefined>(resolve => {
    timer = setTimeout(() => resolve(undefined), ms);
  });

  return { passed, cancel: () => clearTimeout(timer) };
}
